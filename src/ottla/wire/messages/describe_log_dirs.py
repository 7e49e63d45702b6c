"""DescribeLogDirs (35): the contents of a broker's log directories, and their sizes (KIP-113).

An error of the whole request since v3, the size of the volume since v4 (KIP-827), cordoned directories since v5
(KIP-1066).
"""

from __future__ import annotations

from ottla.wire.schema import INT32, Request, Response, Struct, array, boolean, int16, int32, int64, string


class DescribeLogDirsTopic(Struct):
    topic: str = string(key=True)
    partitions: list[int] = array(INT32)


class DescribeLogDirsRequest(Request, api_key=35, versions="0-5", flexible="2+"):
    topics: list[DescribeLogDirsTopic] | None = array(DescribeLogDirsTopic, nullable="0+")  # null asks for all


class DescribeLogDirsPartitionResponse(Struct):
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()  # a copy under way to this directory, which will replace the one it came from


class DescribeLogDirsTopicResponse(Struct):
    name: str = string()
    partitions: list[DescribeLogDirsPartitionResponse] = array(DescribeLogDirsPartitionResponse)


class DescribedLogDir(Struct):
    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopicResponse] = array(DescribeLogDirsTopicResponse)
    total_bytes: int = int64("4+", default=-1, ignorable=True)
    usable_bytes: int = int64("4+", default=-1, ignorable=True)
    is_cordoned: bool = boolean("5+", ignorable=True)


class DescribeLogDirsResponse(Response, api_key=35, versions="0-5", flexible="2+"):
    throttle_time_ms: int = int32()
    error_code: int = int16("3+", ignorable=True)
    results: list[DescribedLogDir] = array(DescribedLogDir)
