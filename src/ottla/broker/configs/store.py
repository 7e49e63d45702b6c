"""Configs that change while the broker runs: those of topics, of this broker, and of all brokers. They are stored in
the coordination tree in Kafka's format.

A topic's own setting takes precedence, then this broker's, then that for all brokers, then the file's, then the
default. A change is checked as a whole, together with the unchanged settings, before any of it is written.
`group_configs` does the same for groups.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from ottla.base.config import ConfigError, ConfigKey
from ottla.base.config_changes import changes_of
from ottla.base.coordination import Coordination
from ottla.broker.configs.broker_config import BROKER_CONFIG, BrokerConfig
from ottla.broker.configs.group_configs import GroupConfigs
from ottla.broker.configs.keys.update_modes import DYNAMIC_ONLY, UpdateMode, update_mode
from ottla.broker.configs.nodes import NO_SETTINGS, Change, Settings, settings_in, write_settings
from ottla.broker.requests.api import BrokerError
from ottla.log.config import LogConfig
from ottla.zookeeper.paths import DEFAULT_ENTITY, ConfigKind
from ottla.zookeeper.paths import config as config_path

_logger = logging.getLogger(__name__)

_SPARE_LOG_CONFIGS: Final = 100
"""How many parsed configs are kept that no topic uses."""
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


WriteTopics = Callable[[Mapping[str, Settings]], Awaitable[Mapping[str, object]]]
"""Stores the configs of topics; returns the outcome of each. If it raises, nothing was stored."""


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
        self.on_topic_change: Callable[[str], None] = lambda _: None
        self.on_broker_change: Callable[[frozenset[str]], None] = lambda _: None
        self._coordination = coordination
        self._topics: dict[str, Settings] = {}
        self._log_configs: dict[frozenset[tuple[str, str]], LogConfig] = {}
        """Parsed configs by the topic's settings: most topics have none."""
        self._changing = asyncio.Lock()

    async def load(self) -> None:
        """Reads the settings of brokers and groups. Those of topics come through `note_topic`."""
        paths = [self._broker_path(self.broker_id), self._broker_path(None)]
        nodes = await self._coordination.get_many(paths)
        self.for_broker, self.for_all_brokers = (
            settings_in(path, node, broker_key) for path, node in zip(paths, nodes, strict=True)
        )
        try:
            self.effective = self._merged(self.for_all_brokers, self.for_broker)
        except ConfigError as error:
            _logger.error("%s and %s contradict each other and are ignored: %s", *paths, error)
            self.for_broker = self.for_all_brokers = NO_SETTINGS
        await self.groups.load()

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
        self._topics[name] = MappingProxyType(dict(configs)) if configs else NO_SETTINGS
        if before is not None:
            if len(self._log_configs) > len(self._topics) + _SPARE_LOG_CONFIGS:
                self._log_configs.clear()
            self.on_topic_change(name)

    def forget_topic(self, name: str) -> None:
        self._topics.pop(name, None)

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
        self, changes: Mapping[str, Change], write: WriteTopics, *, validate_only: bool = False
    ) -> dict[str, Exception | None]:
        """Changes what topics set themselves; `write` keeps all that is right, at once. What came of each topic: None,
        or what is wrong with it alone, mostly a `ConfigError`."""
        outcomes: dict[str, Exception | None] = {}
        async with self._changing:
            altered: dict[str, Settings] = {}
            good: set[frozenset[tuple[str, str]]] = set()  # many topics are set to the same
            for name, change in changes.items():
                try:
                    configs = change(self.topic_config(name))
                    if (key := frozenset(configs.items())) not in good:
                        LogConfig.from_properties(configs, self.effective.given)
                        good.add(key)
                except (ConfigError, BrokerError) as error:
                    outcomes[name] = error
                else:
                    altered[name] = configs
                    outcomes[name] = None
            if validate_only or not altered:
                return outcomes
            for name, outcome in (await write(altered)).items():
                if isinstance(outcome, Exception):
                    outcomes[name] = outcome
                else:
                    self.note_topic(name, altered[name])
        return outcomes

    # --- brokers ----------------------------------------------------------------------------------------------------

    async def alter_broker(self, broker_id: int | None, change: Change, *, validate_only: bool = False) -> None:
        """Changes what is set for this broker, or with None for all. What is wrong raises `ConfigError`, and nothing is
        done."""
        async with self._changing:
            configs = change(self.for_all_brokers if broker_id is None else self.for_broker)
            for key, text in configs.items():
                _check_dynamic(key, text, for_all=broker_id is None)
            merged = (
                self._merged(configs, self.for_broker)
                if broker_id is None
                else self._merged(self.for_all_brokers, configs)
            )
            self._check_threads(merged)
            if validate_only:
                return
            await write_settings(self._coordination, self._broker_path(broker_id), configs)
            before = self.for_all_brokers if broker_id is None else self.for_broker
            if told := changes_of(before, configs, lambda key: broker_key(key).is_sensitive):
                _logger.info("changed configs of %s: %s", _whose(broker_id), told)
            if broker_id is None:
                self.for_all_brokers = MappingProxyType(dict(configs))
            else:
                self.for_broker = MappingProxyType(dict(configs))
            self._become(merged)

    def _become(self, config: BrokerConfig) -> None:
        before, self.effective = self.effective, config
        changed = frozenset(key.name for key in BROKER_CONFIG if before[key.name] != config[key.name])
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
