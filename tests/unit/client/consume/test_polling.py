"""Polls of both faces: their arguments, their end, pauses, and what they do when they are cut short."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection
from typing import Any

import numpy as np
import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.consume import AsyncConsumer, Consumer, ConsumerRecord
from ottla.client.errors import ClientError, ClosedError, WakeupError
from ottla.client.offsets import offset_of
from ottla.client.subscriptions.listeners import RebalanceListener
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest
from ottla.wire.messages.list_offsets import ListOffsetsRequest
from ottla.wire.messages.offset_commit import OffsetCommitRequest
from support.clients.scripted_broker import Answer, Silence
from support.waiting import until
from unit.client.consume.scripted_log import TOPIC, Partition, ScriptedLog, batch, by_partition, config_for
from unit.client.consume.test_fetcher import EVENTS, read
from unit.client.membership.scripted_group import ScriptedGroup
from unit.client.test_cluster import run

OTHER = TopicPartition(TOPIC, 1)


class SilentGroup(ScriptedGroup):
    """A coordinator that lets nobody join."""

    def _act(self, request: Any) -> Answer | None:
        return Silence() if isinstance(request, JoinGroupRequest) else super()._act(request)


@pytest.mark.parametrize("is_blocking", [True, False], ids=["blocking", "asyncio"])
def test_a_poll_ends_with_a_closed_error_when_another_closes_the_consumer(is_blocking: bool) -> None:
    async def scenario() -> None:
        async with SilentGroup() as broker:
            settings = config_for(broker, group_id="g")
            if is_blocking:
                consumer = await asyncio.to_thread(lambda: Consumer(settings))
                await asyncio.to_thread(consumer.subscribe, ["events"])
                polling = asyncio.create_task(asyncio.to_thread(consumer.poll))
                await until(lambda: broker.of(JoinGroupRequest))
                await asyncio.to_thread(consumer.close)
            else:
                other = AsyncConsumer(settings)
                other.subscribe(["events"])
                polling = asyncio.create_task(other.poll())
                await until(lambda: broker.of(JoinGroupRequest))
                await other.close()
            with pytest.raises(ClosedError):
                await polling

    run(scenario)


def test_an_asyncio_poll_that_is_cancelled_is_cancelled() -> None:
    async def scenario() -> None:
        async with SilentGroup() as broker, AsyncConsumer(config_for(broker, group_id="g")) as consumer:
            consumer.subscribe(["events"])
            polling = asyncio.create_task(consumer.poll())
            await until(lambda: broker.of(JoinGroupRequest))
            polling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await polling

    run(scenario)


def test_a_poll_that_is_cancelled_at_any_step_loses_nothing() -> None:
    async def scenario() -> None:
        log = ScriptedLog(Partition([batch(0, 5), batch(5, 5)], end=10, chunk=len(batch(0, 5)) + 20))
        async with log.broker() as broker:
            for steps in range(40):
                async with AsyncConsumer(config_for(broker)) as consumer:
                    consumer.assign([EVENTS])
                    records: list[ConsumerRecord] = []
                    while len(records) < 10:
                        polling = asyncio.create_task(consumer.poll(5))
                        for _ in range(steps):
                            await asyncio.sleep(0)
                        polling.cancel()
                        try:
                            records += await polling
                        except asyncio.CancelledError:
                            records += await consumer.poll(5)
                    assert [record.offset for record in records] == list(range(10))

    run(scenario)


@pytest.mark.parametrize("most", [0, -1])
def test_fewer_records_than_one_cannot_be_asked_for(most: int) -> None:
    async def scenario() -> None:
        log = ScriptedLog(Partition([batch(0, 5)], end=5))
        async with log.broker() as broker, AsyncConsumer(config_for(broker)) as consumer:
            consumer.assign([EVENTS])
            with pytest.raises(ValueError, match=f"max_records must be at least 1, not {most}"):
                await consumer.poll(5, max_records=most)

    run(scenario)


class NothingPasses:
    """An interceptor that filters everything out, and counts."""

    def __init__(self) -> None:
        self.calls = 0

    def on_consume(self, _records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        self.calls += 1
        return []


def test_a_poll_of_which_everything_is_filtered_out_ends_in_time() -> None:
    async def scenario() -> None:
        nothing = NothingPasses()
        log = ScriptedLog(Partition([batch(0, 100)], end=100))
        settings = {"max_poll_records": 1, "interceptors": [nothing]}
        async with log.broker() as broker, AsyncConsumer(config_for(broker, **settings)) as consumer:
            consumer.assign([EVENTS])
            consumer.subscriptions.state(EVENTS)
            await until(lambda: consumer.buffer.has_news)
            assert await consumer.poll(0) == []
            assert nothing.calls <= 2

    run(scenario)


@pytest.mark.parametrize("face", ["poll", "iterate", "arrow"])
def test_the_rest_of_an_iteration_of_a_paused_partition_is_kept(face: str) -> None:
    async def scenario() -> None:
        log = ScriptedLog(Partition([batch(0, 9)], end=9), Partition([batch(0, 9)], end=9))
        async with log.broker() as broker, AsyncConsumer(config_for(broker)) as consumer:
            consumer.assign([EVENTS, OTHER])
            seen: list[ConsumerRecord] = []
            async for record in consumer:
                seen.append(record)
                if len(seen) == 3:
                    break
            paused = TopicPartition(TOPIC, seen[0].partition)
            consumer.pause([paused])
            if face == "poll":
                others = await read(consumer, 9)
            elif face == "iterate":
                others = [record async for record in _some(consumer, 9)]
            else:
                others = [ConsumerRecord(*row) for row in _rows(await consumer.poll_arrow(5))]
            assert by_partition(others) == {1 - paused.partition: list(range(9))}
            assert await consumer.position(paused) == 3
            consumer.resume([paused])
            assert by_partition(await read(consumer, 6)) == {paused.partition: [3, 4, 5, 6, 7, 8]}

    run(scenario)


async def _some(consumer: AsyncConsumer, count: int) -> Any:
    async for record in consumer:
        yield record
        count -= 1
        if not count:
            return


def _rows(table: Any) -> list[tuple[Any, ...]]:
    return [
        (row["topic"], row["partition"], row["offset"], 0, 0, row["key"], row["value"], ()) for row in table.to_pylist()
    ]


def test_a_poll_after_a_broken_off_iteration_is_not_committed_before_it_is_done_with() -> None:
    async def scenario() -> None:
        log = ScriptedLog(Partition([batch(0, 9)], end=9))
        async with log.broker() as broker, AsyncConsumer(config_for(broker)) as consumer:
            consumer.assign([EVENTS])
            async for _ in consumer:
                break
            assert [record.offset for record in await consumer.poll(5, max_records=4)] == [1, 2, 3, 4]
            assert consumer.subscriptions.consumed()[EVENTS].offset == 1
            assert consumer.subscriptions.positions()[EVENTS].offset == 5

    run(scenario)


@pytest.mark.parametrize(("duration", "first"), [("PT1H", 2), ("P1D", 0), ("PT0S", 4)])
def test_a_reset_can_go_back_by_a_duration(duration: str, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script finds the record at 1000 ms and its offset."""
    now_ms = 3_600_000 + 1002
    monkeypatch.setattr(time, "time_ns", lambda: now_ms * 1_000_000)

    async def scenario() -> None:
        log = ScriptedLog(Partition([batch(0, 4)], end=4))
        settings = {"auto_offset_reset": f"by_duration:{duration}"}
        async with log.broker() as broker, AsyncConsumer(config_for(broker, **settings)) as consumer:
            consumer.assign([EVENTS])
            assert await consumer.position(EVENTS) == first
            (asked,) = (one for one in broker.of(ListOffsetsRequest)[:1] if isinstance(one, ListOffsetsRequest))
            expected_ms = {"PT1H": 1002, "P1D": 0, "PT0S": now_ms}[duration]
            assert asked.topics[0].partitions[0].timestamp == expected_ms

    run(scenario)


