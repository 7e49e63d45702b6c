"""A transaction coordinator without a broker: its log, time, markers and producer ids are in a test's hands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.transactions.seams import EndMarker
from ottla.coordinator.transactions.service import TransactionCoordinatorService
from ottla.coordinator.transactions.settings import TransactionSettings
from ottla.coordinator.transactions.shard import TransactionShard
from ottla.coordinator.transactions.transaction import ProducerIdentity, Transaction
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from support.coordinators.classic_members import FakeCaller
from support.coordinators.fake_log import FakeLog
from support.coordinators.simulated_time import SimulatedTime

R = TypeVar("R")

SETTINGS = TransactionSettings(
    max_timeout_ms=900_000,
    id_expiration_ms=604_800_000,
    abort_interval_ms=10_000,
    remove_expired_interval_ms=3_600_000,
    two_phase_commit=True,
)
T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
OFFSETS = TopicPartition("__consumer_offsets", 7)
_TURNS = 12


@dataclass(slots=True)
class FakeIds:
    """Producer ids 1000, 1001, …; or an error."""

    next: int = 1000
    error: ErrorCode | None = None
    asked: int = 0

    async def next_id(self) -> int:
        self.asked += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise CoordinatorError(self.error)
        self.next += 1
        return self.next - 1


@dataclass(slots=True, eq=False)
class FakeMarkerWrite:
    marker: EndMarker
    partitions: frozenset[TopicPartition]
    done: Callable[[ErrorCode], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


@dataclass(slots=True)
class FakeMarkers:
    """Markers that a test writes by hand."""

    writes: list[FakeMarkerWrite] = field(default_factory=list)
    are_written_now: bool = False
    """Whether this broker leads every partition, and has its only replica."""
    written_now: list[tuple[EndMarker, frozenset[TopicPartition]]] = field(default_factory=list)

    def write(
        self, marker: EndMarker, partitions: Collection[TopicPartition], done: Callable[[ErrorCode], None]
    ) -> FakeMarkerWrite:
        write = FakeMarkerWrite(marker, frozenset(partitions), done)
        self.writes.append(write)
        return write

    def write_now(self, marker: EndMarker, partitions: Collection[TopicPartition]) -> bool:
        if self.are_written_now:
            self.written_now.append((marker, frozenset(partitions)))
        return self.are_written_now

    def finish(self, error: ErrorCode = ErrorCode.NONE) -> EndMarker:
        """The oldest is written."""
        write = self.writes.pop(0)
        if not write.is_cancelled:
            write.done(error)
        return write.marker


@dataclass(slots=True)
class FakeGroups:
    error: ErrorCode | None = None

    def offsets_partition_of(self, _group_id: str) -> TopicPartition:
        if self.error is not None:
            raise CoordinatorError(self.error)
        return OFFSETS


class Transactional:
    """Asks the coordinator. `settle` lets all happen that need not wait for time."""

    def __init__(self, settings: TransactionSettings = SETTINGS, log: FakeLog | None = None) -> None:
        self.time = SimulatedTime()
        self.log = log or FakeLog()
        self.ids = FakeIds()
        self.markers = FakeMarkers()
        self.groups = FakeGroups()
        self.missing: set[TopicPartition] = set()
        self.coordinator = TransactionCoordinatorService(
            self.log,
            self.time,
            self.time,
            settings,
            self.ids,
            self.markers,
            self.groups,
            lambda partition: partition not in self.missing,
        )
        self.coordinator.lead(0, 5)

    async def settle(self) -> None:
        for _ in range(_TURNS):
            await asyncio.sleep(0)
            self.time.advance_ms(0)

    async def pass_ms(self, duration_ms: int) -> None:
        await self.settle()
        self.time.advance_ms(duration_ms)
        await self.settle()

    async def start(self, answer: R | Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        """A request that may have to wait."""

        async def answered() -> R:
            return await answer if isinstance(answer, Coroutine) else answer

        task = asyncio.create_task(answered())
        await self.settle()
        return task

    @property
    def shard(self) -> TransactionShard:
        return self.coordinator.runtime.active_shards()[0]

    def transaction(self, transactional_id: str = "x") -> Transaction:
        return self.shard.transactions[transactional_id]

    async def loaded_again(self, settings: TransactionSettings = SETTINGS) -> Transactional:
        """Another coordinator, of what the log holds now."""
        other = Transactional(settings, self.log.copy())
        await other.settle()
        return other

    # --- requests ---------------------------------------------------------------------------------------------------

    async def init(
        self,
        transactional_id: str = "x",
        *,
        expected: ProducerIdentity | None = None,
        version: int = 6,
        timeout_ms: int = 60_000,
        **changes: Any,
    ) -> asyncio.Task[InitProducerIdResponse]:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, **changes)
        if expected is not None:
            request.producer_id, request.producer_epoch = expected
        return await self.start(self.coordinator.init_producer_id(request, FakeCaller(version)))

    async def owner(self, transactional_id: str = "x", **changes: Any) -> ProducerIdentity:
        """A producer that has started."""
        response = (await self.init(transactional_id, **changes)).result()
        assert response.error_code == ErrorCode.NONE
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    async def add_old(
        self, owner: ProducerIdentity, *partitions: TopicPartition, version: int = 3, transactional_id: str = "x"
    ) -> asyncio.Task[dict[TopicPartition, ErrorCode]]:
        """As a producer of the old protocol does."""
        topics = [AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in partitions]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=owner.producer_id,
            v3_and_below_producer_epoch=owner.producer_epoch,
            v3_and_below_topics=topics,
        )
        answer = self.coordinator.add_partitions(request, FakeCaller(version))

        async def errors() -> dict[TopicPartition, ErrorCode]:
            response = await answer if isinstance(answer, Coroutine) else answer
            return {
                TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
                for topic in response.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            }

        return await self.start(errors())

    async def confirm(
        self,
        owner: ProducerIdentity,
        *partitions: TopicPartition,
        verify_only: bool = False,
        transactional_id: str = "x",
    ) -> asyncio.Task[dict[TopicPartition, ErrorCode]]:
        return await self.start(self.coordinator.confirm(transactional_id, *owner, partitions, verify_only=verify_only))

    async def add_offsets(self, owner: ProducerIdentity, *, version: int = 3) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id="x",
            producer_id=owner.producer_id,
            producer_epoch=owner.producer_epoch,
            group_id="g",
        )
        task = await self.start(self.coordinator.add_offsets(request, FakeCaller(version)))
        return ErrorCode(task.result().error_code)

    async def end(
        self, owner: ProducerIdentity, *, committed: bool = True, version: int = 5, transactional_id: str = "x"
    ) -> asyncio.Task[EndTxnResponse]:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=owner.producer_id,
            producer_epoch=owner.producer_epoch,
            committed=committed,
        )
        return await self.start(self.coordinator.end(request, FakeCaller(version)))

    async def ended(
        self, owner: ProducerIdentity, *, committed: bool = True, version: int = 5, transactional_id: str = "x"
    ) -> ErrorCode | ProducerIdentity:
        """The error, or with what the producer goes on."""
        task = await self.end(owner, committed=committed, version=version, transactional_id=transactional_id)
        response = task.result()
        if response.error_code:
            return ErrorCode(response.error_code)
        return ProducerIdentity(response.producer_id, response.producer_epoch)
