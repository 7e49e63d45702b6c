"""AlterPartition (56): a leader asks the controller to change the in-sync replicas of its partitions (KIP-497).

Recovery after an unclean election since v1 (KIP-704), topic ids for names since v2 (KIP-841), the epochs of the
replicas, so that a restarted one is not taken for in sync, since v3 (KIP-903).
"""

from __future__ import annotations

from ottla.base.ids import Uuid
from ottla.wire.schema import INT32, Request, Response, Struct, array, int8, int16, int32, int64, string, uuid


class AlterPartitionBrokerState(Struct):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class AlterPartitionPartition(Struct):
    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = array(INT32, "0-2")
    new_isr_with_epochs: list[AlterPartitionBrokerState] = array(AlterPartitionBrokerState, "3+")
    leader_recovery_state: int = int8("1+")  # 0: recovered, 1: still recovering from an unclean election
    partition_epoch: int = int32()  # in ZooKeeper mode the version of the partition's state znode


class AlterPartitionTopic(Struct):
    topic_name: str = string("0-1", ignorable=True)
    topic_id: Uuid = uuid("2+", ignorable=True)
    partitions: list[AlterPartitionPartition] = array(AlterPartitionPartition)


class AlterPartitionRequest(Request, api_key=56, versions="0-3", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[AlterPartitionTopic] = array(AlterPartitionTopic)


class AlterPartitionPartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(INT32)
    leader_recovery_state: int = int8("1+", ignorable=True)
    partition_epoch: int = int32()


class AlterPartitionTopicResponse(Struct):
    topic_name: str = string("0-1", ignorable=True)
    topic_id: Uuid = uuid("2+", ignorable=True)
    partitions: list[AlterPartitionPartitionResponse] = array(AlterPartitionPartitionResponse)


class AlterPartitionResponse(Response, api_key=56, versions="0-3", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[AlterPartitionTopicResponse] = array(AlterPartitionTopicResponse)