def test_numbers_of_numpy_are_numbers() -> None:
    async def scenario() -> None:
        log = ScriptedLog(Partition([batch(0, 9)], end=9))
        async with log.broker() as broker, AsyncConsumer(config_for(broker)) as consumer:
            given: Any = TopicPartition(TOPIC, np.int64(0))  # type: ignore[arg-type]
            consumer.assign([given])
            consumer.seek(given, np.int64(3), until=np.int32(7))  # type: ignore[arg-type]
            records = await consumer.poll(5, max_records=np.int64(2))  # type: ignore[arg-type]
            assert [record.offset for record in records] == [3, 4]
            assert type(records[0].partition) is int
            assert type(next(iter(consumer.assignment())).partition) is int
            assert await consumer.offsets_for_times({given: np.int64(1007)}) == {EVENTS: (7, 1007, 0)}  # type: ignore[dict-item]
            assert type(offset_of(np.int64(3)).offset) is int  # type: ignore[arg-type]

    run(scenario)


class MuteGroup(ScriptedGroup):
    """A coordinator that answers no commits."""

    def _act(self, request: Any) -> Answer | None:
        return Silence() if isinstance(request, OffsetCommitRequest) else super()._act(request)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("is_cancelled", [True, False], ids=["cancelled", "timed out"])
