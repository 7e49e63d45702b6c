"""Partitions: offsets, producers, record deletion, leader elections, reassignments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeVar

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.administer.outcomes import Area, by_topic, known, refusal, results_of
from ottla.client.errors import ArgumentError, RefusedError, raise_if_refused
from ottla.client.offsets import Place
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterReassignmentsPartition,
    AlterReassignmentsTopic,
)
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.wire.messages.describe_producers import (
    ActiveProducer,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
)
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, ElectLeadersTopic
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListReassignmentsTopic,
)

V = TypeVar("V")

MAX_TIMESTAMP: Final = Place(-3)
"""The record with the highest timestamp."""
EARLIEST_LOCAL: Final = Place(-4)
"""The first record that is stored locally, not only in remote storage."""
LATEST_TIERED: Final = Place(-5)
"""The last record in remote storage."""
EARLIEST_PENDING_UPLOAD: Final = Place(-6)
"""The first record that is not in remote storage yet."""

_PLACES_SINCE: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_CONSUMER: Final = -1
_ISOLATION_LEVELS: Final = {"read_uncommitted": 0, "read_committed": 1}
_HIGH_WATERMARK: Final = -1
_UNCLEAN_SINCE: Final = 1
_FACTOR_SINCE: Final = 1


class ElectionType(IntEnum):
    """Preferred leader election, or unclean election if no in-sync replica is alive; with Kafka's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """What is at a position; no offset if there is no record, for example after the last one."""

    offset: int | None
    timestamp: int | None
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class ProducerState:
    """The state of an idempotent or transactional producer in a partition."""

    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    last_timestamp: int | None
    coordinator_epoch: int | None
    current_transaction_start_offset: int | None

    @classmethod
    def of(cls, producer: ActiveProducer) -> ProducerState:
        return cls(
            producer.producer_id,
            producer.producer_epoch,
            known(producer.last_sequence),
            known(producer.last_timestamp),
            known(producer.coordinator_epoch),
            known(producer.current_txn_start_offset),
        )


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A reassignment in progress: all current replicas, and those being added and removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class PartitionsArea(Area):
    """Operations on partitions."""

    # What their leaders know.

    async def list_offsets(
        self, places: Mapping[TopicPartition, Place], *, isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, ListedOffset]:
        """The offset at each position: EARLIEST, LATEST, MAX_TIMESTAMP, `Place.at_time(…)`."""
        if isolation_level not in _ISOLATION_LEVELS:
            raise ArgumentError(f"{isolation_level!r} is not an isolation level; use {' or '.join(_ISOLATION_LEVELS)}")
        newest = max(places.values(), key=lambda place: _PLACES_SINCE.get(place, 0), default=None)
        since = 0 if newest is None else _PLACES_SINCE.get(newest, 0)

        async def attempt(
            leader_id: int, some: list[TopicPartition]
        ) -> dict[TopicPartition, ListedOffset | RefusedError]:
            topics = [
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=index, timestamp=places[TopicPartition(topic, index)].timestamp_ms
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(some).items()
            ]
            request = ListOffsetsRequest(
                replica_id=_CONSUMER,
                isolation_level=_ISOLATION_LEVELS[isolation_level],
                topics=topics,
                timeout_ms=self._timeout_ms,
            )
            why = "look up this kind of offset"
            answer = await self._ask(leader_id, request, ListOffsetsResponse, since=since, why=why)
            return {
                (partition := TopicPartition(topic.name, one.partition_index)): refusal(
                    one.error_code, f"partition {partition}"
                )
                or ListedOffset(known(one.offset), known(one.timestamp), known(one.leader_epoch))
                for topic in answer.topics
                for one in topic.partitions
            }

        return await self._settle_at_leaders(places, attempt)

    async def delete_records(self, before: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
        """Deletes the records before these offsets; None means all records. Returns the new log start offset of each
        partition."""

        async def attempt(leader_id: int, some: list[TopicPartition]) -> dict[TopicPartition, int | RefusedError]:
            topics: dict[str, DeleteRecordsTopic] = {}
            for partition in some:
                offset = before[partition]
                topics.setdefault(partition.topic, DeleteRecordsTopic(name=partition.topic)).partitions.append(
                    DeleteRecordsPartition(
                        partition_index=partition.partition, offset=_HIGH_WATERMARK if offset is None else offset
                    )
                )
            request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=self._timeout_ms)
            answer = await self._ask(leader_id, request, DeleteRecordsResponse)
            return {
                (partition := TopicPartition(topic.name, one.partition_index)): refusal(
                    one.error_code, f"partition {partition}"
                )
                or one.low_watermark
                for topic in answer.topics
                for one in topic.partitions
            }

        return await self._settle_at_leaders(before, attempt)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, broker_id: int | None = None
    ) -> dict[TopicPartition, list[ProducerState]]:
        """The active producers of each partition, according to its leader or to the given broker."""

        async def attempt(
            leader_id: int, some: list[TopicPartition]
        ) -> dict[TopicPartition, list[ProducerState] | RefusedError]:
            topics = [
                DescribeProducersTopic(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(some).items()
            ]
            answer = await self._ask(leader_id, DescribeProducersRequest(topics=topics), DescribeProducersResponse)
            return {
                (partition := TopicPartition(topic.name, one.partition_index)): refusal(
                    one.error_code, f"partition {partition}", one.error_message
                )
                or [ProducerState.of(producer) for producer in one.active_producers]
                for topic in answer.topics
                for one in topic.partitions
            }

        if broker_id is None:
            return await self._settle_at_leaders(partitions, attempt)
        return await self._settle(partitions, lambda some: attempt(broker_id, some))

    async def _settle_at_leaders(
        self,
        partitions: Iterable[TopicPartition],
        attempt: Callable[[int, list[TopicPartition]], Awaitable[Mapping[TopicPartition, V | RefusedError]]],
    ) -> dict[TopicPartition, V]:
        async def everywhere(some: list[TopicPartition]) -> dict[TopicPartition, V | RefusedError]:
            found: dict[TopicPartition, V | RefusedError] = {}
            by_leader, refused = await self._by_leader(some)
            found.update(refused)
            for leader_id, its_own in by_leader.items():
                found.update(await attempt(leader_id, its_own))
            return found

        return await self._settle(partitions, everywhere)

    # What the controller decides.

    async def elect_leaders(
        self, election_type: ElectionType, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, bool]:
        """Elects leaders. Returns for each partition whether its leader changed. Without partitions, elects leaders of
        all partitions, and returns only those that changed."""

        async def ask(some: list[TopicPartition] | None) -> dict[TopicPartition, bool | RefusedError]:
            topics = None
            if some is not None:
                topics = [
                    ElectLeadersTopic(topic=topic, partitions=indexes) for topic, indexes in by_topic(some).items()
                ]
            request = ElectLeadersRequest(
                election_type=election_type, topic_partitions=topics, timeout_ms=self._timeout_ms
            )
            since = _UNCLEAN_SINCE if election_type is ElectionType.UNCLEAN else 0
            why = "elect out-of-sync leaders"
            answer = await self._ask_controller(request, ElectLeadersResponse, since=since, why=why)
            raise_if_refused(answer.error_code, f"{election_type.name.lower()} election")
            found: dict[TopicPartition, bool | RefusedError] = {}
            for topic in answer.replica_election_results:
                for one in topic.partition_result:
                    partition = TopicPartition(topic.topic, one.partition_id)
                    if one.error_code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                        found[partition] = one.error_code == ErrorCode.NONE
                    else:
                        found[partition] = RefusedError(one.error_code, f"partition {partition}", one.error_message)
            return found

        if partitions is not None:
            return await self._settle(partitions, ask)
        return results_of(await self._cluster.retry(lambda: ask(None)))

    async def alter_partition_reassignments(
        self,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> None:
        """Starts moving partitions to these brokers, preferred leader first; None cancels a reassignment.
        `list_partition_reassignments` shows the progress."""

        async def attempt(some: list[TopicPartition]) -> dict[TopicPartition, RefusedError | None]:
            topics: dict[str, AlterReassignmentsTopic] = {}
            for partition in some:
                wanted = replicas[partition]
                topics.setdefault(partition.topic, AlterReassignmentsTopic(name=partition.topic)).partitions.append(
                    AlterReassignmentsPartition(
                        partition_index=partition.partition, replicas=None if wanted is None else list(wanted)
                    )
                )
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=self._timeout_ms,
                allow_replication_factor_change=allow_replication_factor_change,
                topics=list(topics.values()),
            )
            answer = await self._ask_controller(
                request,
                AlterPartitionReassignmentsResponse,
                since=0 if allow_replication_factor_change else _FACTOR_SINCE,
                why="reject a change of the replication factor",
            )
            raise_if_refused(answer.error_code, "reassignments", answer.error_message)
            return {
                (partition := TopicPartition(topic.name, one.partition_index)): refusal(
                    one.error_code, f"partition {partition}", one.error_message
                )
                for topic in answer.responses
                for one in topic.partitions
            }

        await self._settle(replicas, attempt)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The reassignments in progress: of these partitions, or all."""
        topics = None
        if partitions is not None:
            topics = [
                ListReassignmentsTopic(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(partitions).items()
            ]

        async def attempt() -> dict[TopicPartition, Reassignment]:
            request = ListPartitionReassignmentsRequest(timeout_ms=self._timeout_ms, topics=topics)
            answer = await self._cluster.send_to_controller(request, ListPartitionReassignmentsResponse)
            raise_if_refused(answer.error_code, "the list of reassignments", answer.error_message)
            return {
                TopicPartition(topic.name, one.partition_index): Reassignment(
                    tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
                )
                for topic in answer.topics
                for one in topic.partitions
            }

        return await self._cluster.retry(attempt)
