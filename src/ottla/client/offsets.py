"""Places in a partition, and the offsets they stand for now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, RefusedError, raise_if_refused
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_CONSUMER: Final = -1


@dataclass(frozen=True, slots=True)
class Place:
    """Where to look: a timestamp, or one of the negative numbers that stand for the ends of a partition."""

    timestamp_ms: int

    @classmethod
    def at_time(cls, timestamp_ms: int) -> Place:
        """The first record that is not older."""
        if timestamp_ms < 0:
            raise ValueError(f"{timestamp_ms} is no time: milliseconds since 1970 are not negative")
        return cls(timestamp_ms)


EARLIEST: Final = Place(-2)
LATEST: Final = Place(-1)


class OffsetAndMetadata(NamedTuple):
    """What a group commits for a partition: the next offset to read, a note, and the leader epoch of what was read."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class OffsetAndTimestamp(NamedTuple):
    """The first record that is not older than a time that was asked for."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


async def offsets_at(cluster: Cluster, places: Mapping[TopicPartition, Place]) -> dict[TopicPartition, int]:
    """The offset of each place. A time after the last record is the end of the partition."""

    async def attempt() -> dict[TopicPartition, int]:
        return await _offsets_once(cluster, places)

    offsets = await cluster.retry(attempt)
    beyond = {partition: LATEST for partition, offset in offsets.items() if offset < 0 and places[partition] != LATEST}
    return {**offsets, **(await offsets_at(cluster, beyond))} if beyond else offsets


async def _offsets_once(cluster: Cluster, places: Mapping[TopicPartition, Place]) -> dict[TopicPartition, int]:
    by_leader: dict[int, dict[str, ListOffsetsTopic]] = {}
    for partition, place in places.items():
        info = await cluster.topic(partition.topic)
        if partition.partition not in range(len(info.partitions)):
            raise ClientError(f"topic {partition.topic} has no partition {partition.partition}")
        leader_id = cluster.known_leader(partition)
        if leader_id is None:
            raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition}")
        topics = by_leader.setdefault(leader_id, {})
        topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic))
        topic.partitions.append(
            ListOffsetsPartition(
                partition_index=partition.partition,
                current_leader_epoch=info.partitions[partition.partition].leader_epoch,
                timestamp=place.timestamp_ms,
            )
        )
    offsets: dict[TopicPartition, int] = {}
    for leader_id, topics in by_leader.items():
        request = ListOffsetsRequest(replica_id=_CONSUMER, topics=list(topics.values()))
        answer = await cluster.send_to(leader_id, request, ListOffsetsResponse)
        for found in answer.topics:
            for one in found.partitions:
                partition = TopicPartition(found.name, one.partition_index)
                raise_if_refused(one.error_code, f"partition {partition}")
                offsets[partition] = one.offset
    return offsets
