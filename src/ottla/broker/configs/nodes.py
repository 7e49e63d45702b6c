"""Settings as they lie in the coordination tree. What is there may come from elsewhere: a setting that is wrong is
passed over, with a word in the log."""

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
"""Makes what shall be set of what is set."""
KeyOf = Callable[[str], ConfigKey]
"""The key of that name; `ConfigError` if there is none."""

NO_SETTINGS: Final[Settings] = MappingProxyType({})

_logger = logging.getLogger(__name__)


def settings_in(path: str, node: Znode | None, key_of: KeyOf) -> Settings:
    """What a node sets, as far as its keys are there and can have those values; nothing if there is no node."""
    kept = {}
    for key, text in ({} if node is None else decode_config(path, node.data)).items():
        try:
            key_of(key).parse(text)
        except ConfigError as error:
            _logger.error("a setting in %s is passed over: %s", path, error)
        else:
            kept[key] = text
    return MappingProxyType(kept)


async def write_settings(tree: Coordination, path: str, settings: Settings) -> None:
    data = encode_config(settings)
    try:
        await tree.set(path, data)
    except NoNodeError:
        await tree.create(path, data, parents=True)
