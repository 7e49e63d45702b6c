"""Topics: create, list, describe, add partitions, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.base.ids import ZERO_UUID, Uuid, format_uuid, parse_uuid
from ottla.base.operations import Operation
from ottla.client.administer.configs import ConfigEntry
from ottla.client.administer.operations import operations_of
from ottla.client.administer.outcomes import Area, known, refusal, version_of
from ottla.client.arguments import check_fields
from ottla.client.cluster import Backoff, Deadline
from ottla.client.errors import ClientError, RefusedError, raise_if_refused
from ottla.net.client_connection import ClientConnection
from ottla.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.create_topics import CreatedTopic as CreatedTopicResponse
from ottla.wire.messages.delete_topics import DeletableTopic, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.wire.messages.describe_topic_partitions import (
    DescribedPartition,
    DescribedTopic,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsTopic,
    TopicPartitionsCursor,
)
from ottla.wire.messages.metadata import (
    MetadataPartitionResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
    MetadataTopicResponse,
)

BROKERS_DEFAULT: Final = -1
_DEFAULTS_SINCE: Final = 4
_DELETE_BY_ID_SINCE: Final = 6
_DESCRIBE_BY_ID_SINCE: Final = 12
_OPERATIONS_SINCE: Final = 8
_VISIBLE_WITHIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. Counts that are not given are the broker's defaults; or `assignments` lists the brokers of
    each partition, preferred leader first."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The new total number of partitions; optionally, the brokers of each new partition."""

    total: int
    assignments: Sequence[Sequence[int]] | None = None

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was created, or validated; None for what an old broker does not report."""

    name: str
    topic_id: str | None
    partitions: int | None
    replication_factor: int | None
    configs: Mapping[str, ConfigEntry] | None

    @classmethod
    def of(cls, topic: CreatedTopicResponse) -> CreatedTopic:
        configs = None
        if topic.configs:  # a topic always has some
            configs = {config.name: ConfigEntry.of_new_topic(config) for config in topic.configs}
        topic_id = _text(topic.topic_id)
        return cls(topic.name, topic_id, known(topic.num_partitions), known(topic.replication_factor), configs)


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition, with brokers by id. Eligible leader replicas (KIP-966) are None if the broker does not report
    them."""

    index: int
    leader_id: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]
    eligible_leaders: tuple[int, ...] | None = None
    last_known_eligible: tuple[int, ...] | None = None

    @classmethod
    def of(cls, partition: MetadataPartitionResponse | DescribedPartition) -> PartitionDescription:
        eligible = last_known = None
        if isinstance(partition, DescribedPartition):
            eligible = _tuple(partition.eligible_leader_replicas)
            last_known = _tuple(partition.last_known_elr)
        return cls(
            partition.partition_index,
            known(partition.leader_id),
            known(partition.leader_epoch),
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
            eligible,
            last_known,
        )


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic; its partitions are ordered by index. The id is None if the broker has no topic ids."""

    name: str
    topic_id: str | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    authorized_operations: frozenset[Operation] | None = None

    @property
    def replication_factor(self) -> int:
        return max((len(one.replicas) for one in self.partitions), default=0)


class TopicsArea(Area):
    """Operations on topics."""

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic]:
        """Creates topics, or only validates them. Returns when they can be used: when a broker lists them with their
        leaders."""
        wanted: dict[str, NewTopic] = {}
        for topic in topics:
            if topic.name in wanted:
                raise ClientError(f"topic {topic.name} is listed twice")
            wanted[topic.name] = topic

        async def attempt(names: list[str]) -> dict[str, CreatedTopic | RefusedError]:
            connection = await self._cluster.controller_connection()
            asked = [_creatable(wanted[name]) for name in names]
            since = _DEFAULTS_SINCE if any(map(_has_defaults, asked)) else 0
            why = "use its default number of partitions and replication factor"
            version = version_of(connection, CreateTopicsRequest, since=since, why=why)
            request = CreateTopicsRequest(topics=asked, timeout_ms=self._timeout_ms, validate_only=validate_only)
            answer = await connection.send(request, CreateTopicsResponse, version=version)
            return {
                one.name: refusal(one.error_code, f"topic {one.name}", one.error_message) or CreatedTopic.of(one)
                for one in answer.topics
            }

        created = await self._settle(wanted, attempt)
        if not validate_only:
            await self._until_visible(dict.fromkeys(created, 1))
        return created

    async def _until_visible(self, counts: Mapping[str, int]) -> None:
        """Waits until a broker lists the topics with this many partitions and their leaders, because brokers learn of
        new topics one by one. A timeout is not an error: the topics exist."""
        unseen = dict(counts)
        deadline, backoff = Deadline(_VISIBLE_WITHIN_S), Backoff(self._cluster.options)
        while unseen and not deadline.is_over:
            for topic in await self._cluster.retry(lambda: self._cluster.refresh(unseen)):
                is_led = all(one.leader_id >= 0 for one in topic.partitions)
                if is_led and len(topic.partitions) >= unseen[topic.name]:
                    del unseen[topic.name]
            if unseen:
                await asyncio.sleep(min(backoff.next_s(), deadline.left_s))

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Deletes topics with all their records."""

        async def attempt(names: list[str]) -> dict[str, RefusedError | None]:
            connection = await self._cluster.controller_connection()
            version = version_of(connection, DeleteTopicsRequest)
            request = DeleteTopicsRequest(timeout_ms=self._timeout_ms)
            if version < _DELETE_BY_ID_SINCE:
                request.topic_names = names
            else:
                request.topics = [DeletableTopic(name=name) for name in names]
            answer = await connection.send(request, DeleteTopicsResponse, version=version)
            return {
                one.name or "": refusal(one.error_code, f"topic {one.name}", one.error_message)
                for one in answer.responses
            }

        await self._settle(names, attempt)

    async def delete_topics_by_id(self, topic_ids: Iterable[str]) -> None:
        """Deletes topics by id, so that a topic that was created again under the same name is not affected."""
        raw = {topic_id: parse_uuid(topic_id) for topic_id in topic_ids}

        async def attempt(topic_ids: list[str]) -> dict[str, RefusedError | None]:
            connection = await self._cluster.controller_connection()
            why = "delete topics by id"
            version = version_of(connection, DeleteTopicsRequest, since=_DELETE_BY_ID_SINCE, why=why)
            asked = [DeletableTopic(name=None, topic_id=raw[topic_id]) for topic_id in topic_ids]
            request = DeleteTopicsRequest(topics=asked, timeout_ms=self._timeout_ms)
            answer = await connection.send(request, DeleteTopicsResponse, version=version)
            return {
                format_uuid(one.topic_id): refusal(
                    one.error_code, f"topic with id {format_uuid(one.topic_id)}", one.error_message
                )
                for one in answer.responses
            }

        await self._settle(raw, attempt)

    async def create_partitions(
        self, totals: Mapping[str, int | NewPartitions], *, validate_only: bool = False
    ) -> None:
        """Adds partitions to topics, up to these totals. Returns when they can be used, as in `create_topics`."""
        wanted = {name: NewPartitions(one) if isinstance(one, int) else one for name, one in totals.items()}

        async def attempt(names: list[str]) -> dict[str, RefusedError | None]:
            asked = [_more_partitions(name, wanted[name]) for name in names]
            request = CreatePartitionsRequest(topics=asked, timeout_ms=self._timeout_ms, validate_only=validate_only)
            answer = await self._cluster.send_to_controller(request, CreatePartitionsResponse)
            return {one.name: refusal(one.error_code, f"topic {one.name}", one.error_message) for one in answer.results}

        await self._settle(wanted, attempt)
        if not validate_only:
            await self._until_visible({name: one.total for name, one in wanted.items()})

    async def list_topics(self, *, include_internal: bool = False) -> list[TopicDescription]:
        """All topics by name, with their metadata; internal ones on request."""
        topics = await self._cluster.retry(lambda: self._metadata(None))
        found = [topic for topic in topics.values() if isinstance(topic, TopicDescription)]
        return sorted((one for one in found if include_internal or not one.is_internal), key=lambda one: one.name)

    async def describe_topics(
        self, names: Iterable[str], *, include_authorized_operations: bool = False, page_size: int = 2000
    ) -> dict[str, TopicDescription]:
        """The partitions of topics. Requested in pages of this many partitions, if the broker supports it."""

        async def attempt(names: list[str]) -> dict[str, TopicDescription | RefusedError]:
            connection = await self._cluster.any_connection()
            if DescribeTopicPartitionsRequest.api_key in connection.served:
                return await _pages(connection, names, page_size)
            asked = [MetadataTopic(name=name) for name in names]
            return await self._metadata(asked, operations=include_authorized_operations)

        return await self._settle(names, attempt)

    async def describe_topics_by_id(self, topic_ids: Iterable[str]) -> dict[str, TopicDescription]:
        """The partitions of topics, by topic id."""
        raw = {topic_id: parse_uuid(topic_id) for topic_id in topic_ids}

        async def attempt(topic_ids: list[str]) -> dict[str, TopicDescription | RefusedError]:
            return await self._metadata([MetadataTopic(name=None, topic_id=raw[one]) for one in topic_ids], by_id=True)

        return await self._settle(raw, attempt)

    async def _metadata(
        self, topics: list[MetadataTopic] | None, *, operations: bool = False, by_id: bool = False
    ) -> dict[str, TopicDescription | RefusedError]:
        connection = await self._cluster.any_connection()
        since, why = (_DESCRIBE_BY_ID_SINCE, "describe topics by id") if by_id else (0, "")
        version = version_of(connection, MetadataRequest, since=since, why=why)
        request = MetadataRequest(
            topics=topics,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=operations and version >= _OPERATIONS_SINCE,
        )
        answer = await connection.send(request, MetadataResponse, version=version)
        raise_if_refused(answer.error_code, "cluster metadata")
        found: dict[str, TopicDescription | RefusedError] = {}
        for topic in answer.topics:
            name = format_uuid(topic.topic_id) if by_id else topic.name or ""
            subject = f"topic with id {name}" if by_id else f"topic {name}"
            found[name] = refusal(topic.error_code, subject) or _described(topic, topic.partitions)
        return found


