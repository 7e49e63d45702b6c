"""A broker's config: Kafka 3.9's keys with its defaults and rules, and a few of our own, from a file, the environment
and the command line.

What differs from Kafka, and nothing else does:

- Logs lie in `<ottla.data.dir>/logs` unless log.dirs or log.dir says otherwise; in Kafka, in /tmp/kafka-logs.
- zookeeper.connect need not be set: without it the coordination tree is embedded, and the broker is alone.
- An authorizer, listeners with TLS or SASL, TLS and ACLs for ZooKeeper, replica selectors other than Kafka's own and
  brokers older than 3.0 are refused: what they promise is not there yet, and a broker must not pretend.
- An unknown key is refused; Kafka warns. Keys of plugins and of single listeners are let through.
- `ottla start` without a file or listeners listens on 127.0.0.1 only; Kafka on every address.
- A listener on 0.0.0.0 is advertised by the machine's name, as one without a host is; Kafka refuses it.
- Kafka's own quorum (KRaft) is not there; of its settings node.id is read, and its listeners are not opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from ottla.base.config import ConfigError, ConfigSchema
from ottla.broker.configs.keys.cluster import CLUSTER, CLUSTER_DORMANT, QUOTAS_DORMANT
from ottla.broker.configs.keys.groups import (
    GROUPS,
    GROUPS_DORMANT,
    INTERNAL_TOPICS,
    TRANSACTIONS,
    TRANSACTIONS_DORMANT,
)
from ottla.broker.configs.keys.kraft import KRAFT_DORMANT
from ottla.broker.configs.keys.network import NETWORK, NETWORK_DORMANT
from ottla.broker.configs.keys.own import OWN
from ottla.broker.configs.keys.remote_storage import REMOTE_STORAGE_DORMANT
from ottla.broker.configs.keys.rules import release
from ottla.broker.configs.keys.security import SASL_DORMANT, SECURITY_DORMANT, SSL_DORMANT
from ottla.broker.configs.keys.zookeeper import ZOOKEEPER, ZOOKEEPER_DORMANT
from ottla.broker.configs.listeners import (
    LOOPBACK_LISTENER,
    Listener,
    moved_listener,
    own_host_name,
    parse_listeners,
    parse_protocols,
)
from ottla.broker.configs.sources import Setting, collect_settings
from ottla.log.broker_config import LOG_BROKER_CONFIG
from ottla.log.config import LogConfig
from ottla.zookeeper.client.connect_string import ConnectString

_DORMANT: Final = [
    *NETWORK_DORMANT,
    *CLUSTER_DORMANT,
    *GROUPS_DORMANT,
    *TRANSACTIONS_DORMANT,
    *QUOTAS_DORMANT,
    *SECURITY_DORMANT,
    *SASL_DORMANT,
    *SSL_DORMANT,
    *ZOOKEEPER_DORMANT,
    *KRAFT_DORMANT,
    *REMOTE_STORAGE_DORMANT,
]
_LOG_DORMANT: Final = (
    "log.flush.offset.checkpoint.interval.ms",
    "log.flush.start.offset.checkpoint.interval.ms",
    "log.local.retention.bytes",
    "log.local.retention.ms",
    "log.message.format.version",
    "producer.id.expiration.check.interval.ms",
)

BROKER_CONFIG: Final = ConfigSchema(
    "broker",
    sorted(
        [
            *NETWORK,
            *CLUSTER,
            *INTERNAL_TOPICS,
            *GROUPS,
            *TRANSACTIONS,
            *OWN,
            *ZOOKEEPER,
            *_DORMANT,
            *(
                replace(key, rule=release) if key.name == "log.message.format.version" else key
                for key in LOG_BROKER_CONFIG
            ),
        ],
        key=lambda key: key.name,
    ),
)
_ONLY_EMPTY: Final = {"authorizer.class.name"}
WITHOUT_EFFECT: Final = frozenset((*(key.name for key in _DORMANT), *_LOG_DORMANT)) - _ONLY_EMPTY
"""Keys that are accepted and checked, and change nothing yet."""

_OLDEST_PROTOCOL: Final = (3, 0)
_SELECTORS: Final = {"", "org.apache.kafka.common.replica.LeaderSelector"}
_RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

_PLUGINS: Final = re.compile(
    r"(listener\.name|rsm\.config|rlmm\.config|config\.providers|authorizer\.zookeeper)\..+"
    r"|config\.providers|super\.users|allow\.everyone\.if\.no\.acl\.found"
)
"""Keys that Kafka hands on to plugins, or to one listener, without knowing them."""


class BrokerConfig:
    """The value of every key. Immutable."""

    def __init__(self, given: Mapping[str, str]) -> None:
        """From the keys that are set, as text. A wrong key or value raises `ConfigError`."""
        self.given: Mapping[str, str] = MappingProxyType(_with_both_ids(given))
        known = {key: text for key, text in self.given.items() if not _PLUGINS.fullmatch(key)}
        self._values = BROKER_CONFIG.parse(known)
        protocols = self._protocols()
        controllers = self._quorum_listeners()
        every = parse_listeners("listeners", self["listeners"], protocols, distinct_ports=True)
        self.listeners: tuple[Listener, ...] = tuple(each for each in every if each.name not in controllers)
        self._check_protocols()
        self._advertised = self._parse_advertised(protocols, controllers)
        self.inter_broker_listener: str = self._inter_broker_listener(protocols)
        """The name of the listener that brokers use among themselves."""
        self.control_plane_listener: str | None = self._control_plane_listener(protocols)
        """The name of the listener for requests of the controller, if it has one of its own."""
        self.zookeeper: ConnectString | None = self._zookeeper()
        """The servers of the cluster's tree; None if the tree is embedded."""
        self.log_dirs: tuple[Path, ...] = self._log_dirs()
        self.connection_limits: Mapping[str, int] = MappingProxyType(self._connection_limits())
        """How many connections an address may have where that is not max.connections.per.ip."""
        self._check_together()
        self._check_supported()

    def __getitem__(self, key: str) -> Any:
        """A key's value, in its type; None where it has none."""
        try:
            return self._values[key]
        except KeyError:
            BROKER_CONFIG[key]  # says what may be meant
            raise

    def __repr__(self) -> str:
        return f"BrokerConfig({', '.join(sorted(self.given))})"  # without values: some are passwords

    @property
    def rack(self) -> str | None:
        rack: str | None = self["broker.rack"]
        return rack

    @property
    def selects_replicas_by_rack(self) -> bool:
        """Whether a consumer may be sent to a follower in its own rack (KIP-392)."""
        return bool(self["replica.selector.class"] == _RACK_AWARE_SELECTOR)

    @property
    def tree_path(self) -> Path:
        """The file of the embedded coordination tree. It is kept beside the logs where only those were given a place; a
        start looks in the other log directories, too (`data_directory.place_of_tree`)."""
        if self.tree_is_given:
            return Path(self["ottla.tree.file"]).absolute()
        beside_logs = self._places_logs and "ottla.data.dir" not in self.given
        return (self.log_dirs[0] if beside_logs else self._data_dir) / "zookeeper.db"

    @property
    def tree_is_given(self) -> bool:
        return self["ottla.tree.file"] is not None

    @cached_property
    def advertised_listeners(self) -> tuple[Listener, ...]:
        """What clients are told. A listener on every address is told by the machine's name; one with port 0 has a port
        only when it is open."""
        return tuple(
            replace(each, host=own_host_name()) if each.is_everywhere else each
            for each in (self.listeners if self._advertised is None else self._advertised)
        )

    @property
    def without_effect(self) -> tuple[str, ...]:
        """Keys that are set and change nothing, in order."""
        return tuple(sorted(key for key in self.given if key in WITHOUT_EFFECT or key not in BROKER_CONFIG))

    def changed(self, changes: Mapping[str, str]) -> BrokerConfig:
        """This config with some keys set otherwise."""
        return BrokerConfig({**self.given, **changes})

    @property
    def _data_dir(self) -> Path:
        return Path(self["ottla.data.dir"]).absolute()

    @property
    def _places_logs(self) -> bool:
        return self["log.dirs"] is not None or self["log.dir"] is not None

    def _protocols(self) -> dict[str, str]:
        key = "listener.security.protocol.map"
        protocols = parse_protocols(key, self[key])
        if key not in self.given:
            protocols.update((name, "PLAINTEXT") for name in self._names("controller.listener.names"))
        return protocols

    def _quorum_listeners(self) -> frozenset[str]:
        """Listeners that only Kafka's quorum would open."""
        roles, names = self["process.roles"], self._names("controller.listener.names")
        if roles and "broker" not in roles:
            raise ConfigError(
                "process.roles", "there is no controller apart from a broker: add broker, or leave it out"
            )
        if names and not roles:
            raise ConfigError("controller.listener.names", "it must be empty where process.roles is")
        return names

    def _names(self, key: str) -> frozenset[str]:
        return frozenset(name.strip().upper() for name in (self[key] or "").split(",") if name.strip())

    def _parse_advertised(
        self, protocols: Mapping[str, str], controllers: frozenset[str]
    ) -> tuple[Listener, ...] | None:
        key = "advertised.listeners"
        if self[key] is None:
            return None
        every = parse_listeners(key, self[key], protocols, distinct_ports=False)
        found = tuple(each for each in every if each.name not in controllers)
        if any(each.host in ("0.0.0.0", "::") for each in found):
            raise ConfigError(key, "no client can reach 0.0.0.0: name an address of this machine")
        unknown = {each.name for each in found} - {each.name for each in self.listeners}
        if unknown:
            raise ConfigError(key, f"{', '.join(sorted(unknown))} is not among the listeners")
        return found

    def _inter_broker_listener(self, protocols: Mapping[str, str]) -> str:
        key = "inter.broker.listener.name"
        if self[key] is not None:
            if "security.inter.broker.protocol" in self.given:
                raise ConfigError(key, "only one of it and security.inter.broker.protocol can be set")
            name: str = self[key].upper()
            if name not in protocols:
                raise ConfigError(key, f"{name} is not in listener.security.protocol.map")
        else:
            key = "security.inter.broker.protocol"
            name = self[key]
        if name not in self._told:
            raise ConfigError(key, f"{name} is not an advertised listener: {', '.join(self._told) or 'none'}")
        return name

    def _control_plane_listener(self, protocols: Mapping[str, str]) -> str | None:
        key = "control.plane.listener.name"
        if self[key] is None:
            return None
        name: str = self[key].upper()
        if name not in protocols:
            raise ConfigError(key, f"{name} is not in listener.security.protocol.map")
        if name not in self._told:
            raise ConfigError(key, f"{name} is not an advertised listener: {', '.join(self._told) or 'none'}")
        if name == self.inter_broker_listener:
            raise ConfigError(key, f"{name} is the listener for connections between brokers: name another one")
        return name

    def _zookeeper(self) -> ConnectString | None:
        if not self["zookeeper.connect"]:
            return None
        try:
            return ConnectString.parse(self["zookeeper.connect"])
        except ValueError as error:
            raise ConfigError("zookeeper.connect", str(error)) from None

    @property
    def _told(self) -> list[str]:
        """The names of the advertised listeners."""
        return [each.name for each in (self.listeners if self._advertised is None else self._advertised)]

    def _log_dirs(self) -> tuple[Path, ...]:
        if not self._places_logs:
            return (self._data_dir / "logs",)
        key = "log.dirs" if self["log.dirs"] is not None else "log.dir"
        found = tuple(Path(part.strip()).absolute() for part in self[key].split(",") if part.strip())
        if not found:
            raise ConfigError(key, "it names no folder")
        if len(set(found)) < len(found):
            raise ConfigError(key, "it names a folder twice")
        return found

    def _connection_limits(self) -> dict[str, int]:
        key = "max.connections.per.ip.overrides"
        limits = {}
        for pair in filter(None, (part.strip() for part in self[key].split(","))):
            address, _, limit = pair.rpartition(":")
            if not re.fullmatch(r"[0-9a-zA-Z\-%._:]+", address) or not limit.strip().isdecimal():
                raise ConfigError(key, f"{pair!r} is not address:connections")
            limits[address.strip("[]")] = int(limit)
        return limits

    def _check_protocols(self) -> None:
        """Before anything else is said of listeners: no other advice helps."""
        for each in self.listeners:
            if each.protocol != "PLAINTEXT":
                reason = f"listener {each.name} uses {each.protocol}, which is not supported yet"
                raise ConfigError("listeners", f"{reason}: use PLAINTEXT, and keep it on a network that you trust")

    def _check_together(self) -> None:
        """Kafka's rules between keys, in ZooKeeper mode."""
        for key, holds, reason in _rules(self):
            if not holds:
                raise ConfigError(key, reason)
        LogConfig.from_properties({}, self.given)

    def _check_supported(self) -> None:
        """What must not be passed over in silence: somebody relies on it."""
        if self.zookeeper is not None:
            for key in ("zookeeper.ssl.client.enable", "zookeeper.set.acl", "zookeeper.metadata.migration.enable"):
                if self[key]:
                    raise ConfigError(key, "it is not supported: leave it out, or set it to false")
            if self["process.roles"]:
                raise ConfigError("process.roles", "a broker uses ZooKeeper or a quorum: leave out one of the two")
        version = self["inter.broker.protocol.version"]
        if tuple(map(int, re.findall(r"\d+", version)[:2])) < _OLDEST_PROTOCOL:
            reason = f"brokers older than 3.0 cannot be in one cluster with this one, and {version} is older"
            raise ConfigError("inter.broker.protocol.version", f"{reason}: upgrade them first, or leave it out")
        if (selector := self["replica.selector.class"] or "") not in {*_SELECTORS, _RACK_AWARE_SELECTOR}:
            raise ConfigError("replica.selector.class", f"{selector!r} is not {_RACK_AWARE_SELECTOR}: use it, or none")
        if self["authorizer.class.name"]:
            raise ConfigError(
                "authorizer.class.name", "authorizers are not supported yet: without it, everyone can do everything"
            )
        if self["remote.log.storage.system.enable"]:
            reason = (
                "tiered storage is not supported: records in it could not be read. Leave it out, or set it to false"
            )
            raise ConfigError("remote.log.storage.system.enable", reason)
        if self["process.roles"] and "controller" not in self["process.roles"]:
            raise ConfigError("process.roles", "a quorum elsewhere cannot be joined: add controller, or leave it out")
        if len(self["controller.quorum.voters"]) > 1:
            raise ConfigError("controller.quorum.voters", "a quorum of several cannot be joined: leave it out")


