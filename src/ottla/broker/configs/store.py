"""Configs that change while the broker runs: those of topics, of this broker, and of all brokers. They are stored in
the coordination tree in Kafka's format.

A topic's own setting takes precedence, then this broker's, then that for all brokers, then the file's, then the
default. A change is checked as a whole, together with the unchanged settings, before any of it is written.
`group_configs` does the same for groups.

Any broker can change the configs of topics, of all brokers, and of groups. It writes the node and a notification in one
transaction, and the others read the node again (`change_listener`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from ottla.base.config import ConfigError, ConfigKey
from ottla.base.config_changes import changes_of
from ottla.base.coordination import (
    BadVersionError,
    Check,
    ConnectionLossError,
    Coordination,
    Create,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
    Znode,
)
from ottla.base.error_codes import ErrorCode
from ottla.broker.configs.broker_config import BROKER_CONFIG, BrokerConfig
from ottla.broker.configs.group_configs import GroupConfigs
from ottla.broker.configs.keys.update_modes import DYNAMIC_ONLY, UpdateMode, update_mode
from ottla.broker.configs.nodes import (
    NO_SETTINGS,
    Change,
    Settings,
    alter_settings,
    make_parents,
    notification,
    settings_in,
    settings_write,
)
from ottla.broker.requests.api import BrokerError
from ottla.log.config import LogConfig
from ottla.zookeeper.node_json import ZnodeError
from ottla.zookeeper.paths import DEFAULT_ENTITY, ConfigKind, config_root, parse_entity_name
from ottla.zookeeper.paths import config as config_path
from ottla.zookeeper.paths import topic as topic_path
from ottla.zookeeper.znodes import decode_config

_logger = logging.getLogger(__name__)

_SPARE_LOG_CONFIGS: Final = 100
"""How many parsed configs are kept that no topic uses."""
_TRANSACTION_BYTES: Final = 512 * 1024
"""ZooKeeper refuses more than 1 MiB."""
_WRITE_BYTES: Final = 300
"""Of one topic in a transaction, without its name and data."""
UNREADABLE: Final[Settings] = MappingProxyType(
    {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
)
"""What applies to a topic whose node cannot be read: nobody knows how long its records are to be kept."""
NOT_WHILE_RUNNING: Final = frozenset({"advertised.listeners", "listener.security.protocol.map", "listeners"})
"""Kafka opens and closes listeners when these change."""
_THREADS: Final = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)
"""Numbers that one change can at most double or halve."""


def broker_key(name: str) -> ConfigKey:
    """A key that can be set for a broker in the tree, including those that cannot be set in a file."""
    return DYNAMIC_ONLY[name] if name in DYNAMIC_ONLY else BROKER_CONFIG[name]


class ConfigStore:
    """Owned by the loop. `on_topic_change` is called with a topic whose configs changed, `on_broker_change` with the
    broker keys that changed."""

    def __init__(self, coordination: Coordination, config: BrokerConfig, broker_id: int) -> None:
        self.static = config
        self.broker_id = broker_id
        self.effective = config
        """The broker's config, with dynamic changes applied."""
        self.for_broker: Settings = NO_SETTINGS
        """Settings in the tree for this broker only."""
        self.for_all_brokers: Settings = NO_SETTINGS
        self.groups = GroupConfigs(coordination, config)
        self._dynamic: dict[str, Any] = {key.name: key.default for key in DYNAMIC_ONLY}
        """The current values of keys that cannot be set in the file."""
        self.on_topic_change: Callable[[str], None] = lambda _: None
        self.on_broker_change: Callable[[frozenset[str]], None] = lambda _: None
        self._coordination = coordination
        self._topics: dict[str, Settings] = {}
        self._log_configs: dict[frozenset[tuple[str, str]], LogConfig] = {}
        """Parsed configs by the topic's settings: most topics have none."""
        self._changing = asyncio.Lock()

    async def load(self) -> None:
        """Reads all settings; again after a session expired, as changes may have been missed. Raises `ZnodeError` if a
        node of this broker or of a group cannot be read."""
        async with self._changing:
            await self._read_brokers()
            names = await self._coordination.children(config_root(ConfigKind.TOPICS))
            await self._read_topics({*names, *self._topics})
        await self.groups.load()

    async def _read_brokers(self) -> None:
        paths = [self._broker_path(self.broker_id), self._broker_path(None)]
        nodes = await self._coordination.get_many(paths)
        for_broker, for_all_brokers = (
            settings_in(path, node, broker_key) for path, node in zip(paths, nodes, strict=True)
        )
        try:
            merged = self._merged(for_all_brokers, for_broker)
        except ConfigError as error:
            _logger.error("%s and %s contradict each other and are ignored: %s", *paths, error)
            return
        self.for_broker, self.for_all_brokers = for_broker, for_all_brokers
        self._become(merged)

    async def learn_topics(self, names: Collection[str]) -> list[str]:
        """Reads what topics set themselves, unless they are known. A topic that another broker created comes without
        notification: to be called before the first log of a topic is created, and before its configs are described.
        Returns the topics that are not in the tree, as far as this broker's ZooKeeper server knows. It may be behind
        the controller's: then they have settings that cannot be read yet."""
        if all(name in self._topics for name in names):
            return []
        async with self._changing:
            unknown = [name for name in names if name not in self._topics]
            # First: the settings of a topic are written before it, or with it.
            nodes = await self._coordination.get_many([topic_path(name) for name in unknown])
            there = {name: node is not None for name, node in zip(unknown, nodes, strict=True)}
            await self._read_topics([name for name in unknown if there[name]], are_there=True)
        return [name for name in unknown if not there[name]]

    async def _read_topics(self, names: Iterable[str], *, are_there: bool = False) -> None:
        """`are_there`: the topics exist. Others may have been deleted: a topic without a node is not known afterwards,
        so that its node is read again for a new topic of that name."""
        paths = {name: config_path(ConfigKind.TOPICS, name) for name in names}
        nodes = await self._coordination.get_many(tuple(paths.values()))
        for (name, path), node in zip(paths.items(), nodes, strict=True):
            if node is None and not are_there:
                if name in self._topics:
                    self.note_topic(name, NO_SETTINGS)
                    self.forget_topic(name)
                continue
            try:
                settings = NO_SETTINGS if node is None else decode_config(path, node.data)
            except ZnodeError as error:
                settings = self._topics.get(name, UNREADABLE)
                what = "no records are deleted" if settings is UNREADABLE else "the last known ones apply"
                _logger.error(
                    "the configs of topic %s cannot be read: %s; until they are set again, %s", name, error, what
                )
            is_new = name not in self._topics
            self.note_topic(name, settings)
            if is_new and settings:
                self.on_topic_change(name)

    async def reread(self, entity: str) -> None:
        """The node of an entity has changed, for example `topics/orders`. Entities without an effect are ignored."""
        kind, _, name = entity.partition("/")
        match kind:
            case ConfigKind.TOPICS:
                async with self._changing:
                    await self._read_topics([name])
            case ConfigKind.BROKERS if name in (str(self.broker_id), DEFAULT_ENTITY):
                async with self._changing:
                    await self._read_brokers()
            case ConfigKind.GROUPS:
                await self.groups.reread(parse_entity_name(name))

    def current(self, key: str) -> Any:
        """The current value of a broker key."""
        if key in DYNAMIC_ONLY:
            text = self.for_broker.get(key, self.for_all_brokers.get(key))
            return DYNAMIC_ONLY[key].default if text is None else DYNAMIC_ONLY[key].parse(text)
        return self.effective[key]

    # --- topics -----------------------------------------------------------------------------------------------------

    def note_topic(self, name: str, configs: Settings) -> None:
        """The topic is there, and sets these itself."""
        before = self._topics.get(name)
        if before == configs:
            return
        if configs is not UNREADABLE:
            configs = MappingProxyType(dict(configs)) if configs else NO_SETTINGS
        self._topics[name] = configs
        if before is not None:
            if len(self._log_configs) > len(self._topics) + _SPARE_LOG_CONFIGS:
                self._log_configs.clear()
            self.on_topic_change(name)

    def forget_topic(self, name: str) -> None:
        self._topics.pop(name, None)

    def topics_with_configs(self) -> list[str]:
        """The known topics that set something themselves."""
        return [name for name, configs in self._topics.items() if configs]

    def topic_config(self, name: str) -> Settings:
        """What the topic sets itself; nothing if it is not known."""
        return self._topics.get(name, NO_SETTINGS)

    def log_config(self, name: str) -> LogConfig:
        """What holds for the logs of a topic."""
        configs = self.topic_config(name)
        key = frozenset(configs.items())
        found = self._log_configs.get(key)
        if found is None:
            found = self._log_configs[key] = self._read_log_config(name, configs)
        return found

    def _read_log_config(self, name: str, configs: Settings) -> LogConfig:
        left = dict(configs)
        while True:
            try:
                return LogConfig.from_properties(left, self.effective.given)
            except ConfigError as error:
                if error.key not in left:
                    _logger.error("ignoring the contradictory settings of topic %s: %s", name, error)
                    left.clear()
                else:
                    _logger.error("ignoring an invalid setting of topic %s: %s", name, error)
                    del left[error.key]

    async def alter_topics(
        self, changes: Mapping[str, Change], *, validate_only: bool = False
    ) -> dict[str, Exception | None]:
        """Changes what topics set themselves: all that is right in one transaction, or few. What came of each topic:
        None, or what is wrong with it alone, mostly a `ConfigError`."""
        outcomes: dict[str, Exception | None] = {}
        async with self._changing:
            left = changes
            while left:
                left = await self._alter_some(left, outcomes, validate_only=validate_only)
        return outcomes

    async def _alter_some(
        self, changes: Mapping[str, Change], outcomes: dict[str, Exception | None], *, validate_only: bool
    ) -> dict[str, Change]:
        """Adds the outcomes; answers the changes that have to be computed again, because another broker was faster, or
        an answer was lost."""
        paths = {name: config_path(ConfigKind.TOPICS, name) for name in changes}
        nodes = dict(zip(paths, await self._coordination.get_many(tuple(paths.values())), strict=True))
        altered: dict[str, Settings] = {}
        good: set[frozenset[tuple[str, str]]] = set()  # many topics are set to the same
        for name, change in changes.items():
            try:
                configs = change(self._present(name, paths[name], nodes[name]))
                if (key := frozenset(configs.items())) not in good:
                    LogConfig.from_properties(configs, self.effective.given)
                    good.add(key)
            except (ConfigError, BrokerError) as error:
                outcomes[name] = error
            else:
                altered[name] = configs
                outcomes[name] = None
        if validate_only:
            return {}
        again: dict[str, Change] = {}
        for some in _batches({name: settings_write(paths[name], own, nodes[name]) for name, own in altered.items()}):
            operations = [
                operation
                for name, write in some.items()
                for operation in (Check(topic_path(name)), write, notification(paths[name]))
            ]
            try:
                await self._coordination.transact(operations)
            except (NoNodeError, BadVersionError, NodeExistsError, ConnectionLossError) as error:
                again |= {name: changes[name] for name in some}
                if isinstance(error, NoNodeError):
                    gone = next((name for name in some if error.path == topic_path(name)), None)
                    if gone is None:
                        await make_parents(self._coordination, paths[next(iter(some))])
                    else:
                        del again[gone]
                        reason = f"Topic {gone!r} does not exist."
                        outcomes[gone] = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
                continue
            for name in some:
                if told := changes_of(self.topic_config(name), altered[name]):
                    _logger.info("changed configs of topic %s: %s", name, told)
                self._topics.setdefault(name, NO_SETTINGS)
                self.note_topic(name, altered[name])
        return again

    def _present(self, name: str, path: str, node: Znode | None) -> Settings:
        """What a change begins with. A node that cannot be read is replaced, so that it can be mended by a change."""
        try:
            return NO_SETTINGS if node is None else decode_config(path, node.data)
        except ZnodeError as error:
            known = self._topics.get(name, UNREADABLE)
            _logger.warning("replacing the configs of topic %s, which cannot be read: %s", name, error)
            return NO_SETTINGS if known is UNREADABLE else known

    # --- brokers ----------------------------------------------------------------------------------------------------

    async def alter_broker(self, broker_id: int | None, change: Change, *, validate_only: bool = False) -> None:
        """Changes what is set for this broker, or with None for all. What is wrong raises `ConfigError`, and nothing is
        done."""

        def checked(before: Settings) -> Settings:
            configs = change(before)
            for key, text in configs.items():
                _check_dynamic(key, text, for_all=broker_id is None)
            if broker_id is None:
                self._check_threads(self._merged(configs, self.for_broker))
            else:
                self._check_threads(self._merged(self.for_all_brokers, configs))
            return configs

        async with self._changing:
            before = self.for_all_brokers if broker_id is None else self.for_broker
            if validate_only:
                checked(before)
                return
            path = self._broker_path(broker_id)
            configs = await alter_settings(self._coordination, path, broker_key, checked, keep_empty=True)
            if told := changes_of(before, configs, lambda key: broker_key(key).is_sensitive):
                _logger.info("changed configs of %s: %s", _whose(broker_id), told)
            if broker_id is None:
                self.for_all_brokers = MappingProxyType(dict(configs))
            else:
                self.for_broker = MappingProxyType(dict(configs))
            self._become(self._merged(self.for_all_brokers, self.for_broker))

    def _become(self, config: BrokerConfig) -> None:
        before, self.effective = self.effective, config
        changed = frozenset(key.name for key in BROKER_CONFIG if before[key.name] != config[key.name])
        dynamic_before, self._dynamic = self._dynamic, {key.name: self.current(key.name) for key in DYNAMIC_ONLY}
        changed |= {name for name, value in self._dynamic.items() if value != dynamic_before[name]}
        if changed:
            self._log_configs.clear()
            self.on_broker_change(changed)

    def _merged(self, for_all: Settings, for_this: Settings) -> BrokerConfig:
        dynamic = {**for_all, **for_this}
        return self.static.changed({key: text for key, text in dynamic.items() if key not in DYNAMIC_ONLY})

    def _check_threads(self, config: BrokerConfig) -> None:
        for key in _THREADS:
            before, after = self.effective[key], config[key]
            if not before // 2 <= after <= before * 2:
                raise ConfigError(key, f"{after} is more than twice or less than half of {before}: go in steps")

    def _broker_path(self, broker_id: int | None) -> str:
        return config_path(ConfigKind.BROKERS, DEFAULT_ENTITY if broker_id is None else str(broker_id))


