"""What Kafka 3.9's nodes hold, as values: read from every version that Kafka reads, written as it writes them.

Each kind has `decode(path, data)`, which raises `ZnodeError` with the path and what is wrong, and `encode`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ottla.base.ids import TopicPartition, Uuid, format_uuid, parse_uuid
from ottla.zookeeper.node_json import (
    Fields,
    ZnodeError,
    in_properties_order,
    in_scala_order,
    is_int32,
    shown,
    write_json,
)

_ENDPOINT = re.compile(r"(?P<listener>[^:/]+)://(?:\[(?P<ipv6>[^\]]*)\]|(?P<host>[^:\]]*)):(?P<port>-?\d+)")
_PLAINTEXT: Final = "PLAINTEXT"


# --- the cluster and its controller ---------------------------------------------------------------------------------


def encode_cluster_id(cluster_id: str) -> bytes:
    return write_json({"version": "1", "id": cluster_id})


def decode_cluster_id(path: str, data: bytes) -> str:
    return Fields.parse(path, data).text("id")


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """Which broker is the controller. `kraft_epoch` is -1 unless a cluster is on its way to KRaft."""

    broker_id: int
    timestamp_ms: int
    kraft_epoch: int = -1

    def encode(self) -> bytes:
        return write_json(
            {
                "version": 2,
                "brokerid": self.broker_id,
                "timestamp": str(self.timestamp_ms),
                "kraftControllerEpoch": self.kraft_epoch,
            }
        )

    @classmethod
    def decode(cls, path: str, data: bytes) -> ControllerRegistration:
        fields = Fields.parse(path, data)
        return cls(
            fields.integer("brokerid"),
            fields.long_in_text("timestamp"),
            fields.integer("kraftControllerEpoch") if fields.has("kraftControllerEpoch") else -1,
        )


def encode_controller_epoch(epoch: int) -> bytes:
    return b"%d" % epoch


def decode_controller_epoch(path: str, data: bytes) -> int:
    if not re.fullmatch(rb"-?[0-9]{1,10}", data) or not is_int32(int(data)):
        raise ZnodeError(path, f"the node must hold an integer, and it holds {shown(data)}")
    return int(data)


@dataclass(frozen=True, slots=True)
class FeatureLevels:
    """Features that the whole cluster has switched on, with the level of each."""

    levels: Mapping[str, int] = field(default_factory=dict)
    is_enabled: bool = True

    def encode(self) -> bytes:
        features = {name: {"max_version_level": level} for name, level in self.levels.items()}
        return write_json({"features": features, "version": 2, "status": int(self.is_enabled)})

    @classmethod
    def decode(cls, path: str, data: bytes) -> FeatureLevels:
        fields = Fields.parse(path, data)
        version, status = fields.integer("version"), fields.integer("status")
        if version not in (1, 2):
            raise fields.error(f"the field version must hold 1 or 2, and it holds {version}")
        if status not in (0, 1):
            raise fields.error(f"the field status must hold 0 or 1, and it holds {status}")
        features = fields.object("features")
        levels = {name: features.object(name).integer("max_version_level") for name in features.names()}
        return cls(levels, status == 1)


# --- brokers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a broker can be reached by those who use that listener."""

    listener: str
    security_protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A broker that is alive. `features` are the versions it can do, lowest and highest. `may_have_lost_data`: its
    machine went down without stopping it, so that records that were not flushed may be missing. Kafka does not know
    that field, and ignores it."""

    endpoints: tuple[Endpoint, ...]
    timestamp_ms: int
    rack: str | None = None
    jmx_port: int = -1
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    may_have_lost_data: bool = False

    def encode(self) -> bytes:
        # For clients too old to know endpoints: the first that they could use.
        plaintext = next((each for each in self.endpoints if each.security_protocol == _PLAINTEXT), None)
        return write_json(
            {
                "features": {
                    name: {"min_version": lowest, "max_version": highest}
                    for name, (lowest, highest) in self.features.items()
                },
                "listener_security_protocol_map": {each.listener: each.security_protocol for each in self.endpoints},
                "endpoints": [str(each) for each in self.endpoints],
                **({} if self.rack is None else {"rack": self.rack}),
                "jmx_port": self.jmx_port,
                "port": -1 if plaintext is None else plaintext.port,
                "host": None if plaintext is None else plaintext.host,
                "version": 5,
                "timestamp": str(self.timestamp_ms),
                **({"may_have_lost_data": 1} if self.may_have_lost_data else {}),
            }
        )

    @classmethod
    def decode(cls, path: str, data: bytes) -> BrokerRegistration:
        fields = Fields.parse(path, data)
        version = fields.integer("version")
        if version < 1:
            raise fields.error(f"the field version must hold 1 or more, and it holds {version}")
        endpoints: tuple[Endpoint, ...]
        if version == 1:
            endpoints = (Endpoint(_PLAINTEXT, _PLAINTEXT, fields.text("host"), fields.integer("port")),)
        else:
            endpoints = _decode_endpoints(fields)
        features = fields.optional_object("features")
        return cls(
            endpoints,
            fields.long_in_text("timestamp") if fields.has("timestamp") else -1,
            fields.text("rack") if fields.has("rack") else None,
            fields.integer("jmx_port"),
            {name: _decode_version_range(features.object(name)) for name in features.names()},
            fields.has("may_have_lost_data"),
        )


def _decode_endpoints(fields: Fields) -> tuple[Endpoint, ...]:
    protocols = fields.optional_object("listener_security_protocol_map")
    endpoints = []
    for text in fields.texts("endpoints"):
        match = _ENDPOINT.fullmatch(text)
        if match is None:
            raise fields.error(f"the endpoint {shown(text)} is not of the form LISTENER://host:port")
        listener = match["listener"]
        # Before listeners had names they were called by their protocol.
        protocol = protocols.text(listener) if fields.has("listener_security_protocol_map") else listener
        host = match["host"] if match["ipv6"] is None else match["ipv6"]
        endpoints.append(Endpoint(listener, protocol, host, int(match["port"])))
    return tuple(endpoints)


def _decode_version_range(fields: Fields) -> tuple[int, int]:
    return fields.integer("min_version"), fields.integer("max_version")


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """Ids that a broker may give to producers, first and last included."""

    broker_id: int
    first: int
    last: int

    def encode(self) -> bytes:
        return write_json(
            {"version": 1, "broker": self.broker_id, "block_start": str(self.first), "block_end": str(self.last)}
        )

    @classmethod
    def decode(cls, path: str, data: bytes) -> ProducerIdBlock:
        fields = Fields.parse(path, data)
        first, last = fields.long_in_text("block_start"), fields.long_in_text("block_end")
        return cls(fields.integer("broker"), first, last)


# --- topics and partitions ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """The brokers that have a partition, the preferred leader first; while they change, which come and which go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """A topic's id, if it is not older than ids, and its partitions by number."""

    topic_id: Uuid | None
    partitions: Mapping[int, ReplicaAssignment]

    def encode(self) -> bytes:
        parts = in_scala_order({str(index): each for index, each in self.partitions.items()})
        adding = in_scala_order({index: each.adding for index, each in parts.items() if each.adding})
        removing = in_scala_order({index: each.removing for index, each in parts.items() if each.removing})
        return write_json(
            {
                "partitions": {index: each.replicas for index, each in parts.items()},
                **({} if self.topic_id is None else {"topic_id": format_uuid(self.topic_id)}),
                "adding_replicas": adding,
                "removing_replicas": removing,
                "version": 3,
            }
        )

    @classmethod
    def decode(cls, path: str, data: bytes) -> TopicAssignment:
        """By the numbers of partitions. Version 1 has no changing replicas, version 2 no id."""
        fields = Fields.parse(path, data)
        topic_id = None
        if fields.has("topic_id"):
            text = fields.text("topic_id")
            try:
                topic_id = parse_uuid(text)
            except ValueError as error:
                raise fields.error(f"the field topic_id: {error}") from None
        replicas = fields.object("partitions")
        adding, removing = fields.optional_object("adding_replicas"), fields.optional_object("removing_replicas")
        partitions = {}
        for name in replicas.names():
            if not re.fullmatch(r"[0-9]{1,10}", name) or not is_int32(int(name)):
                raise fields.error(f"{shown(name)} is not the number of a partition")
            partitions[int(name)] = ReplicaAssignment(
                replicas.integers(name),
                adding.integers(name) if adding.has(name) else (),
                removing.integers(name) if removing.has(name) else (),
            )
        return cls(topic_id, dict(sorted(partitions.items())))


