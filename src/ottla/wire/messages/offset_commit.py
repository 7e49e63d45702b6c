"""OffsetCommit (8): store the offsets of a group.

v0 commits to ZooKeeper, later versions to the offsets topic. A retention time of its own only in v2 to v4 (KIP-211),
leader epochs since v6 (KIP-320), static members since v7 (KIP-345), members of the consumer protocol since v9 and topic
ids for names since v10 (KIP-848).
"""

from __future__ import annotations

from ottla.base.ids import Uuid
from ottla.wire.schema import Request, Response, Struct, array, int16, int32, int64, string, uuid


class OffsetCommitPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    commit_timestamp: int = int64("1", default=-1)
    committed_metadata: str | None = string(nullable="0+")


class OffsetCommitTopic(Struct):
    name: str = string("0-9", ignorable=True)
    topic_id: Uuid = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitPartition] = array(OffsetCommitPartition)


class OffsetCommitRequest(Request, api_key=8, versions="0-10", flexible="8+"):
    group_id: str = string()
    generation_id_or_member_epoch: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("1+", ignorable=True)
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitTopic] = array(OffsetCommitTopic)


class OffsetCommitPartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitTopicResponse(Struct):
    name: str = string("0-9", ignorable=True)
    topic_id: Uuid = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitPartitionResponse] = array(OffsetCommitPartitionResponse)


class OffsetCommitResponse(Response, api_key=8, versions="0-10", flexible="8+"):
    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetCommitTopicResponse] = array(OffsetCommitTopicResponse)
