"""Topics and partitions to be created: checks of what is wanted, and the assignment of replicas. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.base.config import ConfigError
from ottla.base.error_codes import ErrorCode
from ottla.controller import assignment
from ottla.controller.errors import ControllerError
from ottla.controller.state import TopicState
from ottla.log.config import LogConfig

Place = Callable[[int, int], list[assignment.Replicas]]
"""Chooses replicas for so many partitions, with so many replicas each. There are enough brokers."""

PARTITIONS_AT_ONCE_MAX: Final = 10_000
"""As in newer versions of Kafka: one mistyped number must not bring down a broker."""


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """A topic to be created: with counts, or with (partition, replicas) assignments and the counts None. A config
    without a value is refused, but only after the name was checked."""

    name: str
    partition_count: int | None = None
    replication_factor: int | None = None
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitionCount:
    """The total number of partitions that a topic should have; `assignments` are the replicas of the new ones."""

    name: str
    total: int
    assignments: Sequence[Sequence[int]] | None = None


def checked_configs(wanted: WantedTopic) -> dict[str, str]:
    """The configs of a new topic, each of which needs a value."""
    configs = {key: value for key, value in wanted.configs.items() if value is not None}
    if len(configs) < len(wanted.configs):
        without_value = ", ".join(key for key, value in wanted.configs.items() if value is None)
        raise ControllerError(ErrorCode.INVALID_CONFIG, f"Configs of a new topic need a value: {without_value}.")
    return configs


def check_config_values(configs: Mapping[str, str], broker_settings: Mapping[str, str]) -> None:
    """Checks the configs of a topic, together with the broker's."""
    try:
        LogConfig.from_properties(configs, broker_settings)
    except ConfigError as error:
        raise ControllerError(ErrorCode.INVALID_CONFIG, str(error)) from None


def assigned_replicas(
    wanted: WantedTopic, brokers: Sequence[int], room: int, place: Place | None = None
) -> list[assignment.Replicas]:
    """The replicas of each partition of a new topic, of which at most `room` partitions may be created."""
    if wanted.assignments:
        if wanted.partition_count is not None or wanted.replication_factor is not None:
            reason = "Give either a partition count and a replication factor, or replica assignments, not both."
            raise ControllerError(ErrorCode.INVALID_REQUEST, reason)
        _check_count(len(wanted.assignments), room)
        return assignment.by_hand(wanted.assignments, brokers)
    count = wanted.partition_count or 0
    _check_count(count, room)
    replicas = assignment.chosen(count, wanted.replication_factor or 0, brokers)
    return replicas if place is None else place(count, wanted.replication_factor or 0)


def added_replicas(
    topic: TopicState, wanted: NewPartitionCount, brokers: Sequence[int], place: Place | None = None
) -> list[assignment.Replicas]:
    """The replicas of each partition that is added to a topic."""
    new_total, assignments = wanted.total, wanted.assignments
    old_total = len(topic.partitions)
    if any(partition.adding_replicas or partition.removing_replicas for partition in topic.partitions):
        reason = f"Partitions of topic '{topic.name}' are being reassigned; try again later."
        raise ControllerError(ErrorCode.REASSIGNMENT_IN_PROGRESS, reason)
    if new_total <= old_total:
        reason = f"Topic '{topic.name}' has {old_total} partitions; the number can only grow, not become {new_total}."
        raise ControllerError(ErrorCode.INVALID_PARTITIONS, reason)
    count = new_total - old_total
    _check_count(count, PARTITIONS_AT_ONCE_MAX)
    factor = len(topic.partitions[0].replicas)
    if assignments is None:
        replicas = assignment.chosen(count, factor, brokers)
        if place is not None:
            replicas = place(count, factor)
    elif len(assignments) != count:
        reason = f"{count} partitions are added, but {len(assignments)} assignments are given."
        raise ControllerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    else:
        replicas = [
            assignment.checked(index, given, brokers, factor)
            for index, given in enumerate(assignments, start=old_total)
        ]
    return replicas


def _check_count(count: int, room: int) -> None:
    if count > room:
        reason = f"At most {PARTITIONS_AT_ONCE_MAX} partitions can be created at once, not {count} more."
        raise ControllerError(ErrorCode.POLICY_VIOLATION, reason)