@dataclass(frozen=True, slots=True)
class PartitionLeader:
    """Who leads a partition, and who has all of it. A leader is recovering after an unclean election."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    is_recovering: bool = False

    def encode(self) -> bytes:
        return write_json(
            {
                "controller_epoch": self.controller_epoch,
                "leader": self.leader,
                "version": 1,
                **({"leader_recovery_state": 1} if self.is_recovering else {}),
                "leader_epoch": self.leader_epoch,
                "isr": self.isr,
            }
        )

    @classmethod
    def decode(cls, path: str, data: bytes) -> PartitionLeader:
        fields = Fields.parse(path, data)
        recovery = fields.integer("leader_recovery_state") if fields.has("leader_recovery_state") else 0
        if recovery not in (0, 1):
            raise fields.error(f"the field leader_recovery_state must hold 0 or 1, and it holds {recovery}")
        return cls(
            fields.integer("leader"),
            fields.integer("leader_epoch"),
            fields.integers("isr"),
            fields.integer("controller_epoch"),
            recovery == 1,
        )


# --- configs --------------------------------------------------------------------------------------------------------


def encode_config(config: Mapping[str, str]) -> bytes:
    """Of a topic, a broker, a user, …: what it sets itself."""
    return write_json({"version": 1, "config": in_properties_order(config)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Nothing, where a node holds nothing."""
    if not data:
        return {}
    config = Fields.parse(path, data).optional_object("config")
    return {name: config.text(name) for name in config.names()}


