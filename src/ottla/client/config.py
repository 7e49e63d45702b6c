"""Client configs: validated, typed, with Kafka's names.

Configs have Kafka's names (`linger.ms`) or Python's (`linger_ms`), and come from a mapping, keyword arguments, or both;
keyword arguments take precedence. Values are Python values, or strings as in a properties file; None means the default.
The defaults are those of Kafka 4.3. Attributes have Python's names and Kafka's units: `config.linger_ms`.

An unknown config, an invalid value, or configs that contradict each other raise `ConfigError`. Configs that only the
Java client supports are in `config_keys.elsewhere`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from ottla.base import config as base
from ottla.base.config import ConfigKey, ConfigSchema, ValueType
from ottla.client.config_keys.administering import ADMINISTERING
from ottla.client.config_keys.connection import CONNECTION
from ottla.client.config_keys.consuming import CONSUMING
from ottla.client.config_keys.elsewhere import HARMLESS_VALUES, OWNERS, REFUSED, WITHOUT_EFFECT
from ottla.client.config_keys.producing import PRODUCING
from ottla.client.errors import ArgumentTypeError, ConfigError
from ottla.net.client_connection import Address, parse_addresses
from ottla.records import Compression

_logger = logging.getLogger(__name__)

COMMON_CONFIG: Final = ConfigSchema("client", CONNECTION)
PRODUCER_CONFIG: Final = ConfigSchema("producer", [*CONNECTION, *PRODUCING])
CONSUMER_CONFIG: Final = ConfigSchema("consumer", [*CONNECTION, *CONSUMING])
ADMIN_CONFIG: Final = ConfigSchema("admin", [*CONNECTION, *ADMINISTERING])
_SCHEMAS: Final = (PRODUCER_CONFIG, CONSUMER_CONFIG, ADMIN_CONFIG)

_ALL_REPLICAS: Final = -1
_IDEMPOTENT_IN_FLIGHT_MAX: Final = 5
_SHORT_NAMES: Final = {"interceptors": "interceptor.classes", "partitioner": "partitioner.class"}
"""Our names for Kafka configs that name Java classes."""

_WORDS: Final = {
    ValueType.BOOLEAN: "boolean",
    ValueType.INT: "whole number",
    ValueType.LONG: "whole number",
    ValueType.STRING: "text",
}
_JAVA_ASSIGNORS: Final = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
_JAVA_PARTITIONERS: Final = {"org.apache.kafka.clients.producer.RoundRobinPartitioner": "roundrobin"}

Partitioner = Callable[..., int]
Coder = Callable[[str, Any], Any]
"""A serializer or deserializer: a function of the topic and the value, or the bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonConfig:
    """The configs of all clients. Created by `parse`."""

    SCHEMA: ClassVar[ConfigSchema] = COMMON_CONFIG

    bootstrap_servers: tuple[Address, ...]
    client_id: str
    connections_max_idle_ms: int
    metadata_max_age_ms: int
    metadata_recovery_strategy: str
    receive_buffer_bytes: int
    send_buffer_bytes: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int

    @classmethod
    def parse(cls, settings: Mapping[str, object] | None = None, keywords: Mapping[str, object] | None = None) -> Self:
        """Validates these settings."""
        if settings is not None and not isinstance(settings, Mapping):
            hint = f"; did you mean bootstrap_servers={settings!r}?" if isinstance(settings, str) else ""
            raise ArgumentTypeError(f"settings must be a mapping, not {type(settings).__name__}{hint}")
        given = _by_key(cls.SCHEMA, settings or {}) | _by_key(cls.SCHEMA, keywords or {}, are_keywords=True)
        values = {key.name: _converted(key, key.default) for key in cls.SCHEMA}
        values |= {name: _value(cls.SCHEMA[name], value, spelled) for name, (spelled, value) in given.items()}
        if not values["bootstrap.servers"]:
            reason = "is required: set the address of a broker, for example localhost:9092"
            raise ConfigError("bootstrap.servers", reason)
        values["client.id"] = values["client.id"] or cls._default_client_id()
        cls._fit_together(values, frozenset(given))
        return cls(**{_attribute(name): value for name, value in values.items()})

    @classmethod
    def _default_client_id(cls) -> str:
        return "ottla" if cls is CommonConfig else f"ottla-{cls.SCHEMA.kind}"

    @classmethod
    def _fit_together(cls, values: dict[str, Any], given: frozenset[str]) -> None:
        """Sets values that depend on others, and rejects values that contradict each other."""

    @property
    def api_timeout_ms(self) -> int:
        """Timeout of one operation, including retries."""
        return 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(CommonConfig):
    """The configs of a producer."""

    SCHEMA: ClassVar[ConfigSchema] = PRODUCER_CONFIG

    acks: int
    """0, 1, or -1 for all in-sync replicas."""
    batch_size: int
    buffer_memory: int
    compression_type: Compression
    compression_gzip_level: int | None
    compression_lz4_level: int | None
    compression_zstd_level: int | None
    delivery_timeout_ms: int
    enable_idempotence: bool
    interceptors: tuple[Any, ...]
    key_serializer: str | Coder | None
    value_serializer: str | Coder | None
    linger_ms: int
    max_block_ms: int
    max_in_flight_requests_per_connection: int
    max_request_size: int
    metadata_max_idle_ms: int
    partitioner: Partitioner | str | None
    """None for the default partitioner, "roundrobin", or a function."""
    partitioner_adaptive_partitioning_enable: bool
    partitioner_ignore_keys: bool
    retries: int
    transaction_timeout_ms: int
    transaction_two_phase_commit_enable: bool
    transactional_id: str | None

    @property
    def compression_level(self) -> int | None:
        """Compression level of the chosen codec; None if it is not set."""
        return {
            Compression.GZIP: self.compression_gzip_level,
            Compression.LZ4: self.compression_lz4_level,
            Compression.ZSTD: self.compression_zstd_level,
        }.get(self.compression_type)

    @property
    def api_timeout_ms(self) -> int:
        return self.max_block_ms

    @classmethod
    def _fit_together(cls, values: dict[str, Any], given: frozenset[str]) -> None:
        _fit_transactions(values, given)
        if values["enable.idempotence"]:
            against = _against_idempotence(values)
            if against and values["transactional.id"] is not None:
                raise ConfigError("transactional.id", f"cannot be combined with {against}")
            if against and "enable.idempotence" in given:
                raise ConfigError("enable.idempotence", f"true cannot be combined with {against}")
            values["enable.idempotence"] = not against
        shortest_ms = values["linger.ms"] + values["request.timeout.ms"]
        if values["delivery.timeout.ms"] < shortest_ms:
            if "delivery.timeout.ms" in given:
                reason = f"is less than linger.ms + request.timeout.ms, which is {shortest_ms}"
                raise ConfigError("delivery.timeout.ms", f"{values['delivery.timeout.ms']} {reason}")
            values["delivery.timeout.ms"] = shortest_ms


