"""A group of the classic protocol: its members, its generation, and the state of its rebalance.

    Empty ──join──▶ PreparingRebalance ──all have joined──▶ CompletingRebalance ──leader's assignment──▶ Stable
      ▲                │     ▲                                  │                                         │
      └──no members────┘     └───── a member joins, leaves, dies or does not sync ────────────────────────┘

The log contains only stable and empty generations. Between them the group is ahead of its record: joining members, and
a generation without an assignment, are lost when the shard moves, and their clients join again. `replay` sets the group
to the state in a record, both when it is loaded and when the record was just written.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Final, TypeVar

from ottla.base.clock import Clock
from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.groups.classic.member import ClassicMember
from ottla.coordinator.groups.group import Group
from ottla.coordinator.groups.records import record_of
from ottla.coordinator.key_values import KeyValue
from ottla.coordinator.pending import PendingAnswer
from ottla.wire.codec import decode_from
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.messages.group_records import GroupMetadataKey, GroupMetadataMember, GroupMetadataValue
from ottla.wire.messages.join_group import JoinGroupResponse
from ottla.wire.messages.sync_group import SyncGroupResponse

_logger = logging.getLogger(__name__)

R = TypeVar("R")
_TRY_AGAIN: Final = ErrorCode.REBALANCE_IN_PROGRESS

CONSUMER: Final = "consumer"
"""The protocol type of consumers. Others, such as Kafka Connect's workers, have their own."""


