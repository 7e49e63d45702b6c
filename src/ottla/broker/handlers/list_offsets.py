"""ListOffsets: the start and end offsets of a partition, and offsets by timestamp.

For a consumer the end is the high watermark, or the last stable offset with read_committed; for a replica the log end.
A new leader's high watermark may lag behind what its predecessor told consumers, until its followers have fetched: the
end is then not available to consumers (KIP-207). There is no remote storage, so offsets in it are unknown.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers import handles
from ottla.broker.requests.api import BrokerError, RequestContext
from ottla.broker.requests.partition_access import hosted_partition
from ottla.log.errors import LogError
from ottla.log.partition_log import PartitionLog
from ottla.records.layout import NO_LEADER_EPOCH
from ottla.replication.partition import Partition
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_LATEST: Final = -1
_EARLIEST: Final = -2
_MAX_TIMESTAMP: Final = -3
_EARLIEST_LOCAL: Final = -4
_LATEST_TIERED: Final = -5
_EARLIEST_PENDING_UPLOAD: Final = -6
_FIRST_VERSION_OF: Final = {
    _LATEST: 0,
    _EARLIEST: 0,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}
_FIRST_VERSION_WITH_EPOCHS: Final = 4
_FIRST_VERSION_WITH_NOT_AVAILABLE: Final = 5

_CONSUMER: Final = -1
_DEBUGGER: Final = -2
"""The replica id of a tool that may also query a follower."""
_READ_COMMITTED: Final = 1


@handles(ListOffsetsRequest)
def list_offsets(broker: Broker, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """Handles each partition independently. One that appears twice is refused, except in v0."""
    version = context.version
    twice = _named_twice(request) if version > 0 else frozenset[tuple[str, int]]()
    has_epochs = version >= _FIRST_VERSION_WITH_EPOCHS
    hosted = broker.replicas.partitions
    answers = []
    for topic in request.topics:
        name = topic.name
        partitions = []
        for asked in topic.partitions:
            index, timestamp = asked.partition_index, asked.timestamp
            try:
                if twice and (name, index) in twice:
                    raise BrokerError(ErrorCode.INVALID_REQUEST)
                if timestamp == _LATEST and version > 0:
                    # Consumers and monitoring request many of these at once; no file is read.
                    partition = hosted.get((name, index))  # type: ignore[call-overload]  # equal to its tuple
                    log = partition.log if partition is not None and partition.is_leader else None
                    if log is None or asked.current_leader_epoch != NO_LEADER_EPOCH:
                        partition, log = _readable(broker, request, name, asked)
                    if partition.epoch_start > log.high_watermark and request.replica_id == _CONSUMER:
                        raise _not_available(version)
                    offset, epoch = _bound(log, request), partition.leader_epoch if has_epochs else -1
                    answer = ListOffsetsPartitionResponse(partition_index=index, offset=offset, leader_epoch=epoch)
                elif timestamp < 0 and version < _FIRST_VERSION_OF.get(timestamp, version + 1):
                    raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)
                else:
                    answer = _answer(broker, request, name, asked, version)
            except (BrokerError, LogError) as error:
                answer = ListOffsetsPartitionResponse(partition_index=index, error_code=error.code)
            partitions.append(answer)
        answers.append(ListOffsetsTopicResponse(name=name, partitions=partitions))
    return ListOffsetsResponse(topics=answers)


def _not_available(version: int) -> BrokerError:
    is_known = version >= _FIRST_VERSION_WITH_NOT_AVAILABLE
    return BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE if is_known else ErrorCode.LEADER_NOT_AVAILABLE)


def _named_twice(request: ListOffsetsRequest) -> frozenset[tuple[str, int]]:
    """The partitions that a request names more than once."""
    named = [(topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions]
    if len(set(named)) == len(named):
        return frozenset()
    return frozenset(name for name, count in Counter(named).items() if count > 1)


def _bound(log: PartitionLog, request: ListOffsetsRequest) -> int:
    """The end of the log for this client."""
    if request.replica_id != _CONSUMER:
        return log.next_offset
    return log.last_stable_offset if request.isolation_level == _READ_COMMITTED else log.high_watermark


def _answer(
    broker: Broker, request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition, version: int
) -> ListOffsetsPartitionResponse:
    partition, log = _readable(broker, request, topic, asked)
    directory = broker.directories.directory_of(partition.name)
    if directory is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # deleted just now
    with broker.directories.guard(directory):
        if version == 0:
            offsets = _offsets_before(log, asked.timestamp, asked.max_num_offsets)
            if request.replica_id == _CONSUMER and any(offset > log.high_watermark for offset in offsets):
                offsets = [log.high_watermark, *(offset for offset in offsets if offset <= log.high_watermark)]
            return ListOffsetsPartitionResponse(partition_index=asked.partition_index, old_style_offsets=offsets)
        timestamp, offset, epoch = _place(partition, log, asked.timestamp, _bound(log, request))
    if (
        offset < 0
        and partition.epoch_start > log.high_watermark
        and request.replica_id == _CONSUMER
        and asked.timestamp not in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD)
    ):
        raise _not_available(version)
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index, timestamp=timestamp, offset=offset)
    if version >= _FIRST_VERSION_WITH_EPOCHS:
        answer.leader_epoch = epoch
    return answer


def _readable(
    broker: Broker, request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition
) -> tuple[Partition, PartitionLog]:
    partition = hosted_partition(broker, topic, asked.partition_index)
    code = partition.check_leader(asked.current_leader_epoch)
    is_any_replica_good = request.replica_id == _DEBUGGER and code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    if code is not ErrorCode.NONE and not is_any_replica_good:
        raise BrokerError(code)
    if partition.log is None:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)
    return partition, partition.log


_UNKNOWN: Final = (-1, -1, -1)


def _place(partition: Partition, log: PartitionLog, timestamp: int, end: int) -> tuple[int, int, int]:
    """Timestamp, offset and leader epoch of the result, each -1 if unknown; nothing at or after `end`."""
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return -1, log.log_start_offset, _earliest_epoch(partition, log)
    if timestamp in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):
        return _UNKNOWN
    found = log.offset_of_max_timestamp() if timestamp == _MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    if found is None or found.offset >= end:
        return _UNKNOWN
    return found.timestamp_ms, found.offset, -1 if found.leader_epoch is None else found.leader_epoch


def _earliest_epoch(partition: Partition, log: PartitionLog) -> int:
    """The epoch of the first record. In an empty log that is the leader's: its epoch begins there, though it is written
    only with its first record."""
    if partition.is_leader and log.log_start_offset == log.next_offset:
        return partition.leader_epoch
    first = log.epochs.earliest_entry
    return first.epoch if first is not None and first.start_offset <= log.log_start_offset else -1


def _offsets_before(log: PartitionLog, timestamp: int, max_count: int) -> list[int]:
    """The result of v0: the base offsets of segments last written before a time, newest first, and the log end."""
    places = [(max(segment.base_offset, log.log_start_offset), segment.modified_ms) for segment in log.segments]
    if log.active.size:
        places.append((log.next_offset, log.clock.now_ms()))
    if timestamp == _EARLIEST:
        places = places[:1]
    elif timestamp != _LATEST:
        while places and places[-1][1] > timestamp:
            places.pop()
    return sorted((offset for offset, _ in places[-max_count:] if max_count > 0), reverse=True)