def _with_both_ids(given: Mapping[str, str]) -> dict[str, str]:
    """broker.id and node.id are one: it suffices to set either."""
    names = ("broker.id", "node.id")
    number = next((given[name] for name in names if name in given), None)
    return {**given, **({} if number is None else {name: given.get(name, number) for name in names})}


def _rules(config: BrokerConfig) -> Iterable[tuple[str, bool, str]]:
    """The key that is wrong, whether the rule holds, and what to say if it does not."""
    broker_id, most = config["broker.id"], config["reserved.broker.max.id"]
    yield "node.id", config["node.id"] == broker_id, f"{config['node.id']} is not the broker.id, which is {broker_id}"
    if config["broker.id.generation.enable"]:
        yield "broker.id", -1 <= broker_id <= most, f"{broker_id} is not between -1 and reserved.broker.max.id, {most}"
    else:
        yield "broker.id", broker_id >= 0, "it must be set, as broker.id.generation.enable is false"
    for key in ("log.roll.ms", "log.roll.jitter.ms"):
        least = 1 if key == "log.roll.ms" else 0
        yield key, config[key] is None or config[key] >= least, f"{config[key]} is less than {least}"
    for key in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        if config[key] is not None:
            yield key, config[key] != 0, "0 would keep nothing: use -1 for no limit, or 1 or more"
            break
    threads, buffer = config["log.cleaner.threads"], config["log.cleaner.dedupe.buffer.size"]
    yield "log.cleaner.threads", threads > 0, "it must be 1 or more"
    yield "log.cleaner.dedupe.buffer.size", buffer // threads > 2**20, f"{buffer} is not above 1 MiB a cleaner thread"
    wait, lag, timeout = (
        config["replica.fetch.wait.max.ms"],
        config["replica.lag.time.max.ms"],
        config["replica.socket.timeout.ms"],
    )
    yield "replica.fetch.wait.max.ms", wait <= timeout, f"{wait} is more than replica.socket.timeout.ms, {timeout}"
    yield "replica.fetch.wait.max.ms", wait <= lag, f"{wait} is more than replica.lag.time.max.ms, {lag}"
    queued, largest = config["queued.max.request.bytes"], config["socket.request.max.bytes"]
    yield (
        "queued.max.request.bytes",
        queued <= 0 or queued >= largest,
        f"{queued} is less than socket.request.max.bytes, {largest}",
    )
    yield (
        "max.connections.per.ip",
        config["max.connections.per.ip"] > 0 or bool(config.connection_limits),
        "0 lets nobody in: set max.connections.per.ip.overrides too",
    )
    idle, delay = config["connections.max.idle.ms"], config["connection.failed.authentication.delay.ms"]
    yield (
        "connections.max.idle.ms",
        idle < 0 or delay < idle,
        f"{idle} is not more than connection.failed.authentication.delay.ms, {delay}",
    )