def _fit_transactions(values: Mapping[str, Any], given: frozenset[str]) -> None:
    if values["transactional.id"] is None:
        if values["transaction.two.phase.commit.enable"]:
            raise ConfigError("transaction.two.phase.commit.enable", "true needs a transactional.id")
        return
    if not values["enable.idempotence"]:
        raise ConfigError("transactional.id", "cannot be combined with enable.idempotence=false: leave that out")
    if values["transaction.two.phase.commit.enable"] and "transaction.timeout.ms" in given:
        reason = "cannot be combined with transaction.two.phase.commit.enable=true: these transactions have no timeout"
        raise ConfigError("transaction.timeout.ms", reason)


def _against_idempotence(values: Mapping[str, Any]) -> str | None:
    if values["acks"] != _ALL_REPLICAS:
        return f"acks={values['acks']}: it needs acks=all"
    if values["retries"] == 0:
        return "retries=0: it needs at least one"
    in_flight = values["max.in.flight.requests.per.connection"]
    if in_flight > _IDEMPOTENT_IN_FLIGHT_MAX:
        return f"max.in.flight.requests.per.connection={in_flight}: the maximum is {_IDEMPOTENT_IN_FLIGHT_MAX}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(CommonConfig):
    """The configs of a consumer."""

    SCHEMA: ClassVar[ConfigSchema] = CONSUMER_CONFIG

    allow_auto_create_topics: bool
    auto_commit_interval_ms: int
    auto_offset_reset: str
    """earliest, latest, none, or by_duration: and a duration."""
    check_crcs: bool
    client_rack: str
    default_api_timeout_ms: int
    dual_commit_enabled: bool
    enable_auto_commit: bool
    exclude_internal_topics: bool
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    group_id: str | None
    group_instance_id: str | None
    group_protocol: str
    """classic, consumer or zookeeper."""
    group_remote_assignor: str | None
    heartbeat_interval_ms: int
    interceptors: tuple[Any, ...]
    isolation_level: str
    """read_committed or read_uncommitted."""
    key_deserializer: str | Coder | None
    value_deserializer: str | Coder | None
    max_decompressed_batch_bytes: int
    max_partition_fetch_bytes: int
    max_poll_interval_ms: int
    max_poll_records: int
    offsets_storage: str
    """zookeeper or kafka; only of the zookeeper protocol."""
    partition_assignment_strategy: tuple[Any, ...]
    """Names of assignors, or assignors."""
    queued_max_bytes: int
    rebalance_backoff_ms: int
    rebalance_max_retries: int
    session_timeout_ms: int
    zookeeper_connect: str | None
    zookeeper_connection_timeout_ms: int
    zookeeper_session_timeout_ms: int

    @property
    def api_timeout_ms(self) -> int:
        return self.default_api_timeout_ms

    @classmethod
    def _fit_together(cls, values: dict[str, Any], given: frozenset[str]) -> None:
        if not values["group.id"]:
            if "enable.auto.commit" in given and values["enable.auto.commit"]:
                raise ConfigError("enable.auto.commit", "true needs a group.id")
            values["enable.auto.commit"] = False
        if values["zookeeper.connection.timeout.ms"] is None:
            values["zookeeper.connection.timeout.ms"] = values["zookeeper.session.timeout.ms"]
        if values["group.protocol"] == "zookeeper":
            _fit_zookeeper(values, given)
            return
        for name in sorted(given & _ZOOKEEPER_ONLY):
            raise ConfigError(name, "needs group.protocol=zookeeper")
        if values["group.protocol"] == "consumer":
            for name in ("heartbeat.interval.ms", "session.timeout.ms", "partition.assignment.strategy"):
                if name in given:
                    raise ConfigError(name, "cannot be set with group.protocol=consumer: the broker sets it")
            return
        if values["group.remote.assignor"] is not None:
            raise ConfigError("group.remote.assignor", "needs group.protocol=consumer")
        if values["heartbeat.interval.ms"] >= values["session.timeout.ms"]:
            reason = f"must be less than session.timeout.ms, which is {values['session.timeout.ms']}"
            raise ConfigError("heartbeat.interval.ms", f"{values['heartbeat.interval.ms']} {reason}")


