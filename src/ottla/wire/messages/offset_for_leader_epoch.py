"""OffsetForLeaderEpoch (23): ask a leader where an epoch ended, to truncate what the leader does not have.

Followers use it to truncate (KIP-101), consumers to detect truncation. The answer names the epoch it is about since v1
(KIP-279), the request is fenced by the leader epoch the client knows since v2 (KIP-320), and a replica sends its id
since v3 (KIP-392).
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, int16, int32, int64, string


class OffsetForLeaderEpochPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    leader_epoch: int = int32()


class OffsetForLeaderEpochTopic(Struct):
    topic: str = string(key=True)
    partitions: list[OffsetForLeaderEpochPartition] = array(OffsetForLeaderEpochPartition)


class OffsetForLeaderEpochRequest(Request, api_key=23, versions="0-4", flexible="4+"):
    # -1 is a consumer; -2 one that may see beyond the high watermark, which is what followers were before v3.
    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderEpochTopic] = array(OffsetForLeaderEpochTopic)


class OffsetForLeaderEpochPartitionResponse(Struct):
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32("1+", default=-1, ignorable=True)
    end_offset: int = int64(default=-1)


class OffsetForLeaderEpochTopicResponse(Struct):
    topic: str = string(key=True)
    partitions: list[OffsetForLeaderEpochPartitionResponse] = array(OffsetForLeaderEpochPartitionResponse)


class OffsetForLeaderEpochResponse(Response, api_key=23, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[OffsetForLeaderEpochTopicResponse] = array(OffsetForLeaderEpochTopicResponse)
