"""Produce (0): append record batches to partitions.

Record format v2 and transactions since v3 (KIP-98), zstd since v7 (KIP-110), errors of single records since v8
(KIP-467), the new leader in the answer since v10 (KIP-951), TRANSACTION_ABORTABLE since v11 and partitions that join a
transaction by being written to since v12 (KIP-890), topic ids for names since v13 (KIP-516).
"""

from __future__ import annotations

from ottla.base.ids import Uuid
from ottla.wire.schema import (
    Bytes,
    Request,
    Response,
    Struct,
    array,
    int16,
    int32,
    int64,
    nested,
    records,
    string,
    uuid,
)


class ProducePartition(Struct):
    index: int = int32()
    records: Bytes | None = records(nullable="0+")


class ProduceTopic(Struct):
    name: str = string("0-12", key=True, ignorable=True)
    topic_id: Uuid = uuid("13+", key=True, ignorable=True)
    partition_data: list[ProducePartition] = array(ProducePartition)


class ProduceRequest(Request, api_key=0, versions="0-13", flexible="9+"):
    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[ProduceTopic] = array(ProduceTopic)


class ProduceRecordError(Struct):
    """Which record of the batch made the broker refuse all of it."""

    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable="0+", default=None)


class ProduceLeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class ProducePartitionResponse(Struct):
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[ProduceRecordError] = array(ProduceRecordError, "8+", ignorable=True)
    error_message: str | None = string("8+", nullable="8+", default=None, ignorable=True)
    current_leader: ProduceLeaderIdAndEpoch | None = nested(ProduceLeaderIdAndEpoch, "10+", tag=0)


class ProduceTopicResponse(Struct):
    name: str = string("0-12", key=True, ignorable=True)
    topic_id: Uuid = uuid("13+", key=True, ignorable=True)
    partition_responses: list[ProducePartitionResponse] = array(ProducePartitionResponse)


class ProduceNodeEndpoint(Struct):
    node_id: int = int32(key=True)
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


class ProduceResponse(Response, api_key=0, versions="0-13", flexible="9+"):
    responses: list[ProduceTopicResponse] = array(ProduceTopicResponse)
    throttle_time_ms: int = int32("1+", ignorable=True)
    node_endpoints: list[ProduceNodeEndpoint] = array(ProduceNodeEndpoint, "10+", tag=0)
