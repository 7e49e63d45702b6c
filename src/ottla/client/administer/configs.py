"""Configs of topics, brokers, loggers, groups and client metrics: describe and alter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from ottla.base.config_descriptions import ConfigSource, ConfigType, ResourceType
from ottla.client.administer.outcomes import Area, refusal, version_of
from ottla.client.errors import ArgumentTypeError, ClientError, RefusedError, raise_if_refused
from ottla.wire.messages.alter_configs import (
    AlterConfigsEntry,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ottla.wire.messages.create_topics import CreatedTopicConfig
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResponse,
    DescribeConfigsResponse,
    DescribedConfig,
)
from ottla.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsEntry,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

_TYPES_SINCE: Final = 1
_DOCUMENTATION_SINCE: Final = 3


class ConfigResource(NamedTuple):
    """A resource with configs. The name of a broker is its id; the empty name means the cluster-wide defaults."""

    kind: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int | None) -> ConfigResource:
        """None means the cluster-wide defaults of all brokers."""
        return cls(ResourceType.BROKER, "" if broker_id is None else str(broker_id))

    @classmethod
    def group(cls, group_id: str) -> ConfigResource:
        return cls(ResourceType.GROUP, group_id)

    def __str__(self) -> str:
        if self.kind is ResourceType.BROKER and not self.name:
            return "all brokers"
        return f"{self.kind.name.lower().replace('_', ' ')} {self.name}"


class ConfigSynonym(NamedTuple):
    """Another source of a value."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A config. Values of sensitive configs are not returned. `synonyms`: the values from all sources in order of
    precedence, if requested."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()
    type: ConfigType = ConfigType.UNKNOWN
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT

    @classmethod
    def of(cls, config: DescribedConfig) -> ConfigEntry:
        return cls(
            config.name,
            config.value,
            _member(ConfigSource, config.config_source, ConfigSource.UNKNOWN),
            config.read_only,
            config.is_sensitive,
            tuple(
                ConfigSynonym(one.name, one.value, _member(ConfigSource, one.source, ConfigSource.UNKNOWN))
                for one in config.synonyms
            ),
            _member(ConfigType, config.config_type, ConfigType.UNKNOWN),
            config.documentation,
        )

    @classmethod
    def of_new_topic(cls, config: CreatedTopicConfig) -> ConfigEntry:
        source = _member(ConfigSource, config.config_source, ConfigSource.UNKNOWN)
        return cls(config.name, config.value, source, config.read_only, config.is_sensitive)


@dataclass(frozen=True, slots=True)
class Append:
    """Appends these values, separated by commas, to a list config."""

    values: str


@dataclass(frozen=True, slots=True)
class Subtract:
    """Removes these values, separated by commas, from a list config."""

    values: str


Change = str | Append | Subtract | None
"""A new value; values to append to or remove from a list; or None for the default."""

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
E = TypeVar("E", ConfigSource, ConfigType)
R = TypeVar("R")


