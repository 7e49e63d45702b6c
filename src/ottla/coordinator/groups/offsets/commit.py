"""OffsetCommit and TxnOffsetCommit: checks whether a member may commit, and makes the records of its offsets.

A commit does not create a group: replaying the first offset of an unknown group does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.groups.group import PartitionCheck, TopicImage
from ottla.coordinator.groups.offsets import records as offset_records
from ottla.coordinator.groups.offsets.records import NO_EXPIRY, encode_value, head_of
from ottla.coordinator.groups.shard import GroupShard
from ottla.coordinator.key_values import KeyValue, TransactionProducer
from ottla.coordinator.shards import WriteOutcome
from ottla.wire.messages.offset_commit import (
    OffsetCommitPartitionResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetCommitTopicResponse,
)
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitPartitionResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitTopicResponse,
)

_NONE: Final = ErrorCode.NONE
_TOO_LARGE: Final = ErrorCode.OFFSET_METADATA_TOO_LARGE
_UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
TOPIC_IDS_SINCE: Final = 10
_NO_GROUP_SINCE: Final = 9
_KNOWS_LOADING_SINCE: Final = 2
"""The version of TxnOffsetCommit whose clients know COORDINATOR_LOAD_IN_PROGRESS."""
_NO_TIME: Final = -1
_DEFAULT_RETENTION: Final = -1
_MAX_TIME_MS: Final = 2**63 - 1


def commit_offsets(shard: GroupShard, request: OffsetCommitRequest, version: int) -> WriteOutcome[OffsetCommitResponse]:
    topics = shard.topics
    now_ms = shard.context.clock.now_ms()
    retention_ms = request.retention_time_ms
    # Limited to 64 bits. Kafka's sum overflows, and the offset that should live longest expires first.
    expires_ms = NO_EXPIRY if retention_ms == _DEFAULT_RETENTION else min(max(now_ms + retention_ms, 0), _MAX_TIME_MS)
    metadata_max = shard.settings.offset_metadata_max_bytes
    records: list[KeyValue] = []
    is_any_known = False
    answers = []
    for topic in request.topics:
        name, unknown = _name_of(topic, version, topics)
        count = topics.partition_count(name) or 0
        head = head_of(request.group_id, name)
        partitions = []
        for partition in topic.partitions:
            index = partition.partition_index
            metadata = partition.committed_metadata or ""
            error = unknown
            if 0 <= index < count:
                is_any_known = True
                error = _TOO_LARGE if len(metadata) > metadata_max else _NONE
            if not error:
                committed_ms = partition.commit_timestamp
                value = encode_value(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    metadata,
                    now_ms if committed_ms == _NO_TIME else committed_ms,
                    expires_ms,
                )
                records.append(KeyValue(offset_records.key_of(head, index), value))
            partitions.append(OffsetCommitPartitionResponse(partition_index=index, error_code=error))
        answers.append(OffsetCommitTopicResponse(name=name, topic_id=topic.topic_id, partitions=partitions))
    if is_any_known:  # otherwise the group is not checked
        member_id, generation = request.member_id, request.generation_id_or_member_epoch
        try:
            check = check_commit(shard, request.group_id, member_id, request.group_instance_id, generation, version)
            if check is not None:
                _check_each(check, answers, topics)
        except CoordinatorError as error:
            return WriteOutcome(OffsetCommitResponse(topics=_refused(answers, error.code)))
    return WriteOutcome(OffsetCommitResponse(topics=answers), records)


def _refused(answers: list[OffsetCommitTopicResponse], error: ErrorCode) -> list[OffsetCommitTopicResponse]:
    """Puts the group's error on all partitions that exist."""
    for topic in answers:
        for partition in topic.partitions:
            if partition.error_code in (_NONE, _TOO_LARGE):
                partition.error_code = error
    return answers


