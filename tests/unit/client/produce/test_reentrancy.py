"""A signal handler, or a `__del__`, that uses a producer in the middle of a `send` of its own thread: at any place."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from types import FrameType

import pytest

from ottla.client.callbacks import Callbacks
from ottla.client.errors import ClosedError
from ottla.client.loop_thread import LoopThread
from ottla.client.produce.accumulator import Accumulator
from ottla.client.produce.batch import Batch, Outcome
from ottla.client.produce.delivery import Delivery
from ottla.client.produce.producer import Producer
from support.clients.scripted_broker import ScriptedBroker
from unit.client.interruptions import Interruption, every_third
from unit.client.produce.scripted_log import Log, config, settings
from unit.client.produce.test_interruptions import (
    BUFFER_BYTES,
    KINDS,
    RECORDS,
    Kind,
    Row,
    Sending,
    headers,
    in_thread,
    mixed,
    plain,
    row_of,
    rows_of,
)

LOCK_PATIENCE_S = 5.0


class Sent:
    """Deliveries with what they were given for."""

    def __init__(self, sending: Sending) -> None:
        self._sending = sending
        self.rows: list[tuple[Row, Delivery]] = []

    def send(self, kind: Kind, value: bytes) -> None:
        delivery = self._sending.send("events", value, **kind(value))
        assert delivery is not None
        self.rows.append((row_of(kind, value), delivery))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nested_kind", [plain, headers], ids=["plain", "headers"])
@pytest.mark.parametrize("nested_count", [1, 2, 5])
def test_a_send_within_a_send_loses_and_misnumbers_nothing(kind: Kind, nested_kind: Kind, nested_count: int) -> None:
    for number in every_third():
        sending = Sending(kind)
        sent = Sent(sending)

        def handler(sent: Sent = sent) -> None:
            for _ in range(nested_count):
                sent.send(nested_kind, b"7")

        interruption = Interruption(number, handler)
        for record in range(RECORDS):
            with interruption:
                sent.send(kind, b"%d" % record)
        batches = sending.batches()
        in_batches = [row for batch in batches for row in rows_of(batch)]
        where = interruption.where
        # Each delivery has a place of its own, with its record.
        places = {(id(delivery.batch), delivery.index) for _, delivery in sent.rows}
        assert len(places) == len(sent.rows) == len(in_batches), where
        assert all(rows_of(delivery.batch)[delivery.index] == row for row, delivery in sent.rows), where
        once = [value for value, *_ in in_batches if value != b"7"]
        assert once == [b"%d" % record for record in range(RECORDS) if record != 7], where
        assert not any(batch.is_encoding for batch in batches), where
        assert [batch.number for batch in batches] == sorted({batch.number for batch in batches}), where
        assert set(sending.accumulator.unfinished) == set(batches), where
        assert sending.accumulator.active == {sending.queue: None}, where
        reserved = sum(batch.reserved_bytes for batch in batches)
        assert sending.accumulator.free_bytes + reserved == BUFFER_BYTES, where
        if not interruption.happened:
            return


class Loop:
    """What a producer's loop does to one partition, whenever it is asked."""

    def __init__(self, sending: Sending) -> None:
        self._sending = sending
        self.log: list[Row] = []

    def send_all(self) -> None:
        accumulator, queue = self._sending.accumulator, self._sending.queue
        assert accumulator.lock.acquire(timeout=LOCK_PATIENCE_S), "a frame below the one that waits holds the lock"
        try:
            if queue.open is not None:
                accumulator.close(queue.open)
            while queue.ready:
                self._take(queue.ready.popleft())
            accumulator.active.pop(queue, None)
        finally:
            accumulator.lock.release()

    def _take(self, batch: Batch) -> None:
        assert not batch.is_encoding, "nobody will encode it as long as the handler waits"
        if batch.encoded is None:
            batch.encoded = self._sending.core.encoder.encode(batch)
            batch.drop_records()
        rows = rows_of(batch)
        assert len(rows) == batch.count
        self._sending.accumulator.forget(batch)
        batch.settle(Outcome(len(self.log)))
        self.log += rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nested_count", [0, 1, 4])
def test_a_flush_within_a_send_sends_what_was_sent_before(kind: Kind, nested_count: int) -> None:
    for number in every_third():
        sending = Sending(kind)
        sent, loop = Sent(sending), Loop(sending)

        def handler(sending: Sending = sending, sent: Sent = sent, loop: Loop = loop) -> None:
            for _ in range(nested_count):
                sent.send(mixed, b"7")
            before = list(sent.rows)
            sending.accumulator.wait(lambda: in_thread(loop.send_all))
            assert all(delivery.done() for _, delivery in before)

        interruption = Interruption(number, handler)
        for record in range(RECORDS):
            with interruption:
                sent.send(kind, b"%d" % record)
        loop.send_all()
        where = interruption.where
        assert all(loop.log[delivery.result().offset] == row for row, delivery in sent.rows), where
        offsets = sorted(delivery.result().offset for _, delivery in sent.rows)
        assert offsets == list(range(len(loop.log))), where
        once = [value for value, *_ in loop.log if value != b"7"]
        assert once == [b"%d" % record for record in range(RECORDS) if record != 7], where
        assert sending.accumulator.free_bytes == BUFFER_BYTES, where
        assert not sending.accumulator.unfinished, where
        assert not sending.accumulator.full, where
        if not interruption.happened:
            return


