"""Which coordinator is asked about a batch, and what producers are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.broker.coordinators.coordinator_log import ReplicatedCoordinatorLog
from ottla.broker.metadata.metadata_cache import BrokerEndpoint, TopicChange
from ottla.broker.transactions.coordinator_queries import TransactionKey
from ottla.broker.transactions.verification import VerifiedBatch, Verifier, produce_failure
from ottla.controller.state import PartitionState
from ottla.replication.partition import Partition
from support.brokers.small_broker import BROKER_ID, TOPIC_ID, SmallBroker, small_broker
from support.waiting import until

NONE = ErrorCode.NONE
TOPIC = "__transaction_state"
OTHER = 2
PRODUCER = (5, 0, 0)


class World:
    """`answers` are those of coordinators, in turn; the last one goes on."""

    def __init__(self, broker: SmallBroker) -> None:
        self.broker = broker
        (self.partition,) = broker.topic("orders")
        log = ReplicatedCoordinatorLog(TOPIC, broker.replicas, broker.metadata, commit_timeout_ms=1000)
        loop = asyncio.get_running_loop()
        self.verifier = Verifier(
            self,
            log,
            broker.replicas,
            broker.metadata,
            broker.clock,
            loop,
            loop.create_task,
            self,  # type: ignore[arg-type]
        )
        self.answers = [NONE]
        self.asked: list[tuple[int, TransactionKey]] = []

        self.failure: Exception | None = None

    def _answer(self) -> ErrorCode:
        if self.failure is not None:
            raise self.failure
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def confirm(
        self, *key: Any, verify_only: bool
    ) -> dict[TopicPartition, ErrorCode] | Coroutine[Any, Any, dict[TopicPartition, ErrorCode]]:
        """The own coordinator."""
        self.asked.append((BROKER_ID, TransactionKey(key[0], key[1], key[2], verify_only)))
        return {key[3][0]: self._answer()}

    def ask(self, broker_id: int, key: TransactionKey, _: TopicPartition, tell: Callable[[ErrorCode], None]) -> None:
        """One on another broker."""
        self.asked.append((broker_id, key))
        asyncio.get_running_loop().call_soon(tell, self._answer())

    def elsewhere(self, leader: int = OTHER) -> None:
        endpoints = [("PLAINTEXT", BrokerEndpoint(each, "host", each)) for each in (BROKER_ID, OTHER)]
        state = PartitionState((OTHER,), leader, 0, (OTHER,), 1, 0)
        self.broker.metadata.update(1, endpoints, [TopicChange(TOPIC, TOPIC_ID, {0: state})])

    def batch(self, *, adds: bool = False) -> VerifiedBatch:
        batch = self.verifier.part(self.partition, "payments", PRODUCER, adds=adds)
        assert batch is not None
        return batch

    async def outcome(self, *, adds: bool = False) -> ErrorCode:
        batch = self.batch(adds=adds)
        settled: list[bool] = []
        if not batch.is_settled():
            batch.when_settled(lambda: settled.append(True))
            await until(lambda: settled, "the coordinator does not answer")
        return batch.failure_code


Test = Callable[[World], Coroutine[Any, Any, None]]


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Test], None]:
    def run(test: Test) -> None:
        async def main() -> None:
            with small_broker(tmp_path) as broker:
                await asyncio.wait_for(test(World(broker)), 30)

        asyncio.run(main())

    return run


Run = Callable[[Test], None]


def test_without_a_coordinator_it_is_not_available(run: Run) -> None:
    async def test(world: World) -> None:
        assert await world.outcome() is ErrorCode.COORDINATOR_NOT_AVAILABLE
        world.elsewhere(leader=-1)
        assert await world.outcome() is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.asked == []
        assert world.verifier.stats.failures == 2

    run(test)


@pytest.mark.parametrize("adds", [False, True])
def test_the_own_coordinator_is_asked_by_a_call(run: Run, adds: bool) -> None:
    async def test(world: World) -> None:
        world.broker.topic(TOPIC)
        assert world.batch(adds=adds).is_settled()
        assert world.asked == [(BROKER_ID, TransactionKey("payments", 5, 0, not adds))]
        world.answers = [ErrorCode.TRANSACTION_ABORTABLE]
        assert await world.outcome() is ErrorCode.TRANSACTION_ABORTABLE

    run(test)


@pytest.mark.parametrize("adds", [False, True])
def test_another_broker_is_asked_by_a_request(run: Run, adds: bool) -> None:
    async def test(world: World) -> None:
        world.elsewhere()
        batch = world.batch(adds=adds)
        assert not batch.is_settled()
        assert not batch.is_settled()  # asked once
        assert world.asked == [(OTHER, TransactionKey("payments", 5, 0, not adds))]
        world.answers = [ErrorCode.NOT_COORDINATOR]
        assert await world.outcome() is ErrorCode.NOT_COORDINATOR
        assert world.verifier.stats.asked == 2

    run(test)


def test_another_broker_is_asked_again_while_the_previous_transaction_is_completed(run: Run) -> None:
    async def test(world: World) -> None:
        world.elsewhere()
        concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
        world.answers = [concurrent, concurrent, NONE]
        assert await world.outcome(adds=True) is NONE
        assert len(world.asked) == 3
        world.answers = [concurrent]
        batch = world.batch(adds=True)
        assert not batch.is_settled()
        world.broker.clock.advance_ms(1000)
        await until(lambda: batch.failure_code is concurrent, "it is asked for ever")

    run(test)


def test_one_that_is_settled_before_somebody_waits_is_told(run: Run) -> None:
    async def test(world: World) -> None:
        world.elsewhere()
        batch = world.batch()
        assert not batch.is_settled()
        await until(batch.is_settled, "the coordinator does not answer")
        told: list[bool] = []
        batch.when_settled(lambda: told.append(True))
        assert told == [True]

    run(test)


def test_a_coordinator_that_fails_unexpectedly_holds_up_nothing(run: Run) -> None:
    async def test(world: World) -> None:
        world.broker.topic(TOPIC)
        world.failure = RuntimeError("a defect")
        batch = world.batch()
        assert batch.is_settled()
        assert batch.failure_code is ErrorCode.UNKNOWN_SERVER_ERROR

    run(test)


def test_verification_can_be_disabled_but_not_adding(run: Run) -> None:
    async def test(world: World) -> None:
        partition: Partition = world.partition
        world.verifier.is_enabled = False
        assert world.verifier.part(partition, "payments", PRODUCER, adds=False) is None
        assert world.verifier.part(partition, "payments", PRODUCER, adds=True) is not None
        assert world.verifier.batch(partition, "payments", b"too short", version=12) is None

    run(test)


@pytest.mark.parametrize(
    ("code", "version", "told"),
    [
        (ErrorCode.NETWORK_EXCEPTION, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 3, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.PRODUCER_FENCED, 12, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 12, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_what_producers_are_told(code: ErrorCode, version: int, told: ErrorCode) -> None:
    assert produce_failure(code, version).code is told