def load_config(
    path: Path | None,
    overrides: Sequence[str],
    environ: Mapping[str, str],
    *,
    host: str | None = None,
    port: int | None = None,
    is_private: bool = False,
) -> BrokerConfig:
    """The config of a properties file, overridden by the environment, overridden by `key=value` from the command line.
    `host` and `port` change only that of the listener. With `is_private` a broker that is given neither a file nor
    listeners accepts connections from this machine only. What is wrong raises `ConfigError`, which also says who set
    it."""
    settings = collect_settings(path, overrides, environ, BROKER_CONFIG)
    if is_private and path is None and not {"listeners", "advertised.listeners"} & settings.keys():
        settings["listeners"] = Setting("listeners", LOOPBACK_LISTENER, "the default")
    if host is not None or port is not None:
        listeners = settings["listeners"].text if "listeners" in settings else BROKER_CONFIG["listeners"].default
        names = settings["controller.listener.names"].text if "controller.listener.names" in settings else ""
        ignored = {name.strip().upper() for name in names.split(",")}
        moved = moved_listener(listeners, ignored, host=host, port=port)
        settings["listeners"] = Setting("listeners", moved, "--host" if host is not None else "--port")
    return config_of(settings)


def config_of(settings: Mapping[str, Setting]) -> BrokerConfig:
    """What is wrong raises `ConfigError`, which also says who set it."""
    try:
        return BrokerConfig({key: setting.text for key, setting in settings.items()})
    except ConfigError as error:
        setting = settings.get(error.key)
        if setting is None:
            raise
        raise ConfigError(error.key, f"{error.reason} (from {setting.origin})") from None