def encode_config_change(entity_path: str) -> bytes:
    """Whose config was changed: its path below `/config`."""
    return write_json({"version": 2, "entity_path": entity_path})


def decode_config_change(path: str, data: bytes) -> str:
    fields = Fields.parse(path, data)
    match fields.integer("version"):
        case 1:
            return f"{fields.text('entity_type')}/{fields.text('entity_name')}"
        case 2:
            return fields.text("entity_path")
        case version:
            raise fields.error(f"the field version must hold 1 or 2, and it holds {version}")


# --- what is asked of the controller, and told to it ----------------------------------------------------------------


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Whose ISR has changed, or whose preferred leader is to lead: both nodes hold partitions, and nothing else."""
    objects = [{"topic": each.topic, "partition": each.partition} for each in partitions]
    return write_json({"version": 1, "partitions": objects})


def decode_partitions(path: str, data: bytes) -> tuple[TopicPartition, ...]:
    return tuple(_decode_partition(each) for each in Fields.parse(path, data).objects("partitions"))


def encode_reassignment(replicas: Mapping[TopicPartition, tuple[int, ...]]) -> bytes:
    """The brokers that are to have each partition."""
    partitions = [
        {"topic": each.topic, "partition": each.partition, "replicas": brokers} for each, brokers in replicas.items()
    ]
    return write_json({"version": 1, "partitions": partitions})


def decode_reassignment(path: str, data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    objects = Fields.parse(path, data).objects("partitions")
    return {_decode_partition(each): each.integers("replicas") for each in objects}


def encode_log_dir_failure(broker_id: int) -> bytes:
    """A broker has lost a log directory."""
    return write_json({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_failure(path: str, data: bytes) -> int:
    return Fields.parse(path, data).integer("broker")


def _decode_partition(fields: Fields) -> TopicPartition:
    return TopicPartition(fields.text("topic"), fields.integer("partition"))


# --- consumers of Kafka 0.8 -----------------------------------------------------------------------------------------


class ConsumerPattern(StrEnum):
    """What the keys of a consumer's subscription are."""

    STATIC = "static"
    """Names of topics."""
    WHITE_LIST = "white_list"
    """One regular expression: topics whose whole name matches."""
    BLACK_LIST = "black_list"
    """One regular expression: all other topics."""


@dataclass(frozen=True, slots=True)
class ConsumerRegistration:
    """A member of a group, with the number of its threads for each topic, or for each that a pattern selects."""

    streams: Mapping[str, int]
    pattern: ConsumerPattern
    timestamp_ms: int

    def encode(self) -> bytes:
        return write_json(
            {
                "version": 1,
                "subscription": self.streams,
                "pattern": self.pattern,
                "timestamp": str(self.timestamp_ms),
            }
        )

    @classmethod
    def decode(cls, path: str, data: bytes) -> ConsumerRegistration:
        """Like Kafka, takes any other pattern for names of topics."""
        fields = Fields.parse(path, data)
        pattern, subscription = fields.text("pattern"), fields.object("subscription")
        streams = {name: subscription.integer(name) for name in subscription.names()}
        timestamp_ms = fields.long_in_text("timestamp") if fields.has("timestamp") else -1
        is_known = pattern in tuple(ConsumerPattern)
        return cls(streams, ConsumerPattern(pattern) if is_known else ConsumerPattern.STATIC, timestamp_ms)


def encode_consumer_offset(offset: int) -> bytes:
    """The next offset that the group reads of a partition."""
    return b"%d" % offset


def decode_consumer_offset(path: str, data: bytes) -> int:
    if not re.fullmatch(rb"-?[0-9]{1,19}", data) or not -(2**63) <= int(data) < 2**63:
        raise ZnodeError(path, f"the node must hold an offset, and it holds {shown(data)}")
    return int(data)


def encode_consumer_owner(thread_id: str) -> bytes:
    """A member's id with the number of its thread: `<member>-0`."""
    return thread_id.encode()


def decode_consumer_owner(path: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ZnodeError(
            path, f"the node must hold the id of a consumer's thread, and it holds {shown(data)}"
        ) from None
