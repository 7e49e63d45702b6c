"""Positions in a partition (earliest, latest, a timestamp), and their current offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.arguments import whole_number
from ottla.client.cluster import Cluster
from ottla.client.errors import ArgumentError, RefusedError, UnknownPartitionError
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_CONSUMER: Final = -1
_NO_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class Place:
    """What to look up: a timestamp, or a negative number for the start or end of a partition."""

    timestamp_ms: int

    @classmethod
    def at_time(cls, timestamp_ms: int) -> Place:
        """The first record at or after the timestamp."""
        if timestamp_ms < 0:
            raise ArgumentError(f"{timestamp_ms} is not a timestamp: milliseconds since the epoch must not be negative")
        return cls(timestamp_ms)


EARLIEST: Final = Place(-2)
LATEST: Final = Place(-1)


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the offset of the next record to read, metadata, and the leader epoch of the last record
    read."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a requested time."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


def offset_of(given: int | OffsetAndMetadata) -> OffsetAndMetadata:
    """An offset, including a NumPy integer."""
    if isinstance(given, OffsetAndMetadata):
        return given if given.offset.__class__ is int else given._replace(offset=whole_number("offset", given.offset))
    return OffsetAndMetadata(whole_number("offset", given))


def partition_of(given: TopicPartition | tuple[str, int]) -> TopicPartition:
    """A partition, including a pair, and a NumPy integer."""
    topic, partition = given
    return TopicPartition(topic, whole_number("partition", partition))


def checked_offsets(
    offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | Mapping[TopicPartition, OffsetAndMetadata],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets to commit."""
    checked = {}
    for partition, given in offsets.items():
        one = offset_of(given)
        if one.offset < 0:
            raise ArgumentError(f"{given!r} is not an offset to commit for partition {partition}")
        checked[partition_of(partition)] = one
    return checked


async def offsets_at(
    cluster: Cluster, places: Mapping[TopicPartition, Place], *, committed_only: bool = False
) -> dict[TopicPartition, int]:
    """The offset of each position. A time after the last record is the end of the partition; with read_committed, that
    is the first open transaction."""
    found = await find_offsets(cluster, places, committed_only=committed_only)
    offsets = {partition: one.offset for partition, one in found.items()}
    beyond = {partition: LATEST for partition, offset in offsets.items() if offset < 0 and places[partition] != LATEST}
    return {**offsets, **(await offsets_at(cluster, beyond, committed_only=committed_only))} if beyond else offsets


async def find_offsets(
    cluster: Cluster, places: Mapping[TopicPartition, Place], *, committed_only: bool = False
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """What is at each position; the offset is negative if there is nothing. Retried while the error is transient."""

    async def attempt() -> dict[TopicPartition, OffsetAndTimestamp]:
        return await _find_once(cluster, places, committed_only=committed_only)

    return await cluster.retry(attempt)


async def _find_once(
    cluster: Cluster, places: Mapping[TopicPartition, Place], *, committed_only: bool
) -> dict[TopicPartition, OffsetAndTimestamp]:
    by_leader: dict[int, dict[TopicPartition, Place]] = {}
    for partition, place in places.items():
        info = await cluster.topic(partition.topic)
        if partition.partition not in range(count := len(info.partitions)):
            raise UnknownPartitionError(
                f"topic {partition.topic} has no partition {partition.partition}: it has {count} partitions"
            )
        leader_id = cluster.known_leader(partition)
        if leader_id is None:
            raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition}")
        by_leader.setdefault(leader_id, {})[partition] = place
    found: dict[TopicPartition, OffsetAndTimestamp] = {}
    for leader_id, its_places in by_leader.items():
        for partition, one in (await ask_leader(cluster, leader_id, its_places, committed_only=committed_only)).items():
            if isinstance(one, RefusedError):
                raise one
            found[partition] = one
    return found


async def ask_leader(
    cluster: Cluster, leader_id: int, places: Mapping[TopicPartition, Place], *, committed_only: bool = False
) -> dict[TopicPartition, OffsetAndTimestamp | RefusedError]:
    """One attempt at the leader of these partitions: what is at each position, or the error."""
    topics: dict[str, ListOffsetsTopic] = {}
    for partition, place in places.items():
        known = cluster.known_topic(partition.topic)
        topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic))
        topic.partitions.append(
            ListOffsetsPartition(
                partition_index=partition.partition,
                current_leader_epoch=known.partitions[partition.partition].leader_epoch if known else _NO_EPOCH,
                timestamp=place.timestamp_ms,
            )
        )
    request = ListOffsetsRequest(
        replica_id=_CONSUMER, isolation_level=int(committed_only), topics=list(topics.values())
    )
    answer = await cluster.send_to(leader_id, request, ListOffsetsResponse)
    return {
        TopicPartition(topic.name, one.partition_index): _found(TopicPartition(topic.name, one.partition_index), one)
        for topic in answer.topics
        for one in topic.partitions
    }


def _found(partition: TopicPartition, answer: ListOffsetsPartitionResponse) -> OffsetAndTimestamp | RefusedError:
    if answer.error_code:
        return RefusedError(answer.error_code, f"partition {partition}")
    epoch = answer.leader_epoch
    return OffsetAndTimestamp(answer.offset, answer.timestamp, None if epoch == _NO_EPOCH else epoch)
