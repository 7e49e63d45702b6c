"""The state machine of a member of a ZooKeeper group: what it owns, and what it has to do next. No I/O.

A member registers, reads the state of the group (with watches), and computes its own share. It gives up and releases
what is not in that share, claims what is missing, and is stable until something that it watches changes. A claim is an
ephemeral node that only one member can create, so a partition never has two owners, whatever each of them computed; a
member whose claim is refused waits for the owner to release the partition, and reads the state again.

| phase | event | next phase |
| --- | --- | --- |
| OUT | wanted (the user polls) | REGISTERING |
| REGISTERING | registered | LOOKING |
| LOOKING | saw | GIVING_UP if it owns what others should have, else RELEASING if an earlier release failed, else \
CLAIMING if something is missing, else STABLE; REGISTERING if it is not in the group; STUCK if there is no assignment |
| LOOKING | saw, but something changed meanwhile | LOOKING |
| GIVING_UP (waits for a poll, which calls the listener) | given up | RELEASING |
| RELEASING | released | CLAIMING, STABLE; LOOKING if something changed meanwhile |
| CLAIMING | claimed | STABLE if all were granted, else WAITING, or STUCK after the last retry; LOOKING if something \
changed meanwhile |
| WAITING | retry (a delay is over, or an owner released) | LOOKING |
| STUCK (waits for a poll, which raises the reason) | retry | LOOKING |
| WAITING, STABLE, STUCK | changed | LOOKING |
| LOOKING to CLAIMING | changed | unchanged; noted |
| all but OUT | resubscribed | REGISTERING, after the current work in GIVING_UP, RELEASING and CLAIMING |
| all but OUT | failed (nodes that cannot be parsed) | STUCK |
| all but OUT | expired (ZooKeeper ended the session) | REGISTERING; owns nothing |
| all | left | OUT; owns nothing |

Kafka 0.8 releases everything at the start of a rebalance and claims its share all or nothing. Here a member keeps what
remains its own, and consumes what it could claim while it waits for the rest. The other members only notice that some
claims succeed sooner.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum, auto
from typing import Final

from ottla.base.errors import OttlaError
from ottla.base.ids import TopicPartition
from ottla.client.membership.zookeeper.assignment import AssignmentError, GroupView, Plan, Strategy, plan_of


class TransitionError(OttlaError):
    """An event that is not allowed in this phase: a bug."""


class Phase(Enum):
    OUT = auto()
    REGISTERING = auto()
    LOOKING = auto()
    GIVING_UP = auto()
    RELEASING = auto()
    CLAIMING = auto()
    WAITING = auto()
    STABLE = auto()
    STUCK = auto()


_SETTLED: Final = frozenset({Phase.WAITING, Phase.STABLE, Phase.STUCK})
_AFTER_A_LOOK: Final = frozenset({Phase.GIVING_UP, Phase.RELEASING, Phase.CLAIMING, Phase.STABLE, Phase.STUCK})
_AGAIN: Final = frozenset({Phase.LOOKING, Phase.REGISTERING})
_MEMBER: Final = frozenset(Phase) - {Phase.OUT}

TRANSITIONS: Final[dict[str, dict[Phase, frozenset[Phase]]]] = {
    "wanted": {Phase.OUT: frozenset({Phase.REGISTERING})},
    "registered": {Phase.REGISTERING: _AGAIN},
    "saw": {Phase.LOOKING: _AFTER_A_LOOK | _AGAIN},
    "given_up": {Phase.GIVING_UP: frozenset({Phase.RELEASING})},
    "released": {Phase.RELEASING: _AGAIN | {Phase.CLAIMING, Phase.STABLE}},
    "claimed": {Phase.CLAIMING: _AGAIN | _SETTLED},
    "retry": {phase: frozenset({Phase.LOOKING}) for phase in (Phase.WAITING, Phase.STUCK)},
    "changed": {phase: frozenset({Phase.LOOKING}) for phase in _SETTLED},
    "resubscribed": {phase: frozenset({Phase.REGISTERING}) for phase in (_SETTLED | _AGAIN)},
    "failed": dict.fromkeys(_MEMBER, frozenset({Phase.STUCK})),
    "expired": dict.fromkeys(_MEMBER, frozenset({Phase.REGISTERING})),
    "left": dict.fromkeys(Phase, frozenset({Phase.OUT})),
}
"""For each event: the allowed phases, and the next ones."""


class Rebalance:
    """`phase` says what to do next; call the method of the event when it is done. Results from an earlier `session`
    must be dropped: compare it first."""

    def __init__(self, strategy: Strategy, retries_max: int, *, with_internal: bool) -> None:
        self._strategy = strategy
        self._retries_max = retries_max
        self._with_internal = with_internal
        self.phase = Phase.OUT
        self.member_id = ""
        self.session = 0
        """Increases when the member left or ZooKeeper ended its session."""
        self.generation = 0
        """Increases when the member may no longer own what it owned."""
        self.is_registered = False
        self.owned: frozenset[TopicPartition] = frozenset()
        """Claimed and not given up. Invariant: never owned by another member."""
        self.plan: Plan = {}
        """Its share according to the last `look`. Invariant after that: owned - going ⊆ plan."""
        self.going: frozenset[TopicPartition] = frozenset()
        """What it owns and has to give up."""
        self.unreleased: frozenset[TopicPartition] = frozenset()
        """What it gave up, but whose nodes still exist. Invariant: nothing is claimed until this is empty."""
        self.failures = 0
        """The number of refused attempts to claim since the last change."""
        self.reason = ""
        """Why the member is stuck."""
        self._is_stale = False
        """Whether something changed since the plan was computed."""
        self._is_resubscribed = False
        """Whether the user's subscription differs from the registration."""

    @property
    def missing(self) -> Plan:
        """What has to be claimed."""
        return {one: thread for one, thread in self.plan.items() if one not in self.owned}

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to do until something changes."""
        return self.phase in _SETTLED

    # Events.

    def wanted(self, member_id: str) -> None:
        self.member_id = member_id
        self._go("wanted", Phase.REGISTERING)

    def registered(self) -> None:
        self.is_registered = True
        self._go("registered", self._again() or Phase.LOOKING)

    def looks(self) -> None:
        """Called when a `look` begins: it does not include later changes."""
        self._is_stale = False

    def saw(self, view: GroupView) -> None:
        again = self._again()
        if again is not None or self.member_id not in view.members:
            self._go("saw", again or Phase.REGISTERING)  # another process deleted its node
            return
        if not view.brokers:  # nothing can be consumed: all members keep their partitions until brokers are back
            self.plan = {one: thread for one, thread in self.plan.items() if one in self.owned}
            self._go("saw", self._next())
            return
        try:
            self.plan = plan_of(view, self.member_id, self._strategy, with_internal=self._with_internal)
        except AssignmentError as error:
            self.reason = str(error)
            self._go("saw", Phase.STUCK)
            return
        self.going = self.owned - self.plan.keys()
        self._go("saw", Phase.GIVING_UP if self.going else self._next())

    def given_up(self) -> None:
        """Called when the user has given up `going`."""
        self.owned -= self.going
        self.unreleased |= self.going
        self.going = frozenset()
        self.generation += 1
        self._go("given_up", Phase.RELEASING)

    def released(self) -> None:
        self.unreleased = frozenset()
        self._go("released", self._again() or self._next())

    def claimed(self, granted: Collection[TopicPartition]) -> None:
        """Called with those of `missing` that were granted; the others have other owners."""
        self.owned |= frozenset(granted)
        refused = sorted(self.missing)
        again = self._again()
        if again is not None or not refused:
            self.failures = 0
            self._go("claimed", again or Phase.STABLE)
            return
        self.failures += 1
        if self.failures < self._retries_max:
            self._go("claimed", Phase.WAITING)
            return
        self.failures = 0
        self.reason = f"other consumers still own {', '.join(map(str, refused))} after {self._retries_max} attempts"
        self._go("claimed", Phase.STUCK)

    def doubts(self, partitions: Collection[TopicPartition]) -> None:
        """Called with claims of an ended session, some of which may have been made in the next: they are released
        before anything is claimed."""
        self.unreleased |= frozenset(partitions) - self.owned

    def retry(self) -> None:
        self._go("retry", Phase.LOOKING)

    def changed(self) -> None:
        """Called when something that was watched changed: members, brokers, topics or partitions."""
        self._is_stale = True
        self.failures = 0
        if self.phase in TRANSITIONS["changed"]:
            self._go("changed", Phase.LOOKING)

    def resubscribed(self) -> None:
        """Called when the user changed the subscription."""
        self._is_resubscribed = self.phase is not Phase.OUT
        if self.phase in TRANSITIONS["resubscribed"]:
            self._go("resubscribed", Phase.REGISTERING)

    def registers(self) -> None:
        """Called when a registration begins: it does not include later changes of the subscription."""
        self._is_resubscribed = False

    def failed(self, reason: str) -> None:
        """Called when it cannot continue by itself."""
        self.reason = reason
        self.going = frozenset()
        self._go("failed", Phase.STUCK)

    def expired(self) -> None:
        self._own_nothing()
        if self.phase is not Phase.OUT:
            self._go("expired", Phase.REGISTERING)

    def left(self) -> None:
        self._own_nothing()
        self._go("left", Phase.OUT)

    # Internal.

    def _go(self, event: str, phase: Phase) -> None:
        if phase not in TRANSITIONS[event].get(self.phase, ()):
            raise TransitionError(f"a member that is {self.phase.name} cannot be {phase.name} by the event {event!r}")
        self.phase = phase

    def _again(self) -> Phase | None:
        """Returns the phase that comes before anything else, because the last `look` is outdated."""
        if self._is_resubscribed:
            return Phase.REGISTERING
        return Phase.LOOKING if self._is_stale else None

    def _next(self) -> Phase:
        if self.unreleased:
            return Phase.RELEASING
        if self.missing:
            return Phase.CLAIMING
        self.failures = 0
        return Phase.STABLE

    def _own_nothing(self) -> None:
        self.session += 1
        self.generation += 1
        self.is_registered = self._is_stale = self._is_resubscribed = False
        self.owned = self.going = self.unreleased = frozenset()
        self.plan = {}
        self.failures = 0
