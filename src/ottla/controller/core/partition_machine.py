"""The states of partitions.

| to | from | what happens |
| --- | --- | --- |
| NEW | NON_EXISTENT | nothing: the replicas are assigned |
| ONLINE | NEW | the first live replica leads, the live ones are the ISR; the state node is created |
| ONLINE | ONLINE, OFFLINE | an election (`elections`); the state node is written if nobody else wrote it meanwhile |
| OFFLINE | NEW, ONLINE, OFFLINE | nothing: its leader is gone |
| NON_EXISTENT | OFFLINE | nothing: its topic is being deleted |

Elections start from the cache, because the write is conditional; what was written by others meanwhile is read and
elected again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.controller.core.context import ControllerContext, PartitionPhase
from ottla.controller.core.effects import (
    ReadTopicConfigs,
    Step,
    create_states,
    in_batches,
    read_states,
    write_states,
)
from ottla.controller.core.elections import Elected, Election, elect, has_live_in_sync
from ottla.controller.core.leadership import Leadership
from ottla.controller.core.request_batch import RequestBatch
from ottla.controller.errors import ControllerError

_logger = logging.getLogger(__name__)

_P = PartitionPhase
_VALID_BEFORE: Final = {
    _P.NEW: frozenset({_P.NON_EXISTENT}),
    _P.ONLINE: frozenset({_P.NEW, _P.ONLINE, _P.OFFLINE}),
    _P.OFFLINE: frozenset({_P.NEW, _P.ONLINE, _P.OFFLINE}),
    _P.NON_EXISTENT: frozenset({_P.OFFLINE}),
}

Outcomes = dict[TopicPartition, ControllerError | None]
IsUnclean = Callable[[Mapping[str, str]], bool]
"""Whether a topic with these configs allows unclean elections."""


class PartitionMachine:
    """Moves partitions between states."""

    def __init__(self, context: ControllerContext, is_unclean: IsUnclean) -> None:
        self._context = context
        self._is_unclean = is_unclean
        self.elections = 0
        self.unclean_elections = 0

    # --- start and bookkeeping --------------------------------------------------------------------------------------

    def start(self) -> Step[set[TopicPartition]]:
        """The states after a failover: by whether a partition has a state node, and a live leader. Returns the
        partitions that got a leader: their live replicas have been told."""
        context = self._context
        for name in context.all_partitions():
            leadership = context.leaderships.get(name)
            if leadership is None:
                context.set_phase(name, PartitionPhase.NEW)
            elif context.is_online(leadership.leader, name):
                context.set_phase(name, PartitionPhase.ONLINE)
            else:
                context.set_phase(name, PartitionPhase.OFFLINE)
        outcomes = yield from self.elect_missing()
        return {name for name, failure in outcomes.items() if failure is None}

    def to_new(self, names: Iterable[TopicPartition]) -> None:
        for name in self._valid(names, PartitionPhase.NEW):
            self._context.set_phase(name, PartitionPhase.NEW)

    def to_offline(self, names: Iterable[TopicPartition]) -> None:
        for name in self._valid(names, PartitionPhase.OFFLINE):
            self._context.set_phase(name, PartitionPhase.OFFLINE)

    def to_non_existent(self, names: Iterable[TopicPartition]) -> None:
        for name in self._valid(names, PartitionPhase.NON_EXISTENT):
            self._context.set_phase(name, PartitionPhase.NON_EXISTENT)

    def _valid(self, names: Iterable[TopicPartition], target: PartitionPhase) -> list[TopicPartition]:
        valid = []
        for name in names:
            phase = self._context.phase(name)
            if phase in _VALID_BEFORE[target]:
                valid.append(name)
            else:
                _logger.error("partition %s cannot become %s: it is %s", name, target.name, phase.name)
        return valid

    # --- elections --------------------------------------------------------------------------------------------------

    def elect_missing(self, topic: str | None = None) -> Step[Outcomes]:
        """Elects leaders of all partitions that have none, or of those of a topic."""
        names = [
            name
            for name in sorted(self._context.without_leader)
            if not self._context.is_being_deleted(name.topic) and (topic is None or name.topic == topic)
        ]
        return (yield from self.to_online(names, Election.OFFLINE))

    def to_online(self, names: Sequence[TopicPartition], election: Election) -> Step[Outcomes]:
        """Elects leaders, and tells the brokers. Returns the outcome of each partition, None for success."""
        outcomes: Outcomes = {}
        for part in in_batches(self._valid(names, PartitionPhase.ONLINE)):
            yield from self._part_to_online(part, election, outcomes)
        return outcomes

    def _part_to_online(self, valid: Sequence[TopicPartition], election: Election, outcomes: Outcomes) -> Step[None]:
        batch = RequestBatch(self._context)
        new = [name for name in valid if self._context.phase(name) is PartitionPhase.NEW]
        led = [name for name in valid if self._context.phase(name) is not PartitionPhase.NEW]
        if new:
            led_already = yield from self._initialize(new, batch, outcomes)
            led += [name for name in led_already if self._context.phase(name) is PartitionPhase.OFFLINE]
        if led:
            yield from self._elect(led, election, batch, outcomes)
        yield from batch.send()

    def _initialize(
        self, names: Sequence[TopicPartition], batch: RequestBatch, outcomes: Outcomes
    ) -> Step[list[TopicPartition]]:
        """Returns partitions that have a state node already; their leadership is cached now."""
        context = self._context
        first: dict[TopicPartition, Leadership] = {}
        for name in names:
            live = tuple(replica for replica in context.replicas(name) if context.is_online(replica, name))
            if live:
                first[name] = Leadership(live[0], 0, live, context.epoch)
            else:
                _logger.info("partition %s has no leader: none of its replicas is alive", name)
                outcomes[name] = _not_available(name)
        created = yield from create_states(first)
        for name, leadership in created.items():
            context.set_leadership(name, leadership)
            context.set_phase(name, PartitionPhase.ONLINE)
            batch.tell_role(leadership.isr, name, is_new=True)
            outcomes[name] = None
        rest = [name for name in first if name not in created]
        if not rest:
            return []
        known = yield from read_states(rest)
        for name in rest:
            found = known.get(name)
            if found is None:
                outcomes[name] = _not_available(name)  # its topic is gone
                continue
            context.set_leadership(name, found)
            is_led = context.is_online(found.leader, name)
            context.set_phase(name, PartitionPhase.ONLINE if is_led else PartitionPhase.OFFLINE)
            if is_led:
                batch.tell_role(context.replicas(name), name, is_new=False)
                outcomes[name] = None
        return list(known)

    def _elect(
        self, names: Sequence[TopicPartition], election: Election, batch: RequestBatch, outcomes: Outcomes
    ) -> Step[None]:
        context = self._context
        remaining = list(names)
        while remaining:
            unclean = yield from self._unclean_topics(remaining, election)
            elected: dict[TopicPartition, Elected] = {}
            for name in remaining:
                leadership = context.leaderships[name]
                if leadership.controller_epoch > context.epoch:
                    reason = f"{name} was written by the controller of epoch {leadership.controller_epoch}."
                    outcomes[name] = ControllerError(ErrorCode.NOT_CONTROLLER, reason)
                    continue
                choice = elect(context, name, leadership, election, may_be_unclean=name.topic in unclean)
                if choice is None:
                    outcomes[name] = _not_available(name)
                else:
                    elected[name] = choice
            written = yield from write_states({name: choice.leadership for name, choice in elected.items()})
            self.elections += len(written)
            for name, leadership in written.items():
                if leadership.leader not in context.leaderships[name].isr:
                    self.unclean_elections += 1
                    _logger.warning(
                        "unclean election: broker %d leads %s, records may be lost", leadership.leader, name
                    )
                context.set_leadership(name, leadership)
                context.set_phase(name, PartitionPhase.ONLINE)
                batch.tell_role(elected[name].recipients, name, is_new=False)
                outcomes[name] = None
            remaining = yield from self.refreshed([name for name in elected if name not in written])

    def refreshed(self, names: Sequence[TopicPartition]) -> Step[list[TopicPartition]]:
        """Reads states that others wrote meanwhile into the cache. Returns the partitions that still have one."""
        if not names:
            return []
        known = yield from read_states(names)
        for name, leadership in known.items():
            self._context.set_leadership(name, leadership)
        return list(known)

    def _unclean_topics(self, names: Sequence[TopicPartition], election: Election) -> Step[frozenset[str]]:
        """The topics that allow unclean elections, among those that need one."""
        if election is not Election.OFFLINE:
            return frozenset()
        context = self._context
        stuck = sorted({name.topic for name in names if not has_live_in_sync(context, name, context.leaderships[name])})
        if not stuck:
            return frozenset()
        configs: dict[str, dict[str, str]] = yield ReadTopicConfigs(stuck)
        return frozenset(topic for topic, own in configs.items() if self._is_unclean(own))


def _not_available(name: TopicPartition) -> ControllerError:
    return ControllerError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"No eligible replica of {name} is available.")