class ClassicState(Enum):
    """With the names that tools show."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


_NEXT_STATES: Final[Mapping[ClassicState, frozenset[ClassicState]]] = {
    ClassicState.EMPTY: frozenset({ClassicState.PREPARING}),
    ClassicState.PREPARING: frozenset({ClassicState.COMPLETING, ClassicState.EMPTY}),
    ClassicState.COMPLETING: frozenset({ClassicState.STABLE, ClassicState.PREPARING}),
    ClassicState.STABLE: frozenset({ClassicState.PREPARING}),
}
"""The legal transitions. They do not apply to `replay`: the log contains only some of the states."""


class ClassicGroup(Group):
    """See the module. Starts empty and without a protocol; a group that only has offsets stays so."""

    __slots__ = (
        "_clock",
        "_supporters",
        "generation",
        "is_initial_rebalance",
        "joining_count",
        "leader_id",
        "members",
        "members_came",
        "pending_joins",
        "pending_syncs",
        "protocol",
        "state",
        "state_since_ms",
        "static_members",
        "subscribed_topics",
        "type_of_protocol",
    )

    def __init__(self, group_id: str, clock: Clock) -> None:
        super().__init__(group_id)
        self._clock = clock
        self.state = ClassicState.EMPTY
        self.state_since_ms: int | None = clock.now_ms()
        """None if the group's record is from before that field existed."""
        self.generation = 0
        self.type_of_protocol: str | None = None
        self.protocol: str | None = None
        """The assignment protocol of this generation, such as `range`."""
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by instance id."""
        self.subscribed_topics: frozenset[str] | None = None
        """The topics of this generation; None if members are not consumers, or their metadata cannot be read."""
        self.pending_joins: set[str] = set()
        """Assigned member ids that have not joined yet."""
        self.pending_syncs: set[str] = set()
        """Members of this generation that have not sent SyncGroup."""
        self.joining_count = 0
        """How many members wait for the response to JoinGroup."""
        self.is_initial_rebalance = False
        """Whether the current or last rebalance started with an empty group: it waits for more members."""
        self.members_came = False
        """Whether members joined since the initial rebalance started to wait, or extended its wait."""
        self._supporters: Counter[str] = Counter()
        """How many members support a protocol."""

    # --- what every group tells -------------------------------------------------------------------------------------

    @property
    def type_name(self) -> str:
        return "classic"

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type(self) -> str:
        return self.type_of_protocol or ""

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        in_transaction: bool,
        version: int,  # noqa: ARG002
    ) -> None:
        if generation < 0 and self.state is ClassicState.EMPTY:
            return  # From a tool, or a consumer with assigned partitions.
        if generation >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            if generation != self.generation:
                raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION)
        elif not in_transaction and self.state is not ClassicState.EMPTY:
            raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not in_transaction and self.state is ClassicState.COMPLETING:
            raise CoordinatorError(ErrorCode.REBALANCE_IN_PROGRESS)

    def note_commit(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is not None:
            ends_s = self._clock.monotonic_s() + member.session_timeout_ms / 1000
            member.session_ends_s = max(member.session_ends_s, ends_s)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Always allowed."""

    def check_offset_delete(self) -> None:
        if self.state is not ClassicState.EMPTY and self.type_of_protocol != CONSUMER:
            raise CoordinatorError(ErrorCode.NON_EMPTY_GROUP)

    def subscribes_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.type_of_protocol == CONSUMER
        return topic in self.subscribed_topics

    def retention_start_ms(self, committed_ms: int) -> int | None:
        if self.type_of_protocol is None:
            return committed_ms
        if self.state is ClassicState.EMPTY:
            return committed_ms if self.state_since_ms is None else self.state_since_ms
        if (
            self.type_of_protocol == CONSUMER
            and self.subscribed_topics is not None
            and self.state is ClassicState.STABLE
        ):
            return committed_ms
        return None

    def deletion_records(self) -> list[KeyValue]:
        return [record_of(GroupMetadataKey(group=self.group_id), None)]

    # --- members ----------------------------------------------------------------------------------------------------

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        """Raises `CoordinatorError` unless this is a member; a static one must use its current member id."""
        if instance_id is not None:
            current_id = self.static_members.get(instance_id)
            if current_id is None:
                raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current_id != member_id:
                raise CoordinatorError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a member with these protocols may join: all members must support one of them."""
        if self.state is ClassicState.EMPTY:
            return bool(protocol_type) and any(True for _ in protocols)
        everybody = len(self.members)
        return self.type_of_protocol == protocol_type and any(
            self._supporters[protocol] == everybody for protocol in protocols
        )

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.type_of_protocol = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._count_in(member)
        self.pending_joins.discard(member.member_id)

    def remove(self, member_id: str) -> ClassicMember | None:
        """Removes a member, or a member id that never joined. It must not wait for an answer."""
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_out(member)
            if member.instance_id is not None:
                del self.static_members[member.instance_id]
            if self.leader_id == member_id:
                self.leader_id = next(iter(self.members), None)
        return member

    def put_in_place_of(self, old: ClassicMember, new: ClassicMember) -> None:
        """A static member returns with a new member id, in the same place."""
        self.pending_syncs.discard(old.member_id)
        self._count_out(old)
        self.members = {each.member_id: each for each in self.members_with(old, new)}
        self._count_in(new)
        if new.instance_id is not None:
            self.static_members[new.instance_id] = new.member_id
        if self.leader_id == old.member_id:
            self.leader_id = new.member_id

    def members_with(self, old: ClassicMember, new: ClassicMember) -> list[ClassicMember]:
        """The members with `new` in place of `old`."""
        return [new if each is old else each for each in self.members.values()]

    def change(self, member: ClassicMember, protocols: dict[str, bytes]) -> None:
        """Changes the member's protocols."""
        self._count_out(member)
        member.protocols = protocols
        self._count_in(member)

    def _count_in(self, member: ClassicMember) -> None:
        self._supporters.update(member.protocols.keys())

    def _count_out(self, member: ClassicMember) -> None:
        self._supporters.subtract(member.protocols.keys())

    # --- who waits --------------------------------------------------------------------------------------------------

    def await_join(self, member: ClassicMember, answer: PendingAnswer[JoinGroupResponse]) -> None:
        """Lets a JoinGroup wait. An earlier one of the member is told to retry: its client no longer waits for it."""
        self.answer_join(member, JoinGroupResponse(member_id=member.member_id, error_code=_TRY_AGAIN))
        member.joining = answer
        self.joining_count += 1

    def answer_join(self, member: ClassicMember, response: JoinGroupResponse) -> None:
        """Answers the member's JoinGroup, if one waits."""
        if member.joining is not None:
            _answer(member.joining, response)
            member.joining = None
            self.joining_count -= 1

    def await_sync(self, member: ClassicMember, answer: PendingAnswer[SyncGroupResponse]) -> None:
        self.answer_sync(member, SyncGroupResponse(error_code=_TRY_AGAIN))
        member.syncing = answer

    def answer_sync(self, member: ClassicMember, response: SyncGroupResponse) -> bool:
        """Answers the member's SyncGroup; returns whether one waited."""
        if member.syncing is None:
            return False
        _answer(member.syncing, response)
        member.syncing = None
        return True

    def answer_all(self, error: ErrorCode) -> None:
        for member in self.members.values():
            self.answer_join(member, JoinGroupResponse(member_id=member.member_id, error_code=error))
            self.answer_sync(member, SyncGroupResponse(error_code=error))

    @property
    def everybody_joined(self) -> bool:
        return len(self.members) == self.joining_count and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # --- generations ------------------------------------------------------------------------------------------------

    def become(self, state: ClassicState) -> None:
        """Changes the state. Raises `RuntimeError` for a transition that is not in `_NEXT_STATES`."""
        if state not in _NEXT_STATES[self.state]:
            raise RuntimeError(f"Group {self.group_id!r} cannot go from {self.state.value} to {state.value}.")
        self.state = state
        self.state_since_ms = self._clock.now_ms()

    def elect_joined_leader(self) -> bool:
        """Replaces a leader that has not joined by a member that has. False if none has."""
        leader = self.members.get(self.leader_id) if self.leader_id is not None else None
        if leader is not None and leader.joining is None:
            leader = next((member for member in self.members.values() if member.joining is not None), None)
            if leader is not None:
                self.leader_id = leader.member_id
        return leader is not None

    def next_generation(self) -> None:
        """Starts the next generation: it waits for the leader's assignment, or is empty."""
        self.generation += 1
        self.pending_syncs.clear()
        self.protocol = chosen_protocol(self.members.values())
        self.subscribed_topics = self._read_subscriptions()
        self.become(ClassicState.COMPLETING if self.members else ClassicState.EMPTY)

    def _read_subscriptions(self) -> frozenset[str] | None:
        if self.type_of_protocol != CONSUMER:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        topics: set[str] = set()
        try:
            for member in self.members.values():
                topics.update(_subscription(member.protocols[self.protocol]).topics)
        except ProtocolError as error:
            _logger.warning("Group %s: cannot read the subscriptions of its members: %s", self.group_id, error)
            return None
        return frozenset(topics)

    # --- in the log -------------------------------------------------------------------------------------------------

    def record(self, assignments: Mapping[str, bytes] | None = None) -> KeyValue:
        """The group's record; with `assignments`, those by member id, empty for members without one."""
        return self._record(self.members.values(), self.leader_id, assignments)

    def record_with(self, old: ClassicMember, new: ClassicMember) -> KeyValue:
        """The group's record with `new` in place of `old`."""
        leader_id = new.member_id if self.leader_id == old.member_id else self.leader_id
        return self._record(self.members_with(old, new), leader_id, None)

    def _record(
        self, members: Collection[ClassicMember], leader_id: str | None, assignments: Mapping[str, bytes] | None
    ) -> KeyValue:
        stored: list[GroupMetadataMember] = []
        if self.protocol is not None:
            for member in members:
                assignment = member.assignment if assignments is None else assignments.get(member.member_id, b"")
                stored.append(member.stored(self.protocol, assignment))
        value = GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=self.protocol,
            leader=leader_id,
            current_state_timestamp=-1 if self.state_since_ms is None else self.state_since_ms,
            members=stored,
        )
        return record_of(GroupMetadataKey(group=self.group_id), value)

    def replay(self, value: GroupMetadataValue) -> None:
        """Sets the group to the state in a record. Members that it already has keep their waiting requests, and the
        protocols that the record does not contain."""
        self.generation = value.generation
        self.type_of_protocol = value.protocol_type or None
        self.protocol = value.protocol
        self.leader_id = value.leader
        self.state_since_ms = None if value.current_state_timestamp == -1 else value.current_state_timestamp
        before, self.members = self.members, {}
        self.static_members = {}
        self._supporters.clear()
        self.joining_count = 0
        for stored in value.members:
            self._replay_member(before.get(stored.member_id), stored, value.protocol or "")
        self.state = ClassicState.STABLE if self.members else ClassicState.EMPTY
        self.subscribed_topics = self._read_subscriptions()

    def _replay_member(self, known: ClassicMember | None, stored: GroupMetadataMember, protocol: str) -> None:
        if known is None:
            member = ClassicMember.loaded(stored, protocol)
        else:
            member = known
            member.load(stored, protocol)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._count_in(member)
        if member.joining is not None:
            self.joining_count += 1


def chosen_protocol(members: Collection[ClassicMember]) -> str | None:
    """Each member votes for the first of its protocols that all members support; the one with most votes wins. None
    without members."""
    supporters = Counter(name for member in members for name in member.protocols)
    known_to_all = {name for name, count in supporters.items() if count == len(members)}
    votes = Counter(next(name for name in member.protocols if name in known_to_all) for member in members)
    return votes.most_common(1)[0][0] if votes else None


def _subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Decoded as v0: every later version starts with its fields."""
    if len(metadata) < 2 or metadata[0] & 0x80:
        raise ProtocolError("the subscription has no valid version")
    return decode_from(ConsumerProtocolSubscription, 0, metadata[2:])[0]


def _answer(waiting: PendingAnswer[R], response: R) -> None:
    if not waiting.is_answered:
        waiting.answer(response)