def refused_commit(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """The response with this error for every partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitTopicResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitPartitionResponse(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _name_of(topic: OffsetCommitTopic, version: int, topics: TopicImage) -> tuple[str, ErrorCode]:
    """The topic's name, and the error for unknown partitions."""
    if version < TOPIC_IDS_SINCE:
        return topic.name, _UNKNOWN
    name = topics.topic_name(topic.topic_id)
    return (name, _UNKNOWN) if name is not None else ("", ErrorCode.UNKNOWN_TOPIC_ID)


def check_commit(
    shard: GroupShard, group_id: str, member_id: str, instance_id: str | None, generation: int, version: int
) -> PartitionCheck | None:
    """Like `Group.check_commit`. Without a generation, a client may commit for a group that does not exist yet."""
    group = shard.groups.get(group_id)
    if group is not None:
        check = group.check_commit(member_id, instance_id, generation, in_transaction=False, version=version)
        if member_id:
            group.note_commit(member_id)
        return check
    if generation >= 0:
        # Older clients rejoin on ILLEGAL_GENERATION, and do not know GROUP_ID_NOT_FOUND.
        is_known = version >= _NO_GROUP_SINCE
        raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND if is_known else ErrorCode.ILLEGAL_GENERATION)
    return None


def _check_each(
    check: PartitionCheck,
    answers: Iterable[OffsetCommitTopicResponse | TxnOffsetCommitTopicResponse],
    topics: TopicImage,
) -> None:
    """Runs the check for partitions that would be committed."""
    for topic in answers:
        topic_id = topics.topic_id(topic.name)
        for partition in topic.partitions:
            if not partition.error_code:
                check(topic_id, partition.partition_index)


def commit_in_transaction(
    shard: GroupShard, request: TxnOffsetCommitRequest, version: int
) -> WriteOutcome[TxnOffsetCommitResponse]:
    """The offsets are pending until the transaction ends."""
    now_ms = shard.context.clock.now_ms()
    metadata_max = shard.settings.offset_metadata_max_bytes
    records = []
    answers = []
    for topic in request.topics:
        count = shard.topics.partition_count(topic.name) or 0
        head = head_of(request.group_id, topic.name)
        partitions = []
        for partition in topic.partitions:
            index, metadata = partition.partition_index, partition.committed_metadata or ""
            error = _UNKNOWN
            if 0 <= index < count:
                error = _TOO_LARGE if len(metadata) > metadata_max else _NONE
            if not error:
                value = encode_value(partition.committed_offset, partition.committed_leader_epoch, metadata, now_ms)
                records.append(KeyValue(offset_records.key_of(head, index), value))
            partitions.append(TxnOffsetCommitPartitionResponse(partition_index=index, error_code=error))
        answers.append(TxnOffsetCommitTopicResponse(name=topic.name, partitions=partitions))
    _check_transaction(shard, request, version, answers)
    producer = TransactionProducer(request.producer_id, request.producer_epoch)
    return WriteOutcome(TxnOffsetCommitResponse(topics=answers), records, producer=producer)


def refused_in_transaction(request: TxnOffsetCommitRequest, error: ErrorCode, version: int) -> TxnOffsetCommitResponse:
    """The response with this error for every partition."""
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _KNOWS_LOADING_SINCE:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitTopicResponse(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitPartitionResponse(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _check_transaction(
    shard: GroupShard, request: TxnOffsetCommitRequest, version: int, answers: Iterable[TxnOffsetCommitTopicResponse]
) -> None:
    group = shard.groups.get(request.group_id)
    if group is None:
        if request.generation_id >= 0:
            raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION)
        return
    try:
        check = group.check_commit(
            request.member_id, request.group_instance_id, request.generation_id, in_transaction=True, version=version
        )
        if check is not None:
            _check_each(check, answers, shard.topics)
    except CoordinatorError as error:
        if error.code is ErrorCode.STALE_MEMBER_EPOCH:  # producers do not know that error
            raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION) from error
        raise
