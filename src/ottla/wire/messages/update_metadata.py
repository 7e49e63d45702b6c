"""UpdateMetadata (6): the controller tells every broker which brokers are alive and the leader of each partition.

Racks since v2 (KIP-36), named listeners since v3 (KIP-103), offline replicas since v4 (KIP-112), grouped by topic and
fenced by broker epoch since v5 (KIP-380), topic ids since v7 (KIP-516). Gone in Kafka 4.
"""

from __future__ import annotations

from ottla.base.ids import Uuid
from ottla.wire.schema import INT32, Request, Response, Struct, array, boolean, int8, int16, int32, int64, string, uuid


class UpdateMetadataPartition(Struct):
    topic_name: str = string("0-4", ignorable=True)
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(INT32)
    zk_version: int = int32()
    replicas: list[int] = array(INT32)
    offline_replicas: list[int] = array(INT32, "4+", ignorable=True)


class UpdateMetadataTopic(Struct):
    topic_name: str = string()
    topic_id: Uuid = uuid("7+", ignorable=True)
    partition_states: list[UpdateMetadataPartition] = array(UpdateMetadataPartition)


class UpdateMetadataEndpoint(Struct):
    port: int = int32()
    host: str = string()
    listener: str = string("3+", ignorable=True)
    security_protocol: int = int16()


class UpdateMetadataBroker(Struct):
    """A live broker; v0 knows one address of it, later versions one a listener."""

    id: int = int32()
    v0_host: str = string("0", ignorable=True)
    v0_port: int = int32("0", ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = array(UpdateMetadataEndpoint, "1+", ignorable=True)
    rack: str | None = string("2+", nullable="2+", ignorable=True)


class UpdateMetadataRequest(Request, api_key=6, versions="0-8", flexible="6+"):
    controller_id: int = int32()
    is_k_raft_controller: bool = boolean("8+")
    type: int = int8("8+", tag=0)  # 0 unknown, 1 incremental, 2 full
    controller_epoch: int = int32()
    broker_epoch: int = int64("5+", default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartition] = array(UpdateMetadataPartition, "0-4")
    topic_states: list[UpdateMetadataTopic] = array(UpdateMetadataTopic, "5+")
    live_brokers: list[UpdateMetadataBroker] = array(UpdateMetadataBroker)


class UpdateMetadataResponse(Response, api_key=6, versions="0-8", flexible="6+"):
    error_code: int = int16()
