"""CreateTopics (19): create topics, or only check whether they could be (v1 on, KIP-108).

Partition count and replication factor left to the broker's defaults since v4 (KIP-464), the resulting configuration in
the answer since v5 (KIP-525), THROTTLING_QUOTA_EXCEEDED since v6 (KIP-599), the new topic id since v7 (KIP-516).
"""

from __future__ import annotations

from ottla.base.ids import Uuid
from ottla.wire.schema import INT32, Request, Response, Struct, array, boolean, int8, int16, int32, string, uuid


class CreatableReplicaAssignment(Struct):
    partition_index: int = int32(key=True)
    broker_ids: list[int] = array(INT32)


class CreatableTopicConfig(Struct):
    name: str = string(key=True)
    value: str | None = string(nullable="0+")


class CreatableTopic(Struct):
    """Partitions and replicas are counted, or assigned by hand and the counts -1."""

    name: str = string(key=True)
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Request, api_key=19, versions="0-7", flexible="5+"):
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60_000)
    validate_only: bool = boolean("1+")


class CreatedTopicConfig(Struct):
    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8(default=-1, ignorable=True)
    is_sensitive: bool = boolean()


class CreatedTopic(Struct):
    name: str = string(key=True)
    topic_id: Uuid = uuid("7+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("1+", nullable="0+", ignorable=True)
    # Why the configuration is withheld from a client that may create the topic but not read its configuration.
    topic_config_error_code: int = int16("5+", tag=0, ignorable=True)
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: list[CreatedTopicConfig] | None = array(CreatedTopicConfig, "5+", nullable="5+", ignorable=True)


class CreateTopicsResponse(Response, api_key=19, versions="0-7", flexible="5+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[CreatedTopic] = array(CreatedTopic)
