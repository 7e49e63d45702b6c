"""Configs as DescribeConfigs shows them: each key with its value, and all its sources in order of precedence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ottla.base.config import ConfigKey
from ottla.base.config_descriptions import ConfigSource, ConfigType
from ottla.broker.configs.broker_config import BROKER_CONFIG
from ottla.broker.configs.group_configs import GROUP_CONFIG, broker_synonym
from ottla.broker.configs.keys.update_modes import DYNAMIC_ONLY, INTERNAL, UpdateMode, update_mode
from ottla.broker.configs.store import ConfigStore, broker_key
from ottla.broker.observability import log_levels
from ottla.log.broker_config import BROKER_SCALED, BROKER_SYNONYMS, topic_defaults
from ottla.log.topic_config import TOPIC_CONFIG
from ottla.wire.messages.describe_configs import DescribedConfig, DescribedConfigSynonym

_UNITS: Final = {
    name: tuple(other for other, _ in synonyms)
    for key, synonyms in BROKER_SCALED.items()
    for name, _ in (synonyms[:1] if key == "flush.ms" else synonyms)
}
"""Broker keys for the same setting in several units, the finest unit first."""


def described_topic(store: ConfigStore, name: str) -> Iterator[DescribedConfig]:
    """Every key of a topic."""
    own = store.topic_config(name)
    values = TOPIC_CONFIG.parse(topic_defaults(store.effective.given))
    for key in TOPIC_CONFIG:
        synonyms = _synonyms(store, _broker_name(key.name))
        value = values[key.name]
        if key.name in own and key.accepts(own[key.name]):  # `ConfigStore` ignores invalid values in the tree, too
            value = key.parse(own[key.name])
            synonyms.insert(
                0, DescribedConfigSynonym(name=key.name, value=_text(key, value), source=ConfigSource.TOPIC)
            )
        yield _described(key, value, synonyms, read_only=False)


def described_broker(store: ConfigStore) -> Iterator[DescribedConfig]:
    """Every key of this broker."""
    dynamic_only = {**store.for_all_brokers, **store.for_broker}.keys() & {key.name for key in DYNAMIC_ONLY}
    for key in (*BROKER_CONFIG, *(DYNAMIC_ONLY[name] for name in sorted(dynamic_only))):
        if key.name in INTERNAL and key.name not in store.effective.given:
            continue
        yield _described(key, store.current(key.name), _synonyms(store, key.name), read_only=_is_read_only(key.name))


def described_broker_defaults(store: ConfigStore) -> Iterator[DescribedConfig]:
    """Only the keys that are set in the tree for all brokers."""
    for name, text in sorted(store.for_all_brokers.items()):
        key = broker_key(name)
        synonyms = [each for each in _synonyms(store, name) if each.source == ConfigSource.DYNAMIC_DEFAULT_BROKER]
        yield _described(key, key.parse(text), synonyms, read_only=_is_read_only(name))


def described_group(store: ConfigStore, group_id: str) -> Iterator[DescribedConfig]:
    """Every key of a group, even if the group does not exist."""
    own = store.groups.own(group_id)
    for key in GROUP_CONFIG:
        name = broker_synonym(key.name)
        value, synonyms = store.current(name), _synonyms(store, name)
        if key.name in own:
            value = key.parse(own[key.name])
            synonyms.insert(0, DescribedConfigSynonym(name=key.name, value=key.text(value), source=ConfigSource.GROUP))
        yield _described(key, value, synonyms, read_only=False)


def described_loggers() -> Iterator[DescribedConfig]:
    for name, level in log_levels.logger_levels().items():
        yield DescribedConfig(name=name, value=level, config_source=ConfigSource.DYNAMIC_BROKER_LOGGER)


def _described(
    key: ConfigKey, value: Any, synonyms: list[DescribedConfigSynonym], *, read_only: bool
) -> DescribedConfig:
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    return DescribedConfig(
        name=key.name,
        value=_text(key, value),
        read_only=read_only,
        config_source=source,
        is_sensitive=key.is_sensitive,
        synonyms=synonyms,
        config_type=ConfigType[key.type.name],
        documentation=key.doc,
    )


def _broker_name(topic_key: str) -> str | None:
    """The broker key with the default of a topic key."""
    return BROKER_SCALED[topic_key][0][0] if topic_key in BROKER_SCALED else BROKER_SYNONYMS.get(topic_key)


def _synonyms(store: ConfigStore, name: str | None) -> list[DescribedConfigSynonym]:
    """The sources of a broker key and its default; passwords without their value."""
    if name is None:
        return []
    names = _UNITS.get(name, (name,))
    places: list[tuple[ConfigSource, Mapping[str, str]]] = [
        (ConfigSource.DYNAMIC_BROKER, store.for_broker),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, store.for_all_brokers),
        (ConfigSource.STATIC_BROKER, store.static.given),
        (ConfigSource.DEFAULT, _DEFAULTS),
    ]
    found = [
        DescribedConfigSynonym(
            name=each, value=None if broker_key(each).is_sensitive else settings[each], source=source
        )
        for source, settings in places
        for each in names
        if each in settings
    ]
    # Kafka lists the requested key first, even if one with another unit takes precedence.
    start = next((index for index, each in enumerate(found) if each.name == name), len(found))
    return found[start:]


def _is_read_only(name: str) -> bool:
    return update_mode(name) is UpdateMode.READ_ONLY


def _text(key: ConfigKey, value: Any) -> str | None:
    return None if value is None or key.is_sensitive else key.text(value)


_DEFAULTS: Final = {key.name: key.text(key.default) for key in BROKER_CONFIG if key.default is not None}
