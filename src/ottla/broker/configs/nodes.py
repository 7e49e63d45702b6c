"""Settings in the coordination tree. Other programs may have written them: an invalid setting is ignored and logged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from ottla.base.config import ConfigError, ConfigKey
from ottla.base.coordination import Coordination, NoNodeError, Znode
from ottla.zookeeper.znodes import decode_config, encode_config

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


async def write_settings(tree: Coordination, path: str, settings: Settings) -> None:
    data = encode_config(settings)
    try:
        await tree.set(path, data)
    except NoNodeError:
        await tree.create(path, data, parents=True)
