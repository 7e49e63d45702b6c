"""DescribeProducers (61): the idempotent and transactional producers a partition's leader remembers (KIP-664)."""

from __future__ import annotations

from ottla.wire.schema import INT32, Request, Response, Struct, array, int16, int32, int64, string


class DescribeProducersTopic(Struct):
    name: str = string()
    partition_indexes: list[int] = array(INT32)


class DescribeProducersRequest(Request, api_key=61, versions="0", flexible="0+"):
    topics: list[DescribeProducersTopic] = array(DescribeProducersTopic)


class ActiveProducer(Struct):
    producer_id: int = int64()
    producer_epoch: int = int32()  # an int16 everywhere else
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


class DescribeProducersPartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    active_producers: list[ActiveProducer] = array(ActiveProducer)


class DescribeProducersTopicResponse(Struct):
    name: str = string()
    partitions: list[DescribeProducersPartitionResponse] = array(DescribeProducersPartitionResponse)


class DescribeProducersResponse(Response, api_key=61, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    topics: list[DescribeProducersTopicResponse] = array(DescribeProducersTopicResponse)