def test_nothing_goes_on_after_a_close_that_had_no_time(protocol: str, is_cancelled: bool) -> None:
    async def scenario() -> None:
        async with MuteGroup() as broker:
            consumer: AsyncConsumer[Any, Any] = AsyncConsumer(config_for(broker, group_id="g", group_protocol=protocol))
            consumer.subscribe(["events"])
            while not consumer.assignment():
                await consumer.poll(0.01)
            consumer.commit_async({EVENTS: 5})
            await until(lambda: broker.of(OffsetCommitRequest))
            closing = asyncio.create_task(consumer.close(60 if is_cancelled else 0.01))
            await asyncio.sleep(0)
            if is_cancelled:
                closing.cancel()
            with pytest.raises(asyncio.CancelledError if is_cancelled else ClientError):
                await closing
            assert [task for task in asyncio.all_tasks() if task.get_name().startswith("ottla-")] == []

    run(scenario)


@pytest.mark.parametrize("woken_in", ["assigned", "revoked"])
def test_wakeup_lets_a_listener_finish(woken_in: str) -> None:
    """What it was told counts: it is not told again."""

    async def scenario() -> None:
        told: list[str] = []
        finished: list[str] = []

        class Listener(RebalanceListener):
            async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
                await self._hear("assigned", partitions)

            async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
                await self._hear("revoked", partitions)

            async def _hear(self, what: str, partitions: Collection[TopicPartition]) -> None:
                told.append(f"{what} {len(partitions)}")
                if what == woken_in:
                    consumer.wakeup()
                    for _ in range(5):
                        await asyncio.sleep(0)
                    finished.append(what)

        async def poll_until_told(what: list[str]) -> None:
            while len(told) < len(what):
                with contextlib.suppress(WakeupError):
                    await consumer.poll(0.05)
            assert told == what

        broker = ScriptedGroup()
        settings = {"group_id": "g", "heartbeat_interval_ms": 10}
        async with broker, AsyncConsumer(config_for(broker, **settings)) as consumer:
            consumer.subscribe(["events"], Listener())
            await poll_until_told(["assigned 1"])
            broker.bad[HeartbeatRequest] = [ErrorCode.REBALANCE_IN_PROGRESS]
            await poll_until_told(["assigned 1", "revoked 1", "assigned 1"])
            assert set(finished) == {woken_in}
            consumer.wakeup()
            with pytest.raises(WakeupError):
                await consumer.poll(5)

    run(scenario)
