"""Metadata (3): the brokers of the cluster, and the leaders and replicas of partitions.

Topic creation can be declined since v4, leader epochs since v7 (KIP-320), authorized operations since v8 (KIP-430;
those of the cluster only until v10, KIP-700), topics by id since v12 (KIP-516; v10 and v11 carry ids that a client must
not ask by), an error for the whole request since v13 (KIP-1102).
"""

from __future__ import annotations

from ottla.base.ids import Uuid
from ottla.wire.schema import INT32, Request, Response, Struct, array, boolean, int16, int32, string, uuid


class MetadataTopic(Struct):
    topic_id: Uuid = uuid("10+", ignorable=True)
    name: str | None = string(nullable="10+")


class MetadataRequest(Request, api_key=3, versions="0-13", flexible="9+"):
    # All topics are asked for by null; in v0, which has no null, by the empty list.
    topics: list[MetadataTopic] | None = array(MetadataTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


class MetadataBroker(Struct):
    node_id: int = int32(key=True)
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="1+", default=None, ignorable=True)


class MetadataPartitionResponse(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    replica_nodes: list[int] = array(INT32)
    isr_nodes: list[int] = array(INT32)
    offline_replicas: list[int] = array(INT32, "5+", ignorable=True)


class MetadataTopicResponse(Struct):
    error_code: int = int16()
    name: str | None = string(key=True, nullable="12+")
    topic_id: Uuid = uuid("10+", ignorable=True)
    is_internal: bool = boolean("1+", ignorable=True)
    partitions: list[MetadataPartitionResponse] = array(MetadataPartitionResponse)
    # One bit per operation; the default means that they were not requested.
    topic_authorized_operations: int = int32("8+", default=-(2**31))


class MetadataResponse(Response, api_key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: int = int32("3+", ignorable=True)
    brokers: list[MetadataBroker] = array(MetadataBroker)
    cluster_id: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[MetadataTopicResponse] = array(MetadataTopicResponse)
    cluster_authorized_operations: int = int32("8-10", default=-(2**31))
    error_code: int = int16("13+", ignorable=True)
