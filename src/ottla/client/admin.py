"""Topics and configs, looked at and changed.

What can fail for one topic or resource and not for another answers with a dict: each name with its `RefusedError`, or
with what was asked for. Reasons that pass are waited out first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeVar

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, RefusedError, raise_if_refused
from ottla.client.metadata import TopicInfo
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.delete_topics import DeletableTopic, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribedConfig,
)
from ottla.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsTopic,
)
from ottla.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsEntry,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.schema import Request, Response

AnyResponse = TypeVar("AnyResponse", bound=Response)
T = TypeVar("T")

BROKERS_DEFAULT = -1
"""Leave a topic's number of partitions, or of replicas, to the broker."""


class ResourceType(IntEnum):
    """What has a configuration, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    """Where a value comes from, by Kafka's numbers."""

    UNKNOWN = -1
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Resource(NamedTuple):
    """Something with a configuration. Brokers are named by their id; the empty name stands for all brokers."""

    kind: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.kind.name.lower()} {self.name}" if self.name else "all brokers"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to be made."""

    name: str
    partitions: int = BROKERS_DEFAULT
    replication_factor: int = BROKERS_DEFAULT
    configs: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was made; the counts are -1 where an old broker does not tell them."""

    name: str
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A config as it is at work, and the values it would have, one after the other, if those before were unset."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[tuple[str, str | None, ConfigSource], ...]

    @classmethod
    def of(cls, config: DescribedConfig) -> ConfigValue:
        return cls(
            config.name,
            config.value,
            _source(config.config_source),
            config.read_only,
            config.is_sensitive,
            tuple((one.name, one.value, _source(one.source)) for one in config.synonyms),
        )


def _source(number: int) -> ConfigSource:
    try:
        return ConfigSource(number)
    except ValueError:
        return ConfigSource.UNKNOWN


class Admin:
    """Looks after topics and configs. Holds nothing but the cluster, which is the caller's to close."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    # Topics.

    async def list_topics(self) -> list[TopicInfo]:
        """All topics, by name."""
        topics = await self._cluster.retry(lambda: self._cluster.refresh(None))
        return sorted(topics, key=lambda topic: topic.name)

    async def create_topics(self, specs: Iterable[TopicSpec]) -> dict[str, CreatedTopic | RefusedError]:
        topics = [
            CreatableTopic(
                name=spec.name,
                num_partitions=spec.partitions,
                replication_factor=spec.replication_factor,
                configs=[CreatableTopicConfig(name=name, value=value) for name, value in (spec.configs or {}).items()],
            )
            for spec in specs
        ]

        async def attempt(names: Sequence[str]) -> dict[str, CreatedTopic | RefusedError]:
            asked = [topic for topic in topics if topic.name in names]
            request = CreateTopicsRequest(topics=asked, timeout_ms=self._timeout_ms)
            answer = await self._cluster.send_to_controller(request, CreateTopicsResponse)
            return {
                one.name: _outcome(one.error_code, f"topic {one.name}", one.error_message)
                or CreatedTopic(one.name, one.num_partitions, one.replication_factor)
                for one in answer.topics
            }

        return await self._until_final([topic.name for topic in topics], attempt)

    async def delete_topics(self, names: Iterable[str]) -> dict[str, RefusedError | None]:
        async def attempt(names: Sequence[str]) -> dict[str, RefusedError | None]:
            request = DeleteTopicsRequest(
                topics=[DeletableTopic(name=name) for name in names],
                topic_names=list(names),
                timeout_ms=self._timeout_ms,
            )
            connection = await self._cluster.controller_connection()
            version = connection.version_for(DeleteTopicsRequest)
            if version < _TOPICS_BY_ID:
                request.topics = []
            answer = await connection.send(request, DeleteTopicsResponse, version=version)
            return {
                one.name or "": _outcome(one.error_code, f"topic {one.name}", one.error_message)
                for one in answer.responses
            }

        # A topic that is not there will not come: unlike with records, waiting for it makes no sense.
        return await self._until_final(list(names), attempt, final=(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,))

    async def create_partitions(self, counts: Mapping[str, int]) -> dict[str, RefusedError | None]:
        """Gives topics more partitions: so many in all."""

        async def attempt(names: Sequence[str]) -> dict[str, RefusedError | None]:
            topics = [CreatePartitionsTopic(name=name, count=counts[name], assignments=None) for name in names]
            request = CreatePartitionsRequest(topics=topics, timeout_ms=self._timeout_ms)
            answer = await self._cluster.send_to_controller(request, CreatePartitionsResponse)
            return {
                one.name: _outcome(one.error_code, f"topic {one.name}", one.error_message) for one in answer.results
            }

        return await self._until_final(list(counts), attempt, final=(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,))

    async def sizes(self, topics: Iterable[TopicInfo]) -> dict[TopicPartition, int]:
        """The bytes that each partition's leader keeps of it."""
        sizes: dict[TopicPartition, int] = {}
        by_leader: dict[int, dict[str, list[int]]] = {}
        for topic in topics:
            for one in topic.partitions:
                if one.leader_id in self._cluster.brokers:
                    by_leader.setdefault(one.leader_id, {}).setdefault(topic.name, []).append(one.index)
        for leader_id, indexes in by_leader.items():
            asked = [DescribeLogDirsTopic(topic=name, partitions=some) for name, some in indexes.items()]
            request = DescribeLogDirsRequest(topics=asked)
            answer = await self._cluster.send_to(leader_id, request, DescribeLogDirsResponse)
            raise_if_refused(answer.error_code, f"the log directories of broker {leader_id}")
            for directory in answer.results:
                for found in directory.topics:
                    for part in found.partitions:
                        if not part.is_future_key:
                            sizes[TopicPartition(found.name, part.partition_index)] = part.partition_size
        return sizes

    # Configs.

    async def describe_configs(self, resources: Iterable[Resource]) -> dict[Resource, list[ConfigValue] | RefusedError]:
        """Every config of each resource, by name."""
        found: dict[Resource, list[ConfigValue] | RefusedError] = {}
        for broker_id, some in self._by_broker(resources).items():
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
                    for kind, name in some
                ],
                include_synonyms=True,
            )
            answer = await self._ask(broker_id, request, DescribeConfigsResponse)
            for one in answer.results:
                resource = Resource(ResourceType(one.resource_type), one.resource_name)
                configs = sorted(map(ConfigValue.of, one.configs), key=lambda config: config.name)
                found[resource] = _outcome(one.error_code, str(resource), one.error_message) or configs
        return found

    async def alter_configs(self, resource: Resource, changes: Mapping[str, str | None]) -> None:
        """Sets each config to its value, or back to its default where that is None; all of them or none."""
        entries = [
            IncrementalAlterConfigsEntry(name=name, config_operation=_DELETE if value is None else _SET, value=value)
            for name, value in changes.items()
        ]
        kind, name = resource
        request = IncrementalAlterConfigsRequest(
            resources=[IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)],
        )
        (broker_id,) = self._by_broker([resource])
        answer = await self._ask(broker_id, request, IncrementalAlterConfigsResponse)
        for one in answer.responses:
            raise_if_refused(one.error_code, str(resource), one.error_message)

    @staticmethod
    def _by_broker(resources: Iterable[Resource]) -> dict[int | None, list[Resource]]:
        """A broker's own configs are asked of that broker, everything else of any."""
        by_broker: dict[int | None, list[Resource]] = {}
        for resource in resources:
            kind, name = resource
            broker_id = int(name) if kind is ResourceType.BROKER and name else None
            by_broker.setdefault(broker_id, []).append(resource)
        return by_broker

    async def _ask(self, broker_id: int | None, request: Request, response: type[AnyResponse]) -> AnyResponse:
        async def attempt() -> AnyResponse:
            if broker_id is None:
                return await self._cluster.send_to_any(request, response)
            if broker_id not in self._cluster.brokers:
                await self._cluster.refresh()
            if broker_id not in self._cluster.brokers:
                known = ", ".join(map(str, sorted(self._cluster.brokers)))
                raise ClientError(f"there is no broker {broker_id} in the cluster; its brokers are {known}")
            return await self._cluster.send_to(broker_id, request, response)

        return await self._cluster.retry(attempt)

    # Patience.

    @property
    def _timeout_ms(self) -> int:
        return int(self._cluster.options.connection.request_timeout_s * 1000)

    async def _until_final(
        self,
        names: list[str],
        attempt: Callable[[Sequence[str]], Awaitable[dict[str, T]]],
        *,
        final: Sequence[ErrorCode] = (),
    ) -> dict[str, T]:
        """Each name's outcome; those that were refused for a reason that passes are asked for again."""
        outcomes: dict[str, T] = {}

        async def again() -> None:
            outcomes.update(await attempt([name for name in names if name not in outcomes or passing(name)]))
            waiting = [outcome for name in names if (outcome := passing(name))]
            if waiting:
                raise waiting[0]

        def passing(name: str) -> RefusedError | None:
            outcome = outcomes.get(name)
            if isinstance(outcome, RefusedError) and outcome.retriable and outcome.code not in final:
                return outcome
            return None

        try:
            await self._cluster.retry(again)
        except RefusedError:
            if len(outcomes) < len(names):
                raise
        return outcomes


_SET, _DELETE = 0, 1
_TOPICS_BY_ID = 6


def _outcome(code: int, subject: str, message: str | None) -> RefusedError | None:
    return RefusedError(code, subject, message) if code else None
