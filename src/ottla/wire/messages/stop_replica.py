"""StopReplica (5): the controller tells a broker to stop replicating partitions and, where asked, to delete them.

Grouped by topic and fenced by broker epoch since v1 (KIP-380); leader epoch and deletion a partition since v3
(KIP-570). Each of the three layouts has a field of its own. Gone in Kafka 4.
"""

from __future__ import annotations

from ottla.wire.schema import INT32, Request, Response, Struct, array, boolean, int16, int32, int64, string


class StopReplicaUngroupedPartition(Struct):
    topic_name: str = string()
    partition_index: int = int32()


class StopReplicaTopic(Struct):
    name: str = string()
    partition_indexes: list[int] = array(INT32)


class StopReplicaPartitionState(Struct):
    partition_index: int = int32()
    leader_epoch: int = int32(default=-1)
    delete_partition: bool = boolean()


class StopReplicaTopicState(Struct):
    topic_name: str = string()
    partition_states: list[StopReplicaPartitionState] = array(StopReplicaPartitionState)


class StopReplicaRequest(Request, api_key=5, versions="0-4", flexible="2+"):
    controller_id: int = int32()
    is_k_raft_controller: bool = boolean("4+")
    controller_epoch: int = int32()
    broker_epoch: int = int64("1+", default=-1, ignorable=True)
    delete_partitions: bool = boolean("0-2")
    ungrouped_partitions: list[StopReplicaUngroupedPartition] = array(StopReplicaUngroupedPartition, "0")
    topics: list[StopReplicaTopic] = array(StopReplicaTopic, "1-2")
    topic_states: list[StopReplicaTopicState] = array(StopReplicaTopicState, "3+")


class StopReplicaPartitionResponse(Struct):
    topic_name: str = string()
    partition_index: int = int32()
    error_code: int = int16()


class StopReplicaResponse(Response, api_key=5, versions="0-4", flexible="2+"):
    error_code: int = int16()
    partition_errors: list[StopReplicaPartitionResponse] = array(StopReplicaPartitionResponse)
