"""TxnOffsetCommit (28): commit a group's offsets inside a transaction; they count once it commits.

Leader epochs since v2 (KIP-320), fencing by group member since v3 (KIP-447). Since v5 it also adds the group's offsets
to the transaction, without AddOffsetsToTxn (KIP-890).
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, int16, int32, int64, string


class TxnOffsetCommitPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable="0+")


class TxnOffsetCommitTopic(Struct):
    name: str = string()
    partitions: list[TxnOffsetCommitPartition] = array(TxnOffsetCommitPartition)


class TxnOffsetCommitRequest(Request, api_key=28, versions="0-5", flexible="3+"):
    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitTopic] = array(TxnOffsetCommitTopic)


class TxnOffsetCommitPartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class TxnOffsetCommitTopicResponse(Struct):
    name: str = string()
    partitions: list[TxnOffsetCommitPartitionResponse] = array(TxnOffsetCommitPartitionResponse)


class TxnOffsetCommitResponse(Response, api_key=28, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitTopicResponse] = array(TxnOffsetCommitTopicResponse)
