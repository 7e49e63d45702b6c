"""What a follower asks its leader besides Fetch: the ends of epochs, and the ends of its log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.replication.fetching.followed import Followed, State
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochPartition,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochTopic,
)
from ottla.wire.schema import Request, Response

LATEST: Final = -1
EARLIEST: Final = -2


class Answer(NamedTuple):
    """The answer for one partition. `epoch` only for epochs."""

    name: TopicPartition
    state: State
    """The state in which it was asked."""
    asked_leader_epoch: int
    error: ErrorCode
    offset: int
    epoch: int = -1


def ends_of_epochs(broker_id: int, partitions: Iterable[Followed]) -> OffsetForLeaderEpochRequest:
    """Where the last epoch of each log ends at the leader."""
    topics: dict[str, OffsetForLeaderEpochTopic] = {}
    for followed in partitions:
        name, latest = followed.name, followed.log().epochs.latest_epoch
        topics.setdefault(name.topic, OffsetForLeaderEpochTopic(topic=name.topic)).partitions.append(
            OffsetForLeaderEpochPartition(
                partition=name.partition,
                current_leader_epoch=followed.leader_epoch,
                leader_epoch=-1 if latest is None else latest,
            )
        )
    return OffsetForLeaderEpochRequest(replica_id=broker_id, topics=list(topics.values()))


def offsets(broker_id: int, partitions: Iterable[Followed], place: int) -> ListOffsetsRequest:
    """Where each leader's log begins or ends."""
    topics: dict[str, ListOffsetsTopic] = {}
    for followed in partitions:
        name = followed.name
        topics.setdefault(name.topic, ListOffsetsTopic(name=name.topic)).partitions.append(
            ListOffsetsPartition(
                partition_index=name.partition, current_leader_epoch=followed.leader_epoch, timestamp=place
            )
        )
    return ListOffsetsRequest(replica_id=broker_id, topics=list(topics.values()))


def answers(request: Request, response: Response) -> Iterator[Answer]:
    """One for each partition that was asked; those that the response leaves out failed."""
    if isinstance(request, OffsetForLeaderEpochRequest) and isinstance(response, OffsetForLeaderEpochResponse):
        ends = {(topic.topic, each.partition): each for topic in response.topics for each in topic.partitions}
        for epochs_of in request.topics:
            for partition in epochs_of.partitions:
                name = TopicPartition(epochs_of.topic, partition.partition)
                end = ends.get(name)
                error = ErrorCode.UNKNOWN_SERVER_ERROR if end is None else ErrorCode.of(end.error_code)
                epoch, offset = (-1, -1) if end is None else (end.leader_epoch, end.end_offset)
                yield Answer(name, State.TRUNCATING, partition.current_leader_epoch, error, offset, epoch)
    elif isinstance(request, ListOffsetsRequest) and isinstance(response, ListOffsetsResponse):
        found = {(topic.name, each.partition_index): each for topic in response.topics for each in topic.partitions}
        for offsets_of in request.topics:
            for asked in offsets_of.partitions:
                name = TopicPartition(offsets_of.name, asked.partition_index)
                place = found.get(name)
                error = ErrorCode.UNKNOWN_SERVER_ERROR if place is None else ErrorCode.of(place.error_code)
                state = State.FINDING_END if asked.timestamp == LATEST else State.FINDING_START
                offset = -1 if place is None else place.offset
                if offset < 0 and not error:
                    error = ErrorCode.UNKNOWN_SERVER_ERROR
                yield Answer(name, state, asked.current_leader_epoch, error, offset)
    else:
        raise TypeError(f"{type(response).__name__} does not answer {type(request).__name__}")
