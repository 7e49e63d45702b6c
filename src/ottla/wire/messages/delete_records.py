"""DeleteRecords (21): move the beginning of partitions up to an offset (KIP-107)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, int16, int32, int64, string


class DeleteRecordsPartition(Struct):
    partition_index: int = int32()
    # The first offset to keep; -1 for the high watermark.
    offset: int = int64()


class DeleteRecordsTopic(Struct):
    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


class DeleteRecordsRequest(Request, api_key=21, versions="0-2", flexible="2+"):
    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


class DeleteRecordsPartitionResponse(Struct):
    partition_index: int = int32(key=True)
    low_watermark: int = int64()
    error_code: int = int16()


class DeleteRecordsTopicResponse(Struct):
    name: str = string(key=True)
    partitions: list[DeleteRecordsPartitionResponse] = array(DeleteRecordsPartitionResponse)


class DeleteRecordsResponse(Response, api_key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResponse] = array(DeleteRecordsTopicResponse)