async def _pages(
    connection: ClientConnection, names: list[str], page_size: int
) -> dict[str, TopicDescription | RefusedError]:
    topics: dict[str, DescribedTopic] = {}
    cursor: TopicPartitionsCursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsTopic(name=name) for name in names],
            response_partition_limit=page_size,
            cursor=cursor,
        )
        answer = await connection.send(request, DescribeTopicPartitionsResponse)
        for topic in answer.topics:
            begun = topics.setdefault(topic.name or "", topic)
            if begun is not topic:
                begun.partitions += topic.partitions
        cursor = answer.next_cursor
        if cursor is None:
            break
        # Topics come in the order of their names, and a cursor must stand at one of those that are asked for.
        names = [name for name in names if name >= cursor.topic_name]
    return {
        name: refusal(topic.error_code, f"topic {name}") or _described(topic, topic.partitions)
        for name, topic in topics.items()
    }


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=BROKERS_DEFAULT if topic.partitions is None else topic.partitions,
        replication_factor=BROKERS_DEFAULT if topic.replication_factor is None else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(broker_ids))
            for index, broker_ids in (topic.assignments or {}).items()
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def _has_defaults(topic: CreatableTopic) -> bool:
    """Whether a number is left to the broker."""
    return not topic.assignments and BROKERS_DEFAULT in (topic.num_partitions, topic.replication_factor)


def _more_partitions(name: str, wanted: NewPartitions) -> CreatePartitionsTopic:
    assignments = None
    if wanted.assignments is not None:
        assignments = [CreatePartitionsAssignment(broker_ids=list(broker_ids)) for broker_ids in wanted.assignments]
    return CreatePartitionsTopic(name=name, count=wanted.total, assignments=assignments)


def _described(
    topic: MetadataTopicResponse | DescribedTopic,
    partitions: Sequence[MetadataPartitionResponse] | Sequence[DescribedPartition],
) -> TopicDescription:
    return TopicDescription(
        topic.name or "",
        _text(topic.topic_id),
        topic.is_internal,
        tuple(sorted(map(PartitionDescription.of, partitions), key=lambda partition: partition.index)),
        operations_of(topic.topic_authorized_operations),
    )


def _text(topic_id: Uuid) -> str | None:
    return None if topic_id == ZERO_UUID else format_uuid(topic_id)


def _tuple(broker_ids: list[int] | None) -> tuple[int, ...] | None:
    return None if broker_ids is None else tuple(broker_ids)
