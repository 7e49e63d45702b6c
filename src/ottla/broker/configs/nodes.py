"""Settings in the coordination tree. Other programs may have written them: an invalid setting is ignored and logged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from ottla.base.config import ConfigError, ConfigKey
from ottla.base.coordination import (
    BadVersionError,
    ConnectionLossError,
    Coordination,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
    Znode,
)
from ottla.zookeeper.paths import CONFIG, CONFIG_CHANGE_PREFIX, CONFIG_CHANGES
from ottla.zookeeper.znodes import decode_config, encode_config, encode_config_change

Settings = Mapping[str, str]
Change = Callable[[Settings], Settings]
"""Computes the new settings from the current ones."""
KeyOf = Callable[[str], ConfigKey]
"""Looks up a key by name; raises `ConfigError` for an unknown name."""

NO_SETTINGS: Final[Settings] = MappingProxyType({})

_logger = logging.getLogger(__name__)


def settings_in(path: str, node: Znode | None, key_of: KeyOf) -> Settings:
    """The valid settings of a node; empty if there is no node."""
    kept = {}
    for key, text in ({} if node is None else decode_config(path, node.data)).items():
        try:
            key_of(key).parse(text)
        except ConfigError as error:
            _logger.error("ignoring an invalid setting in %s: %s", path, error)
        else:
            kept[key] = text
    return MappingProxyType(kept)


async def alter_settings(tree: Coordination, path: str, key_of: KeyOf, change: Change, *, keep_empty: bool) -> Settings:
    """Changes the settings of one node and tells all brokers, in one transaction; answers the new settings. Brokers may
    change a node at the same time: the change is then computed again. Unless `keep_empty`, a node without settings is
    removed."""
    while True:
        node = await tree.get(path)
        settings = change(settings_in(path, node, key_of))
        operations: list[Operation] = []
        if settings or keep_empty:
            operations.append(settings_write(path, settings, node))
        elif node is not None:
            operations.append(Delete(path, node.version))
        else:
            return settings
        try:
            await tree.transact([*operations, notification(path)])
        except NoNodeError:
            await make_parents(tree, path)
        except (BadVersionError, NodeExistsError, ConnectionLossError):
            pass  # another broker was faster, or the answer is lost: the change is idempotent
        else:
            return settings


async def make_parents(tree: Coordination, path: str) -> None:
    """Those of a node with settings and of notifications: nodes for groups are not there in a cluster of Kafka."""
    for parent in (path.rpartition("/")[0], CONFIG_CHANGES):
        with suppress(NodeExistsError, ConnectionLossError):
            await tree.create(parent, parents=True)


def settings_write(path: str, settings: Settings, present: Znode | None) -> Operation:
    """Fails if the node was changed since `present` was read."""
    data = encode_config(settings)
    return Create(path, data) if present is None else SetData(path, data, present.version)


def notification(path: str) -> Create:
    """Tells all brokers that the node has changed."""
    return Create(CONFIG_CHANGE_PREFIX, encode_config_change(path.removeprefix(f"{CONFIG}/")), sequential=True)