_ZOOKEEPER_ONLY: Final = frozenset(
    {
        "dual.commit.enabled",
        "offsets.storage",
        "rebalance.backoff.ms",
        "rebalance.max.retries",
        "zookeeper.connect",
        "zookeeper.connection.timeout.ms",
        "zookeeper.session.timeout.ms",
    }
)
_ZOOKEEPER_STRATEGIES: Final = ("range", "roundrobin")
_GROUP_IN_ZOOKEEPER: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]+")
"""What Kafka 0.8 allows: the name of a node."""


def _fit_zookeeper(values: dict[str, Any], given: frozenset[str]) -> None:
    if values["zookeeper.connect"] is None:
        reason = "is required with group.protocol=zookeeper: set the ZooKeeper servers, for example localhost:2181"
        raise ConfigError("zookeeper.connect", reason)
    group_id = values["group.id"]
    if group_id and not _GROUP_IN_ZOOKEEPER.fullmatch(group_id):
        reason = "cannot be used with group.protocol=zookeeper: use letters, digits, '.', '_' and '-'"
        raise ConfigError("group.id", f"{group_id!r} {reason}")
    reasons = {
        "group.instance.id": "ZooKeeper groups have no static members",
        "group.remote.assignor": "it needs group.protocol=consumer",
        "heartbeat.interval.ms": "set zookeeper.session.timeout.ms",
        "session.timeout.ms": "set zookeeper.session.timeout.ms",
    }
    for name, reason in reasons.items():
        if name in given:
            raise ConfigError(name, f"cannot be set with group.protocol=zookeeper: {reason}")
    if "partition.assignment.strategy" not in given:
        values["partition.assignment.strategy"] = ("range",)
    strategies = values["partition.assignment.strategy"]
    if len(strategies) != 1 or strategies[0] not in _ZOOKEEPER_STRATEGIES:
        reason = f"must be one of {', '.join(_ZOOKEEPER_STRATEGIES)} with group.protocol=zookeeper"
        raise ConfigError("partition.assignment.strategy", reason)
    if values["offsets.storage"] == "zookeeper":
        if "dual.commit.enabled" in given and values["dual.commit.enabled"]:
            raise ConfigError("dual.commit.enabled", "true needs offsets.storage=kafka")
        values["dual.commit.enabled"] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(CommonConfig):
    """The configs of an admin."""

    SCHEMA: ClassVar[ConfigSchema] = ADMIN_CONFIG

    default_api_timeout_ms: int
    retries: int

    @property
    def api_timeout_ms(self) -> int:
        return self.default_api_timeout_ms


# Names.


def _attribute(key: str) -> str:
    for short, name in _SHORT_NAMES.items():
        if name == key:
            return short
    return key.replace(".", "_")


def _by_key(
    schema: ConfigSchema, settings: Mapping[str, object], *, are_keywords: bool = False
) -> dict[str, tuple[str, object]]:
    """Values by Kafka's names, with the spelling used. None values are left out."""
    found: dict[str, tuple[str, object]] = {}
    for spelled, value in settings.items():
        if not isinstance(spelled, str):
            raise ConfigError(repr(spelled), "the name of a config must be a str")
        name = spelled.replace("_", ".")
        name = _SHORT_NAMES.get(name, name)
        if value is None and (name in schema or name in OWNERS):
            continue
        if name in found:
            raise ConfigError(spelled, f"is set twice, also as {found[name][0]}")
        if name in schema:
            found[name] = (spelled, value)
        else:
            _take_foreign(schema, spelled, name, value, as_keyword=are_keywords or "_" in spelled)
    return found


