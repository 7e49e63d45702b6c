"""OffsetFetch: the offsets that groups have committed, in the format of each version."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID
from ottla.coordinator.groups.offsets.records import decode_value
from ottla.coordinator.groups.offsets.store import OffsetStore, TopicOffsets
from ottla.coordinator.groups.shard import GroupShard
from ottla.wire.messages.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchGroupResponse,
    OffsetFetchGroupTopic,
    OffsetFetchGroupTopicResponse,
    OffsetFetchPartitionResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopicResponse,
)

SEVERAL_GROUPS_SINCE: Final = 8
TOPIC_IDS_SINCE: Final = 10
_ERROR_OF_GROUP_SINCE: Final = 2
_NO_OFFSET: Final = -1


def groups_of(request: OffsetFetchRequest, version: int) -> list[OffsetFetchGroup]:
    """The groups of the request, in the format of newer versions."""
    if version >= SEVERAL_GROUPS_SINCE:
        return request.groups
    asked: list[OffsetFetchGroupTopic] | None = None
    if request.topics is not None:
        asked = [
            OffsetFetchGroupTopic(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return [OffsetFetchGroup(group_id=request.group_id, topics=asked)]


def response_of(groups: list[OffsetFetchGroupResponse], asked: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
    """The response in the format of the version. Before v2 each partition carries the group's error."""
    if version >= SEVERAL_GROUPS_SINCE:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    if group.error_code and version < _ERROR_OF_GROUP_SINCE:
        return OffsetFetchResponse(
            topics=[
                OffsetFetchTopicResponse(
                    name=topic.name,
                    partitions=[_nothing(index, group.error_code) for index in topic.partition_indexes],
                )
                for topic in asked.topics or ()
            ]
        )
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[OffsetFetchTopicResponse(name=topic.name, partitions=topic.partitions) for topic in group.topics],
    )


def fetch_offsets(
    shard: GroupShard, offsets: OffsetStore, asked: OffsetFetchGroup, version: int, *, require_stable: bool
) -> OffsetFetchGroupResponse:
    """The offsets of one group; none if the group does not exist."""
    group = shard.groups.get(asked.group_id)
    if group is not None:
        group.check_fetch(asked.member_id, asked.member_epoch)
    stored = offsets.topics_of(asked.group_id) if group is not None else {}
    unstable = offsets if require_stable and offsets.has_transactions(asked.group_id) else None
    if asked.topics is None:
        topics = [_whole_topic(shard, topic, version, unstable) for topic in stored.values()]
        found = [topic for topic in topics if version < TOPIC_IDS_SINCE or topic.topic_id != ZERO_UUID]
        return OffsetFetchGroupResponse(group_id=asked.group_id, topics=found)
    answers = []
    for topic in asked.topics:
        name = topic.name
        if version >= TOPIC_IDS_SINCE:
            known = shard.topics.topic_name(topic.topic_id)
            if known is None:
                partitions = [_nothing(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in topic.partition_indexes]
                answers.append(OffsetFetchGroupTopicResponse(topic_id=topic.topic_id, partitions=partitions))
                continue
            name = known
        partitions = _partitions(asked.group_id, name, stored.get(name), topic.partition_indexes, unstable)
        answers.append(OffsetFetchGroupTopicResponse(name=name, topic_id=topic.topic_id, partitions=partitions))
    return OffsetFetchGroupResponse(group_id=asked.group_id, topics=answers)


def _whole_topic(
    shard: GroupShard, topic: TopicOffsets, version: int, unstable: OffsetStore | None
) -> OffsetFetchGroupTopicResponse:
    partitions = _partitions(topic.group_id, topic.topic, topic, topic.values, unstable)
    topic_id = shard.topics.topic_id(topic.topic) if version >= TOPIC_IDS_SINCE else None
    return OffsetFetchGroupTopicResponse(name=topic.topic, topic_id=topic_id or ZERO_UUID, partitions=partitions)


def _partitions(
    group_id: str, name: str, topic: TopicOffsets | None, indexes: Iterable[int], unstable: OffsetStore | None
) -> list[OffsetFetchPartitionResponse]:
    if topic is None and unstable is None:
        return list(map(_nothing, indexes))
    values = topic.values if topic is not None else {}
    answers = []
    for index in indexes:
        value = values.get(index)
        if unstable is not None and unstable.is_pending(group_id, name, index):
            answers.append(_nothing(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
        elif value is None:
            answers.append(_nothing(index))
        else:
            found = decode_value(value)
            answers.append(
                OffsetFetchPartitionResponse(
                    partition_index=index,
                    committed_offset=found.offset,
                    committed_leader_epoch=found.leader_epoch,
                    metadata=found.metadata,
                )
            )
    return answers


@lru_cache(16_384)
def _nothing(index: int, error: int = ErrorCode.NONE) -> OffsetFetchPartitionResponse:
    """Cached, so never change it: a new group gets it for each of its partitions."""
    return OffsetFetchPartitionResponse(
        partition_index=index, committed_offset=_NO_OFFSET, metadata="", error_code=error
    )
