"""A poll that Ctrl-C or a signal handler interrupts, wherever that happens: nothing is lost, repeated or locked."""

from __future__ import annotations

import gc
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import count, islice
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.ids import TopicPartition
from ottla.client.config import ConsumerConfig
from ottla.client.consume import Consumer, ConsumerRecord
from ottla.client.consume.decoding import Decoder
from ottla.client.consume.fetch_buffer import FetchBuffer, FetchedChunk
from ottla.client.consume.interceptors import ConsumerInterceptors
from ottla.client.consume.kernels import KERNELS
from ottla.client.consume.reader import PollReader
from ottla.client.subscriptions.subscription import Position, Subscription
from unit.client.consume.scripted_log import TOPIC, batch
from unit.client.interruptions import Interruption

PARTITIONS = [TopicPartition(TOPIC, index) for index in range(2)]
END = 14
PER_CHUNK = 5

cached_batch = cache(batch)


class LoopLess(Consumer):
    """A consumer whose loop is the calling thread: what a poll waits for is there at once."""

    def __init__(self, **settings: object) -> None:
        config = ConsumerConfig.parse(None, {"bootstrap_servers": "localhost:1", **settings})
        self._subscriptions = Subscription()
        self._subscriptions.assign_manually(PARTITIONS)
        for state in self._subscriptions.partitions.values():
            state.seek(Position(0))
        self.buffer = FetchBuffer(self._subscriptions)
        self._reader = PollReader(
            self._subscriptions, self.buffer, Decoder(config), ConsumerInterceptors(config.interceptors)
        )
        self._polling = threading.Lock()
        self._callbacks = deque()
        self._max_poll_records = config.max_poll_records
        self._core = SimpleNamespace(is_due=False, is_done=False)  # type: ignore[assignment]
        self._thread = SimpleNamespace(is_open=True, run=self._run)  # type: ignore[assignment]

    def _wait(self, end_s: float | None) -> Any:  # no coroutine: none is left unawaited
        return end_s

    def _run(self, _work: object) -> bool:
        """In place of the loop: fetches, two chunks of each partition at most."""
        for state in self._subscriptions.partitions.values():
            assert state.fetched is not None
            while len(state.waiting) < 2 and state.fetched.offset < END:
                begin = state.fetched.offset // PER_CHUNK * PER_CHUNK
                position = Position(min(begin + PER_CHUNK, END))
                data = cached_batch(begin, position.offset - begin)
                self.buffer.put(FetchedChunk(state, state.generation, data, next_=position))
                state.fetched = position
        return self.buffer.has_news

    def offsets(self) -> dict[TopicPartition, int]:
        """What a commit would commit."""
        return {partition: one.offset for partition, one in self._subscriptions.positions().items()}


Read = Callable[[LoopLess], list[tuple[int, int]]]


def poll(consumer: LoopLess) -> list[tuple[int, int]]:
    records = consumer.poll(0)
    return [(record.partition, record.offset) for record in records]


def poll_arrow(consumer: LoopLess) -> list[tuple[int, int]]:
    table = consumer.poll_arrow(0, columns=["partition", "offset"])
    return list(zip(*table.to_pydict().values(), strict=True))