def _take_foreign(schema: ConfigSchema, spelled: str, name: str, value: object, *, as_keyword: bool) -> None:
    """Handles a config that this client does not have: rejects it, unless Kafka has it and it is harmless."""
    if schema.kind not in OWNERS.get(name, ()) and schema is not COMMON_CONFIG:
        raise ConfigError(spelled, _unknown(schema, name, as_keyword=as_keyword))
    if name in HARMLESS_VALUES:
        harmless, reason = HARMLESS_VALUES[name]
        if str(value).lower() != harmless:
            raise ConfigError(spelled, f"{value!r} cannot be used: {reason}")
    elif name in REFUSED:
        raise ConfigError(spelled, f"cannot be set: {REFUSED[name]}")
    elif name in WITHOUT_EFFECT:
        _logger.warning("%s has no effect here: %s", spelled, WITHOUT_EFFECT[name])
    else:
        raise ConfigError(spelled, _unknown(schema, name, as_keyword=as_keyword))


def _unknown(schema: ConfigSchema, name: str, *, as_keyword: bool) -> str:
    owners = [one.kind for one in _SCHEMAS if name in one] or sorted(OWNERS.get(name, ()))
    if owners:
        return f"unknown {schema.kind} config; only {' and '.join(f'{owner}s' for owner in owners)} have it"
    nearest = schema.nearest(name)
    if nearest is None:
        return f"unknown {schema.kind} config; see docs/reference/client-config.md for all of them"
    return f"unknown {schema.kind} config; did you mean {_attribute(nearest) if as_keyword else nearest}?"


# Values.


def _value(key: ConfigKey, given: object, spelled: str) -> Any:
    try:
        return _converted(key, _checked(key, given))
    except (base.ConfigError, ValueError) as error:
        reason = error.reason if isinstance(error, base.ConfigError) else str(error)
        raise ConfigError(spelled, reason) from None


def _converted(key: ConfigKey, value: Any) -> Any:
    return _CONVERSIONS[key.name](value) if key.name in _CONVERSIONS else value


def _checked(key: ConfigKey, given: object) -> Any:
    if isinstance(given, str):
        return key.parse(given)
    match key.type:
        case ValueType.CLASS:
            value = given
        case ValueType.LIST:
            value = tuple(given) if isinstance(given, Iterable) else (given,)
        case ValueType.BOOLEAN if isinstance(given, bool):
            value = given
        case ValueType.INT | ValueType.LONG | ValueType.STRING if type(given) is int:
            return key.parse(str(given))
        case _:
            raise ValueError(f"{given!r} is not a {_WORDS[key.type]}")
    wrong = key.rule(value)
    if wrong is not None:
        raise ValueError(wrong)
    return value


def _addresses(given: tuple[object, ...]) -> tuple[Address, ...]:
    addresses: list[Address] = []
    for one in given:
        addresses += [one] if isinstance(one, Address) else parse_addresses(str(one))
    return tuple(dict.fromkeys(addresses))


def _assignors(given: tuple[object, ...]) -> tuple[object, ...]:
    assignors = tuple(_JAVA_ASSIGNORS.get(one, one) if isinstance(one, str) else one for one in given)
    names = tuple(_JAVA_ASSIGNORS.values())
    for one in assignors:
        if isinstance(one, str) and one not in names:
            raise ValueError(f"{one!r} is neither one of {', '.join(names)} nor an assignor")
        if isinstance(one, type):
            raise ValueError(f"{one.__qualname__} is a class: pass an instance, {one.__qualname__}(…)")
    if not assignors:
        raise ValueError(f"is empty: use one or more of {', '.join(names)}")
    return assignors


def _partitioner(given: object) -> object:
    if not isinstance(given, str):
        return given
    name = _JAVA_PARTITIONERS.get(given, given)
    if name != "roundrobin":
        raise ValueError(f"{given!r} is not a partitioner: use roundrobin or a function")
    return name


_CONVERSIONS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "acks": lambda value: _ALL_REPLICAS if value == "all" else int(value),
    "auto.offset.reset": str.lower,
    "bootstrap.servers": _addresses,
    "compression.type": lambda value: Compression[value.upper()],
    "group.protocol": str.lower,
    "metadata.recovery.strategy": str.lower,
    "offsets.storage": str.lower,
    "partition.assignment.strategy": _assignors,
    "partitioner.class": _partitioner,
}
"""Converts the value of a key in a file to that of the attribute."""
