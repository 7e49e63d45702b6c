"""Assigns replicas of new partitions to brokers, or checks assignments from clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.base.error_codes import ErrorCode
from ottla.controller.errors import ControllerError

Replicas = tuple[int, ...]


def chosen(partition_count: int, replication_factor: int, brokers: Sequence[int]) -> list[Replicas]:
    """Replicas for this many partitions. With one broker there is nothing to spread."""
    if partition_count <= 0:
        reason = f"A topic needs at least one partition, not {partition_count}."
        raise ControllerError(ErrorCode.INVALID_PARTITIONS, reason)
    if replication_factor <= 0:
        reason = f"The replication factor must be at least 1, not {replication_factor}."
        raise ControllerError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
    if replication_factor > len(brokers):
        reason = f"A replication factor of {replication_factor} needs as many brokers; there are {len(brokers)}."
        raise ControllerError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
    return [tuple(brokers[:replication_factor])] * partition_count


def by_hand(assignments: Sequence[tuple[int, Sequence[int]]], brokers: Sequence[int]) -> list[Replicas]:
    """The replicas of a new topic's partitions, in order, from (partition, replicas) in any order."""
    by_index: Mapping[int, Sequence[int]] = dict(assignments)
    if len(by_index) != len(assignments):
        indexes = [index for index, _ in assignments]
        twice = next(index for index in indexes if indexes.count(index) > 1)
        raise _wrong(f"Partition {twice} is assigned more than once.")
    if sorted(by_index) != list(range(len(by_index))):
        raise _wrong(f"Partitions must be numbered from 0 without gaps, not {_listed(sorted(by_index))}.")
    factor = len(by_index[0])
    return [checked(index, by_index[index], brokers, factor) for index in range(len(by_index))]


def checked(index: int, replicas: Sequence[int], brokers: Sequence[int], factor: int) -> Replicas:
    """Checks the replicas that a client chose for one partition."""
    if not replicas:
        raise _wrong(f"Partition {index} has no replicas.")
    if len(set(replicas)) != len(replicas):
        raise _wrong(f"Partition {index} cannot have two replicas on one broker: {_listed(replicas)}.")
    if unknown := sorted(set(replicas) - set(brokers)):
        raise _wrong(f"Partition {index} is assigned to unknown brokers: {_listed(unknown)}.")
    if len(replicas) != factor:
        raise _wrong(f"Every partition must have {factor} replicas, but partition {index} has {len(replicas)}.")
    return tuple(replicas)


def _wrong(reason: str) -> ControllerError:
    return ControllerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
