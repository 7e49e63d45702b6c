"""OffsetFetch (9): the committed offsets of groups.

v0 reads from ZooKeeper, later versions from the offsets topic. All topics of a group since v2 (KIP-88), leader epochs
since v5 (KIP-320), waiting for pending transactions since v7 (KIP-447), several groups at once since v8 (KIP-709),
members of the consumer protocol since v9 and topic ids for names since v10 (KIP-848).
"""

from __future__ import annotations

from ottla.base.ids import Uuid
from ottla.wire.schema import INT32, Request, Response, Struct, array, boolean, int16, int32, int64, string, uuid


class OffsetFetchTopic(Struct):
    """Where the request is about one group."""

    name: str = string()
    partition_indexes: list[int] = array(INT32)


class OffsetFetchGroupTopic(Struct):
    name: str = string("8-9", ignorable=True)
    topic_id: Uuid = uuid("10+", ignorable=True)
    partition_indexes: list[int] = array(INT32)


class OffsetFetchGroup(Struct):
    group_id: str = string()
    member_id: str | None = string("9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = int32("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchGroupTopic] | None = array(OffsetFetchGroupTopic, nullable="0+")


class OffsetFetchRequest(Request, api_key=9, versions="0-10", flexible="6+"):
    group_id: str = string("0-7")
    # Null asks for every topic the group has committed; so it does in a group.
    topics: list[OffsetFetchTopic] | None = array(OffsetFetchTopic, "0-7", nullable="2-7")
    groups: list[OffsetFetchGroup] = array(OffsetFetchGroup, "8+")
    require_stable: bool = boolean("7+")


class OffsetFetchPartitionResponse(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("5+", default=-1, ignorable=True)
    metadata: str | None = string(nullable="0+")
    error_code: int = int16()


class OffsetFetchTopicResponse(Struct):
    """Where the response is about one group."""

    name: str = string()
    partitions: list[OffsetFetchPartitionResponse] = array(OffsetFetchPartitionResponse)


class OffsetFetchGroupTopicResponse(Struct):
    name: str = string("8-9", ignorable=True)
    topic_id: Uuid = uuid("10+", ignorable=True)
    partitions: list[OffsetFetchPartitionResponse] = array(OffsetFetchPartitionResponse)


class OffsetFetchGroupResponse(Struct):
    group_id: str = string()
    topics: list[OffsetFetchGroupTopicResponse] = array(OffsetFetchGroupTopicResponse)
    error_code: int = int16()


class OffsetFetchResponse(Response, api_key=9, versions="0-10", flexible="6+"):
    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetFetchTopicResponse] = array(OffsetFetchTopicResponse, "0-7")
    error_code: int = int16("2-7", ignorable=True)
    groups: list[OffsetFetchGroupResponse] = array(OffsetFetchGroupResponse, "8+")