class Filter:
    """An interceptor that keeps everything."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        return list(records)


@pytest.mark.parametrize(
    ("read", "settings"),
    [
        pytest.param(poll, {}, id="bytes"),
        pytest.param(poll, {"max_poll_records": 3}, id="few at a time"),
        pytest.param(poll, {"value_deserializer": "string", "max_poll_records": 3}, id="deserialized"),
        pytest.param(poll, {"interceptors": [Filter()]}, id="intercepted"),
        pytest.param(poll_arrow, {}, id="arrow"),
    ],
)
def test_an_interrupted_poll_gives_all_its_records_later(read: Read, settings: dict[str, object]) -> None:
    KERNELS.load()
    for number in count():
        consumer, interruption = LoopLess(**settings), Interruption(number)
        seen: dict[int, list[int]] = defaultdict(list)
        while sum(map(len, seen.values())) < 2 * END:
            records: list[tuple[int, int]] = []
            try:
                with interruption:
                    records = read(consumer)
            except KeyboardInterrupt:
                assert gc.isenabled(), interruption.where
                assert not consumer._polling.locked(), interruption.where
            else:
                assert records, interruption.where
            for partition, offset in records:
                seen[partition].append(offset)
            expected = {one: seen[one.partition][-1] + 1 if seen[one.partition] else 0 for one in PARTITIONS}
            assert consumer.offsets() == expected, interruption.where
        assert seen == {0: list(range(END)), 1: list(range(END))}, interruption.where
        assert all(state.waiting_bytes == 0 for state in consumer._subscriptions.partitions.values())
        if not interruption.happened:
            return


@pytest.mark.parametrize("rest", [poll, poll_arrow, None], ids=["then poll", "then poll_arrow", "then iterate"])
def test_an_interrupted_iteration_gives_all_its_records_later(rest: Read | None) -> None:
    KERNELS.load()
    for number in count():
        consumer, interruption = LoopLess(max_poll_records=4), Interruption(number)
        seen: dict[int, list[int]] = defaultdict(list)
        iterations: list[Iterator[ConsumerRecord]] = []  # kept, so that none ends where it is interrupted
        while sum(map(len, seen.values())) < 2 * END:
            missing = 2 * END - sum(map(len, seen.values()))
            try:
                with interruption:
                    if rest is not None and missing < END:
                        for partition, offset in rest(consumer):
                            seen[partition].append(offset)
                    else:
                        iterations.append(iter(consumer))
                        for record in islice(iterations[-1], min(3, missing)):
                            seen[record.partition].append(record.offset)
            except KeyboardInterrupt:
                assert not consumer._polling.locked(), interruption.where
            expected = {one: seen[one.partition][-1] + 1 if seen[one.partition] else 0 for one in PARTITIONS}
            assert consumer.offsets() == expected, interruption.where
        assert seen == {0: list(range(END)), 1: list(range(END))}, interruption.where
        if not interruption.happened:
            return


def test_positions_asked_for_after_an_interruption_can_be_interrupted_as_well() -> None:
    for number in count():
        consumer, interruption = LoopLess(), Interruption(number)
        consumer._run(None)
        # A poll that got as far as it can without giving anything.
        assert consumer._reader.take(5)
        try:
            with interruption:
                assert consumer.offsets() == dict.fromkeys(PARTITIONS, 0)
        except KeyboardInterrupt:
            assert not consumer.buffer.lock.locked(), interruption.where
        assert consumer.offsets() == dict.fromkeys(PARTITIONS, 0), interruption.where
        seen: dict[int, list[int]] = defaultdict(list)
        while sum(map(len, seen.values())) < 2 * END:
            for partition, offset in poll(consumer):
                seen[partition].append(offset)
        assert seen == {0: list(range(END)), 1: list(range(END))}, interruption.where
        if not interruption.happened:
            return


def _tell_offsets(consumer: LoopLess, told: list[dict[TopicPartition, int]]) -> None:
    told.append(consumer.offsets())


class StrictLock:
    """Raises where a thread would wait for itself for ever."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        assert self._lock.acquire(blocking=False), "the lock is held already"

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.mark.parametrize("read", [poll, poll_arrow], ids=["records", "arrow"])
def test_positions_can_be_asked_for_in_the_middle_of_a_poll(read: Read) -> None:
    """By signal handlers, interceptors and deserializers, and for metrics by other threads."""
    KERNELS.load()
    for number in count():
        consumer = LoopLess(max_poll_records=3)
        consumer._subscriptions.lock = consumer.buffer.lock = StrictLock()  # type: ignore[assignment]
        told: list[dict[TopicPartition, int]] = []
        asking = Interruption(number, partial(_tell_offsets, consumer, told))
        seen: dict[int, list[int]] = defaultdict(list)
        while sum(map(len, seen.values())) < 2 * END:
            before = consumer.offsets()
            with asking:
                records = read(consumer)
            assert told in ([], [before]), asking.where
            told.clear()
            for partition, offset in records:
                seen[partition].append(offset)
        assert seen == {0: list(range(END)), 1: list(range(END))}, asking.where
        if not asking.happened:
            return


def test_a_consumer_can_be_closed_in_the_middle_of_a_poll() -> None:
    """By a signal handler: the loop must not wait for what the interrupted thread has locked."""
    for number in count():
        consumer = LoopLess()
        assert poll(consumer)
        consumer._run(None)
        consumer._subscriptions.lock = consumer.buffer.lock = StrictLock()  # type: ignore[assignment]
        before = consumer.offsets()
        closing = Interruption(number, consumer._subscriptions.settle_all)
        with closing:
            poll(consumer)
        consumed = {one: offset.offset for one, offset in consumer._subscriptions.consumed().items()}
        assert consumed == before, closing.where
        if not closing.happened:
            return
