"""LeaderAndIsr (4): the controller tells a broker which partitions it leads and which it follows.

Partitions grouped by topic and fenced by broker epoch since v2 (KIP-380), reassignments since v3 (KIP-455), topic ids
since v5 (KIP-516), recovery after an unclean election since v6 (KIP-704). Gone in Kafka 4.
"""

from __future__ import annotations

from ottla.base.ids import Uuid
from ottla.wire.schema import INT32, Request, Response, Struct, array, boolean, int8, int16, int32, int64, string, uuid


class LeaderAndIsrPartition(Struct):
    topic_name: str = string("0-1", ignorable=True)
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(INT32)
    partition_epoch: int = int32()
    replicas: list[int] = array(INT32)
    adding_replicas: list[int] = array(INT32, "3+", ignorable=True)
    removing_replicas: list[int] = array(INT32, "3+", ignorable=True)
    is_new: bool = boolean("1+", ignorable=True)
    leader_recovery_state: int = int8("6+")  # 0 recovered, 1 recovering


class LeaderAndIsrTopic(Struct):
    topic_name: str = string()
    topic_id: Uuid = uuid("5+", ignorable=True)
    partition_states: list[LeaderAndIsrPartition] = array(LeaderAndIsrPartition)


class LeaderAndIsrLiveLeader(Struct):
    broker_id: int = int32()
    host_name: str = string()
    port: int = int32()


class LeaderAndIsrRequest(Request, api_key=4, versions="0-7", flexible="4+"):
    controller_id: int = int32()
    is_k_raft_controller: bool = boolean("7+")
    controller_epoch: int = int32()
    broker_epoch: int = int64("2+", default=-1, ignorable=True)
    type: int = int8("5+")  # 0 unknown, 1 incremental, 2 full: replicas that a full one leaves out are strays
    ungrouped_partition_states: list[LeaderAndIsrPartition] = array(LeaderAndIsrPartition, "0-1")
    topic_states: list[LeaderAndIsrTopic] = array(LeaderAndIsrTopic, "2+")
    live_leaders: list[LeaderAndIsrLiveLeader] = array(LeaderAndIsrLiveLeader)


class LeaderAndIsrPartitionResponse(Struct):
    topic_name: str = string("0-4", ignorable=True)
    partition_index: int = int32()
    error_code: int = int16()


class LeaderAndIsrTopicResponse(Struct):
    topic_id: Uuid = uuid(key=True)
    partition_errors: list[LeaderAndIsrPartitionResponse] = array(LeaderAndIsrPartitionResponse)


class LeaderAndIsrResponse(Response, api_key=4, versions="0-7", flexible="4+"):
    error_code: int = int16()
    partition_errors: list[LeaderAndIsrPartitionResponse] = array(LeaderAndIsrPartitionResponse, "0-4")
    topics: list[LeaderAndIsrTopicResponse] = array(LeaderAndIsrTopicResponse, "5+")