class ConfigsArea(Area):
    """Operations on configs."""

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        keys: Collection[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """The configs of each resource by name; all of them, or only `keys`."""

        async def attempt(
            broker_id: int | None, some: list[ConfigResource]
        ) -> dict[ConfigResource, dict[str, ConfigEntry] | RefusedError]:
            wanted = None if keys is None else list(keys)
            connection = await self._connection(broker_id)
            version = version_of(connection, DescribeConfigsRequest)
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=wanted)
                    for kind, name in some
                ],
                include_synonyms=include_synonyms,
                include_documentation=include_documentation and version >= _DOCUMENTATION_SINCE,
            )
            answer = await connection.send(request, DescribeConfigsResponse, version=version)
            return {
                (resource := _resource(one)): refusal(one.error_code, str(resource), one.error_message)
                or {config.name: ConfigEntry.of(config) for config in sorted(one.configs, key=lambda each: each.name)}
                for one in answer.results
            }

        return await self._settle_by_broker(resources, attempt)

    async def incremental_alter_configs(
        self, changes: Mapping[ConfigResource, Mapping[str, Change]], *, validate_only: bool = False
    ) -> None:
        """Changes some configs and keeps the others; for each resource all changes or none."""

        async def attempt(
            broker_id: int | None, some: list[ConfigResource]
        ) -> dict[ConfigResource, RefusedError | None]:
            request = IncrementalAlterConfigsRequest(
                resources=[
                    IncrementalAlterConfigsResource(
                        resource_type=resource.kind,
                        resource_name=resource.name,
                        configs=[_entry(name, change) for name, change in changes[resource].items()],
                    )
                    for resource in some
                ],
                validate_only=validate_only,
            )
            answer = await self._ask(broker_id, request, IncrementalAlterConfigsResponse)
            return {
                (resource := _resource(one)): refusal(one.error_code, str(resource), one.error_message)
                for one in answer.responses
            }

        await self._settle_by_broker(changes, attempt)

    async def replace_configs(
        self, configs: Mapping[ConfigResource, Mapping[str, str]], *, validate_only: bool = False
    ) -> None:
        """Sets these configs and resets all others of the resource to their defaults. Needed only for brokers before
        Kafka 2.3; use `incremental_alter_configs` otherwise."""

        async def attempt(
            broker_id: int | None, some: list[ConfigResource]
        ) -> dict[ConfigResource, RefusedError | None]:
            request = AlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=resource.kind,
                        resource_name=resource.name,
                        configs=[
                            AlterConfigsEntry(name=name, value=value) for name, value in configs[resource].items()
                        ],
                    )
                    for resource in some
                ],
                validate_only=validate_only,
            )
            answer = await self._ask(broker_id, request, AlterConfigsResponse)
            return {
                (resource := _resource(one)): refusal(one.error_code, str(resource), one.error_message)
                for one in answer.responses
            }

        await self._settle_by_broker(configs, attempt)

    async def list_config_resources(self, kinds: Collection[ResourceType] = ()) -> list[ConfigResource]:
        """All resources of these types that have or can have configs; of all types by default."""
        wanted = sorted(set(kinds))

        async def attempt() -> list[ConfigResource]:
            connection = await self._cluster.any_connection()
            # The first version knows only one kind, and needs not be told.
            since = 0 if wanted == [ResourceType.CLIENT_METRICS] else _TYPES_SINCE
            why = "list config resources"
            version = version_of(connection, ListConfigResourcesRequest, since=since, why=why)
            request = ListConfigResourcesRequest(resource_types=list(wanted) if version >= _TYPES_SINCE else [])
            answer = await connection.send(request, ListConfigResourcesResponse, version=version)
            raise_if_refused(answer.error_code, "the list of config resources")
            kinds = {kind.value: kind for kind in ResourceType}
            return sorted(
                ConfigResource(kinds[one.resource_type], one.resource_name)
                for one in answer.config_resources
                if one.resource_type in kinds
            )

        return await self._cluster.retry(attempt)

    async def _settle_by_broker(
        self,
        resources: Iterable[ConfigResource],
        attempt: Callable[[int | None, list[ConfigResource]], Awaitable[Mapping[ConfigResource, R | RefusedError]]],
    ) -> dict[ConfigResource, R]:
        async def everywhere(some: list[ConfigResource]) -> dict[ConfigResource, R | RefusedError]:
            by_broker: dict[int | None, list[ConfigResource]] = {}
            for resource in some:
                by_broker.setdefault(_broker_of(resource), []).append(resource)
            found: dict[ConfigResource, R | RefusedError] = {}
            for broker_id, its_own in by_broker.items():
                found.update(await attempt(broker_id, its_own))
            return found

        return await self._settle(resources, everywhere)


def _broker_of(resource: ConfigResource) -> int | None:
    """Configs and loggers of a broker are requested from that broker, all others from any."""
    kind, name = resource
    if kind not in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) or not name:
        return None
    try:
        return int(name)
    except ValueError:
        raise ClientError(f"{resource}: the name of a broker resource must be its id") from None


def _entry(name: str, change: Change) -> IncrementalAlterConfigsEntry:
    match change:
        case None:
            return IncrementalAlterConfigsEntry(name=name, config_operation=_DELETE, value=None)
        case Append(values):
            return IncrementalAlterConfigsEntry(name=name, config_operation=_APPEND, value=values)
        case Subtract(values):
            return IncrementalAlterConfigsEntry(name=name, config_operation=_SUBTRACT, value=values)
        case str():
            return IncrementalAlterConfigsEntry(name=name, config_operation=_SET, value=change)
    raise ArgumentTypeError(f"{name} cannot be set to {change!r}: config values must be strings")


def _resource(
    answer: DescribeConfigsResourceResponse | IncrementalAlterConfigsResourceResponse | AlterConfigsResourceResponse,
) -> ConfigResource:
    return ConfigResource(ResourceType(answer.resource_type), answer.resource_name)


def _member(kind: type[E], number: int, unknown: E) -> E:
    try:
        return kind(number)
    except ValueError:
        return unknown