def _batches(writes: Mapping[str, Operation]) -> Iterator[dict[str, Operation]]:
    """As many as fit into one transaction."""
    batch: dict[str, Operation] = {}
    size = 0
    for name, write in writes.items():
        data = write.data if isinstance(write, Create | SetData) else None
        size += len(data or b"") + _WRITE_BYTES + 4 * len(name)
        if batch and size > _TRANSACTION_BYTES:
            yield batch
            batch, size = {}, 0
        batch[name] = write
    if batch:
        yield batch


def _whose(broker_id: int | None) -> str:
    return "all brokers" if broker_id is None else f"broker {broker_id}"


def _check_dynamic(key: str, text: str, *, for_all: bool) -> None:
    """Whether the key can have that value, and be changed so."""
    if key.startswith("listener.name."):
        raise ConfigError(key, "settings of single listeners cannot be changed while the broker runs yet")
    broker_key(key).parse(text)
    if key in DYNAMIC_ONLY:
        return
    mode = update_mode(key)
    if mode is UpdateMode.READ_ONLY:
        raise ConfigError(key, "it cannot be changed while the broker runs: set it in its file, and restart it")
    if for_all and mode is UpdateMode.PER_BROKER:
        raise ConfigError(key, "it cannot be set for all brokers at once: say for which")
    if key in NOT_WHILE_RUNNING:
        raise ConfigError(key, "listeners cannot be changed while the broker runs yet: restart it")
    if mode is UpdateMode.PER_BROKER:
        raise ConfigError(key, "it can be changed only for a single listener, by listener.name.<listener>.<key>")
