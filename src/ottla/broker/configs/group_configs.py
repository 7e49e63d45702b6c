"""Configs of groups: session timeout and heartbeat interval of members in the consumer protocol.

Kafka has these since 4.0, without ZooKeeper; here they are in the tree like other configs. A group need not exist to be
configured, and is listed as long as it has configs. The broker's limits apply when a group is changed, and again when
its settings are used: the broker's file may have different limits by then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from types import MappingProxyType
from typing import Final

from ottla.base.config import ConfigError, ConfigKey, ConfigSchema, ValueType, at_least
from ottla.base.config_changes import changes_of
from ottla.base.coordination import Coordination
from ottla.broker.configs.broker_config import BrokerConfig
from ottla.broker.configs.nodes import NO_SETTINGS, Change, Settings, alter_settings, settings_in
from ottla.coordinator.groups.group import ConsumerTimes
from ottla.zookeeper import paths

_logger = logging.getLogger(__name__)

HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
GROUP_CONFIG: Final = ConfigSchema(
    "group",
    [
        ConfigKey(
            HEARTBEAT_INTERVAL,
            ValueType.INT,
            5000,
            "Heartbeat interval of the members of this group in the consumer protocol.",
            at_least(1),
        ),
        ConfigKey(
            SESSION_TIMEOUT,
            ValueType.INT,
            45_000,
            "Session timeout of the members of this group in the consumer protocol.",
            at_least(1),
        ),
    ],
)
_LIMITS: Final = {
    HEARTBEAT_INTERVAL: ("group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    SESSION_TIMEOUT: ("group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
}
"""The broker keys for the minimum and the maximum."""


def broker_synonym(name: str) -> str:
    """The broker key that applies if a group does not set this one."""
    return f"group.{name}"


class GroupConfigs:
    """Owned by the loop."""

    def __init__(self, coordination: Coordination, config: BrokerConfig) -> None:
        self.consumer_times: dict[str, ConsumerTimes] = {}
        """The effective times of groups that have their own configs."""
        self._coordination = coordination
        self._config = config
        """The broker's keys for groups do not change while it runs."""
        self._groups: dict[str, Settings] = {}
        self._changing = asyncio.Lock()

    async def load(self) -> None:
        """All of them, also when some were read before."""
        nodes = [
            paths.config(paths.ConfigKind.GROUPS, name)
            for name in await self._coordination.children(paths.config_root(paths.ConfigKind.GROUPS))
        ]
        found = {
            paths.parse_entity_name(path.rpartition("/")[2]): settings_in(path, node, GROUP_CONFIG.__getitem__)
            for path, node in zip(nodes, await self._coordination.get_many(nodes), strict=True)
        }
        for group_id in {*self._groups, *found}:
            self._note(group_id, found.get(group_id, NO_SETTINGS))

    async def reread(self, group_id: str) -> None:
        """Its configs have changed in the tree."""
        path = paths.group_config(group_id)
        async with self._changing:
            self._note(group_id, settings_in(path, await self._coordination.get(path), GROUP_CONFIG.__getitem__))

    def __iter__(self) -> Iterator[str]:
        """The groups that have their own configs."""
        return iter(self._groups)

    def own(self, group_id: str) -> Settings:
        """The group's own configs."""
        return self._groups.get(group_id, NO_SETTINGS)

    async def alter(self, group_id: str, change: Change, *, validate_only: bool = False) -> None:
        """Changes a group's configs. Raises `ConfigError` for an invalid change, which is not made."""

        def checked(before: Settings) -> Settings:
            settings = change(before)
            self._check(settings)
            return settings

        async with self._changing:
            if validate_only:
                checked(self.own(group_id))
                return
            path, key_of = paths.group_config(group_id), GROUP_CONFIG.__getitem__
            settings = await alter_settings(self._coordination, path, key_of, checked, keep_empty=False)
            if told := changes_of(self.own(group_id), settings):
                _logger.info("changed configs of group %s: %s", group_id, told)
            self._note(group_id, MappingProxyType(dict(settings)))

    def _note(self, group_id: str, settings: Settings) -> None:
        if settings:
            self._groups[group_id] = settings
            self.consumer_times[group_id] = self._times(group_id, settings)
        else:
            self._groups.pop(group_id, None)
            self.consumer_times.pop(group_id, None)

    def _check(self, settings: Settings) -> None:
        for name, text in settings.items():
            value = GROUP_CONFIG[name].parse(text)
            least, most = _LIMITS[name]
            if value < self._config[least]:
                raise ConfigError(name, f"{value} is less than {self._config[least]}, the broker's {least}")
            if value > self._config[most]:
                raise ConfigError(name, f"{value} is more than {self._config[most]}, the broker's {most}")
        timeout_ms, interval_ms = self._value(SESSION_TIMEOUT, settings), self._value(HEARTBEAT_INTERVAL, settings)
        if settings and timeout_ms <= interval_ms:
            raise ConfigError(SESSION_TIMEOUT, f"{timeout_ms} is not more than {HEARTBEAT_INTERVAL}, {interval_ms}")

    def _times(self, group_id: str, settings: Settings) -> ConsumerTimes:
        return ConsumerTimes(
            session_timeout_ms=self._within_limits(group_id, SESSION_TIMEOUT, settings),
            heartbeat_interval_ms=self._within_limits(group_id, HEARTBEAT_INTERVAL, settings),
        )

    def _within_limits(self, group_id: str, name: str, settings: Settings) -> int:
        value = self._value(name, settings)
        if name not in settings:
            return value
        least, most = _LIMITS[name]
        used: int = min(max(value, self._config[least]), self._config[most])
        if used != value:
            limit = least if used > value else most
            _logger.warning("group %s: %s is %d, and the broker's %s, %d, is used", group_id, name, value, limit, used)
        return used

    def _value(self, name: str, settings: Settings) -> int:
        """The group's own value, or the broker's."""
        value: int = (
            GROUP_CONFIG[name].parse(settings[name]) if name in settings else self._config[broker_synonym(name)]
        )
        return value
