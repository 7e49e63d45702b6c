"""ListOffsets (2): the offset of a partition at a time, at its beginning or at its end.

v0 answers a list of segment offsets, later versions one offset with its timestamp (KIP-79). Isolation level since v2
(KIP-98), leader epochs since v4 (KIP-320), a time limit for answers from remote storage since v10 (KIP-1075).
"""

from __future__ import annotations

from ottla.wire.schema import INT64, Request, Response, Struct, array, int8, int16, int32, int64, string


class ListOffsetsPartition(Struct):
    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    # Negative ones ask for a place: -1 latest, -2 earliest, -3 that of the highest timestamp (v7, KIP-734),
    # -4 earliest on local disk (v8, KIP-405), -5 latest in remote storage (v9, KIP-1005), -6 earliest that is not in
    # remote storage yet (v11, KIP-1023).
    timestamp: int = int64()
    max_num_offsets: int = int32("0", default=1)


class ListOffsetsTopic(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Request, api_key=2, versions="0-11", flexible="6+"):
    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+", ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    old_style_offsets: list[int] = array(INT64, "0")
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Response, api_key=2, versions="0-11", flexible="6+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