def test_a_loop_that_is_being_woken_is_woken_by_what_waits_for_it() -> None:
    loop = LoopThread("the producer")
    for number in count():
        woken: list[bool] = []
        wake = partial(loop.call_soon, woken.append, True)
        accumulator = Accumulator(config(), wake, Callbacks(takes_coroutines=False))

        async def flush(accumulator: Accumulator = accumulator) -> None:
            accumulator.begin_flush()
            await asyncio.sleep(0)

        def handler(accumulator: Accumulator = accumulator, woken: list[bool] = woken) -> None:
            accumulator.wait(lambda: loop.run(flush()))
            assert woken, "the loop sleeps on while the handler waits for it"

        interruption = Interruption(number, handler)
        with interruption:
            accumulator.wake()
        if not interruption.happened:
            break
    loop.close()


def test_a_callback_that_is_added_while_the_batch_is_settled_is_called_once() -> None:
    for number in count():
        sending = Sending(plain)
        loop = Loop(sending)
        called: list[Delivery] = []
        delivery = sending.send("events", b"1")
        assert isinstance(delivery, Delivery)
        interruption = Interruption(number, lambda loop=loop: in_thread(loop.send_all))  # type: ignore[misc]
        with interruption:
            delivery.add_done_callback(called.append)
            delivery.batch.when_done(0, lambda called=called, one=delivery: called.append(one))  # type: ignore[misc]
        loop.send_all()
        assert called == [delivery, delivery], interruption.where
        if not interruption.happened:
            return


@contextmanager
def serving(log: Log) -> Iterator[ScriptedBroker]:
    """A broker in a thread of its own."""
    loop, broker = LoopThread("the broker"), ScriptedBroker(log)
    loop.run(broker.__aenter__())
    try:
        yield broker
    finally:
        loop.finish(broker.__aexit__(None, None, None))


@contextmanager
def interrupted_every(seconds: float, handler: Callable[[], object]) -> Iterator[None]:
    """Calls the handler as a signal does, over and over."""
    is_over = False

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        handler()
        if not is_over:  # else the next signal would come when nothing handles it, and end the process
            signal.setitimer(signal.ITIMER_REAL, seconds)

    before = signal.signal(signal.SIGALRM, on_signal)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        is_over = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("deed", ["send", "result", "flush"])
def test_signal_handlers_use_the_producer_that_they_interrupt(deed: str) -> None:
    log = Log()
    sent: list[tuple[bytes, Delivery]] = []
    handled = count()
    with serving(log) as broker, Producer(settings(broker, batch_size=300, linger_ms=1)) as producer:

        def send(value: bytes) -> None:
            sent.append((value, producer.send("events", value)))

        def handler() -> None:
            send(b"handler %d" % next(handled))
            if deed == "result":
                sent[-1][1].result(10)
            elif deed == "flush":
                producer.flush(10)

        with interrupted_every(0.000_3, handler):
            for number in range(3_000):
                send(b"%d" % number)
        producer.flush(10)
        assert next(handled) > 10
        assert [value for value in log.values() if value and value.isdigit()] == [b"%d" % n for n in range(3_000)]
        assert len(log.values()) == len(sent)
        assert all(log.values()[delivery.result().offset] == value for value, delivery in sent)


def test_a_signal_handler_closes_the_producer_that_it_interrupts() -> None:
    for part in range(20):
        log = Log()
        sent: list[bytes] = []
        with serving(log) as broker:
            producer = Producer(settings(broker, batch_size=300, linger_ms=1))
            producer.send("events", b"first").result(10)

            def handler(producer: Producer[bytes, bytes] = producer) -> None:
                producer.close(10)

            def send_on(producer: Producer[bytes, bytes] = producer, sent: list[bytes] = sent) -> None:
                for number in count():
                    producer.send("events", b"%d" % number)
                    sent.append(b"%d" % number)

            with interrupted_every(0.000_05 + 0.000_2 * part, handler), pytest.raises(ClosedError):
                send_on()
            arrived = [value for value in log.values() if value != b"first"]
            # The one that was interrupted may be there or not.
            assert arrived[: len(sent)] == sent
            assert len(arrived) <= len(sent) + 1


def test_finalizers_use_the_producer_whose_threads_collect_the_garbage() -> None:
    log = Log()
    sent: list[tuple[bytes, Delivery]] = []
    numbers = count()
    thresholds = gc.get_threshold()
    with serving(log) as broker, Producer(settings(broker, batch_size=300, linger_ms=1)) as producer:

        class Garbage:
            def __init__(self) -> None:
                self.itself = self

            def __del__(self) -> None:
                value = b"finalizer %d" % next(numbers)
                sent.append((value, producer.send("events", value)))

        try:
            gc.set_threshold(30, 1, 1)
            for number in range(2_000):
                value = b"%d" % number
                sent.append((value, producer.send("events", value)))
                if number % 3 == 0:
                    Garbage()
        finally:
            gc.set_threshold(*thresholds)
        gc.collect()
        producer.flush(10)
        assert next(numbers) > 100
        assert [value for value in log.values() if value and value.isdigit()] == [b"%d" % n for n in range(2_000)]
        assert all(log.values()[delivery.result().offset] == value for value, delivery in sent)
        assert len(log.values()) == len(sent)
