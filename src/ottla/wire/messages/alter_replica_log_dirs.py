"""AlterReplicaLogDirs (34): move a broker's replicas to other log directories of that broker (KIP-113)."""

from __future__ import annotations

from ottla.wire.schema import INT32, Request, Response, Struct, array, int16, int32, string


class AlterReplicaLogDirsTopic(Struct):
    name: str = string(key=True)
    partitions: list[int] = array(INT32)


class AlterReplicaLogDirsTarget(Struct):
    path: str = string(key=True)
    topics: list[AlterReplicaLogDirsTopic] = array(AlterReplicaLogDirsTopic)


class AlterReplicaLogDirsRequest(Request, api_key=34, versions="0-2", flexible="2+"):
    dirs: list[AlterReplicaLogDirsTarget] = array(AlterReplicaLogDirsTarget)


class AlterReplicaLogDirsPartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class AlterReplicaLogDirsTopicResponse(Struct):
    topic_name: str = string()
    partitions: list[AlterReplicaLogDirsPartitionResponse] = array(AlterReplicaLogDirsPartitionResponse)


class AlterReplicaLogDirsResponse(Response, api_key=34, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirsTopicResponse] = array(AlterReplicaLogDirsTopicResponse)
