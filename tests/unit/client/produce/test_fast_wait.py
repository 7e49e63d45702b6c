"""Threads that send what they wait for themselves: whatever happens meanwhile, each record is there once, in order."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.client.errors import CallTimeoutError, ClosedError, DeliveryTimeoutError, RecordTooLargeError
from ottla.client.produce import fast_wait
from ottla.client.produce.fast_wait import FastWait
from ottla.client.produce.producer import Producer
from ottla.net.blocking_exchange import BlockingExchange
from ottla.records import Compression
from support.clients.scripted_broker import HangUp, ScriptedBroker
from support.waiting import wait_until
from unit.client.interruptions import Interruption, every_third
from unit.client.produce.scripted_log import AppendSilently, AppendThenHangUp, Fault, Log, settings
from unit.client.produce.test_reentrancy import serving

WAIT_S = 20.0
BUFFER_BYTES = 100_000


@pytest.fixture(autouse=True)
def always_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that was lost is soon replaced."""
    monkeypatch.setattr(fast_wait, "_REOPEN_AFTER_S", 0.0)


class Calls:
    """What a producer does by its own thread, and what by the loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[int] = []
        ask = BlockingExchange.ask

        def counted(exchange: BlockingExchange, *args: Any) -> bytes:
            self.asked.append(threading.get_ident())
            return ask(exchange, *args)

        monkeypatch.setattr(BlockingExchange, "ask", counted)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


@contextmanager
def producing(log: Log, **changes: object) -> Iterator[tuple[Producer[Any, Any], ScriptedBroker]]:
    usual = {"buffer_memory": BUFFER_BYTES, "batch_size": 1000}
    with serving(log) as broker, Producer(settings(broker, **(usual | changes))) as producer:
        yield producer, broker


def fast(producer: Producer[Any, Any]) -> FastWait:
    found = producer._accumulator.fast_wait
    assert found is not None
    return found


def sent_until_fast(producer: Producer[Any, Any]) -> None:
    """Sends records until the next would be sent by the thread itself."""
    for _ in range(1000):
        if any(not exchange.owner for exchange in fast(producer)._exchanges.values()):
            return
        producer.send("events", b"warm").result(WAIT_S)
    pytest.fail("no connection was opened for threads that wait")


def without_warm(log: Log) -> list[bytes | None]:
    return [value for value in log.values() if value != b"warm"]


@pytest.mark.parametrize("wait", ["result", "flush", "exception", "send_and_wait"])
def test_a_thread_that_waits_sends_its_records_itself(calls: Calls, wait: str) -> None:
    log = Log()
    with producing(log) as (producer, broker):
        sent_until_fast(producer)
        before = len(log.values())
        calls.asked.clear()
        for number in range(20):
            value = b"%d" % number
            if wait == "send_and_wait":
                assert producer.send_and_wait("events", value).offset == before + number
                continue
            delivery = producer.send("events", value, b"key", [("h", b"1")], timestamp=number)
            if wait == "flush":
                producer.flush(WAIT_S)
            elif wait == "exception":
                assert delivery.exception(WAIT_S) is None
            assert delivery.done() or wait == "result"
            metadata = delivery.result(WAIT_S)
            assert metadata == ("events", 0, before + number, number)
        assert calls.asked == [threading.get_ident()] * 20
        assert broker.connections == 2
        assert producer.metrics()["records"] == len(log.values()) == before + 20
        assert producer.metrics()["buffer_free_bytes"] == BUFFER_BYTES
    assert without_warm(log) == [b"%d" % number for number in range(20)]
    if wait != "send_and_wait":
        assert [(one.key, one.timestamp_ms) for one in log.records()[before:]] == [(b"key", n) for n in range(20)]
        assert all(one.headers == (("h", b"1"),) for one in log.records()[before:])


def test_batches_of_several_records_and_codecs_are_sent_so_too(calls: Calls) -> None:
    for codec in ("none", "gzip", "zstd"):
        log = Log()
        with producing(log, compression_type=codec) as (producer, _):
            sent_until_fast(producer)
            calls.asked.clear()
            deliveries = [producer.send("events", b"%d" % number) for number in range(5)]
            assert deliveries[-1].result(WAIT_S).offset == len(log.values()) - 1
            assert all(delivery.done() for delivery in deliveries)
            assert len(calls.asked) == 1
        assert log.headers[-1].compression is Compression[codec.upper()]
        assert without_warm(log) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(
    "changes",
    [
        {"enable_idempotence": False},
        {"acks": "1"},
        {"retries": 0},
        {"interceptor_classes": [SimpleNamespace(on_send=lambda record: record)]},
    ],
)
def test_producers_that_cannot_repeat_leave_it_to_the_loop(calls: Calls, changes: dict[str, object]) -> None:
    log = Log()
    with producing(log, **changes) as (producer, broker):
        for number in range(20):
            assert producer.send("events", b"%d" % number).result(WAIT_S).offset == number
        assert broker.connections == 1
    assert not calls.asked


@pytest.mark.parametrize(
    "bad_day",
    [
        [HangUp()],
        [HangUp(), HangUp(), None, HangUp()],
        [AppendThenHangUp()],
        [None, AppendThenHangUp(), AppendThenHangUp(), None, AppendThenHangUp()],
        [ErrorCode.NOT_LEADER_OR_FOLLOWER, None, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND],
        [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER],
        [ErrorCode.INVALID_PRODUCER_EPOCH, None, ErrorCode.UNKNOWN_PRODUCER_ID],
    ],
)
def test_what_goes_wrong_is_repaired_by_the_loop(calls: Calls, bad_day: list[Fault | None]) -> None:
    log = Log()
    with producing(log) as (producer, _):
        for attempt in range(3):
            sent_until_fast(producer)
            calls.asked.clear()
            log.faults = list(bad_day)
            before = len(log.values())
            for number in range(10):
                metadata = producer.send("events", b"%d" % (10 * attempt + number)).result(WAIT_S)
                assert log.values()[metadata.offset] == b"%d" % (10 * attempt + number)
            assert len(log.values()) == before + 10
            assert calls.asked
        assert producer.metrics()["buffer_free_bytes"] == BUFFER_BYTES
    assert without_warm(log) == [b"%d" % number for number in range(30)]


@pytest.mark.parametrize("seed", range(3))
def test_records_are_there_once_and_in_order_whatever_happens(calls: Calls, seed: int) -> None:
    chance = random.Random(seed)
    kinds: list[Fault | None] = [None, HangUp(), AppendThenHangUp(), ErrorCode.NOT_LEADER_OR_FOLLOWER]
    log = Log()
    with producing(log) as (producer, _):
        sent_until_fast(producer)
        calls.asked.clear()
        log.faults = chance.choices(kinds, [20, 1, 1, 1], k=300)
        for number in range(200):
            delivery = producer.send("events", b"%d" % number)
            if chance.random() < 0.8:
                offset = delivery.result(WAIT_S).offset
                assert log.values()[offset] == b"%d" % number
        producer.flush(WAIT_S)
        assert len(calls.asked) > 20
    assert without_warm(log) == [b"%d" % number for number in range(200)]


def test_a_record_that_is_too_large_for_its_broker_fails() -> None:
    log = Log()
    with producing(log) as (producer, _):
        sent_until_fast(producer)
        log.refused_values = {b"large": ErrorCode.MESSAGE_TOO_LARGE}
        with pytest.raises(RecordTooLargeError):
            producer.send("events", b"large").result(WAIT_S)
        assert producer.send("events", b"small").result(WAIT_S).offset == len(log.values()) - 1


def test_a_broker_that_does_not_answer_holds_nobody_up_longer_than_he_wants(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    monkeypatch.setattr(fast_wait, "_TIMEOUT_MIN_S", 0.0)
    with producing(log, request_timeout_ms=600) as (producer, _):
        sent_until_fast(producer)
        calls.asked.clear()
        log.faults = [AppendSilently(), AppendSilently()]
        delivery = producer.send("events", b"1")
        with pytest.raises(CallTimeoutError, match=r"within 0\.1 s"):
            delivery.result(0.1)
        assert calls.asked  # and the second time by the loop, which is not answered either
    # `close` waits for it: the broker has it since the first time.
    assert without_warm(log) == [b"1"]


def test_a_delivery_that_takes_too_long_fails_though_its_thread_waits() -> None:
    log = Log()
    with producing(log, delivery_timeout_ms=500, request_timeout_ms=300) as (producer, _):
        sent_until_fast(producer)
        log.faults = [AppendSilently()] * 100
        with pytest.raises(DeliveryTimeoutError):
            producer.send("events", b"1").result()
        log.faults = []
        assert producer.send("events", b"2").result(WAIT_S).offset == len(log.values()) - 1


class Held(Log):
    """Answers a value only when that is allowed."""

    def __init__(self) -> None:
        super().__init__()
        self.held: set[bytes | None] = set()
        self.came = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, request: Any) -> Any:
        answer = super().__call__(request)
        if self.held & set(self.values()[-1:]):
            return self._later(answer)
        return answer

    async def _later(self, answer: Any) -> Any:
        self.came.set()
        while not self.go_on.is_set():
            await asyncio.sleep(0.001)
        return answer


@contextmanager
def waiting_thread(
    producer: Producer[Any, Any], log: Held
) -> Iterator[tuple[threading.Thread, list[object], Callable[[], None]]]:
    """A thread that waits for the answer to a record that it has sent itself."""
    sent_until_fast(producer)
    log.held = {b"held"}
    outcomes: list[object] = []

    def send() -> None:
        try:
            outcomes.append(producer.send("events", b"held").result(WAIT_S).offset)
        except Exception as error:
            outcomes.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    assert log.came.wait(WAIT_S)
    try:
        yield thread, outcomes, log.go_on.set
    finally:
        log.go_on.set()
        thread.join(WAIT_S)
        assert not thread.is_alive()


def test_records_that_are_sent_meanwhile_come_after_it(calls: Calls) -> None:
    log = Held()
    with producing(log) as (producer, _), waiting_thread(producer, log) as (thread, outcomes, go_on):
        calls.asked.clear()
        others = [producer.send("events", b"%d" % number) for number in range(50)]
        told: list[object] = []
        others[-1].add_done_callback(told.append)
        assert not outcomes
        go_on()
        assert [one.result(WAIT_S).offset for one in others] == list(range(len(log.values()) - 50, len(log.values())))
        thread.join(WAIT_S)
        assert outcomes == [len(log.values()) - 51]
        wait_until(lambda: told == [others[-1]], "the callback")
    assert without_warm(log) == [b"held", *(b"%d" % number for number in range(50))]


def test_everybody_else_who_waits_for_it_is_told() -> None:
    log = Held()
    with producing(log) as (producer, _), waiting_thread(producer, log) as (thread, outcomes, go_on):
        (batch,) = producer._accumulator.unfinished
        told = threading.Event()
        batch.when_done(0, told.set)
        flushed = threading.Thread(target=producer.flush)
        flushed.start()
        wait_until(lambda: len(batch.waiting) == 2, "the flush waits")
        go_on()
        assert told.wait(WAIT_S)
        flushed.join(WAIT_S)
        assert not flushed.is_alive()
        thread.join(WAIT_S)
        assert outcomes == [len(log.values()) - 1]


def test_a_thread_that_waits_for_room_gets_it() -> None:
    log = Held()
    with (
        producing(log, buffer_memory=1000) as (producer, _),
        waiting_thread(producer, log) as (thread, _outcomes, go_on),
    ):
        second = threading.Thread(target=lambda: producer.send("events", bytes(900)).result(WAIT_S))
        second.start()
        wait_until(lambda: producer._accumulator._room_wanted, "a thread waits for room")
        go_on()
        second.join(WAIT_S)
        assert not second.is_alive()
        thread.join(WAIT_S)


def test_closing_ends_a_wait() -> None:
    log = Held()
    with serving(log) as broker:
        producer = Producer(settings(broker))
        with waiting_thread(producer, log) as (thread, outcomes, _):
            producer.close(0.05)
            thread.join(WAIT_S)
            (error,) = outcomes
            assert isinstance(error, ClosedError)
        wait_until(lambda: broker.open_connections == 0, "all connections are closed")


def test_an_interrupted_wait_leaves_the_producer_whole(calls: Calls) -> None:
    log = Log()
    with producing(log) as (producer, _):
        for number in every_third():
            sent_until_fast(producer)
            value, before = b"%d" % number, len(log.values())
            interruption = Interruption(number)
            try:
                with interruption:
                    producer.send("events", value).result(WAIT_S)
                is_returned = True
            except KeyboardInterrupt:
                is_returned = False
            where = interruption.where
            assert producer.send("events", b"next").result(WAIT_S).offset == len(log.values()) - 1, where
            producer.flush(WAIT_S)
            # In order and once; the interrupted one may be there or not.
            sent = log.values()[before:]
            assert sent in ([value, b"next"], [b"next"]), (where, sent)
            assert value in sent or not is_returned, where
            assert producer.metrics()["buffer_free_bytes"] == BUFFER_BYTES, where
            assert not producer._accumulator.full, where
            if not interruption.happened:
                break
    assert len(calls.asked) > 20


@pytest.mark.parametrize("deed", ["send", "result", "flush"])
def test_a_signal_handler_uses_the_producer_that_it_interrupts(deed: str) -> None:
    log = Log()
    with producing(log) as (producer, _):
        for number in every_third():
            sent_until_fast(producer)
            inner = b"handler %d" % number

            def handler(inner: bytes = inner) -> None:
                delivery = producer.send("events", inner)
                if deed == "result":
                    offset = delivery.result(WAIT_S).offset
                    assert log.values()[offset] == inner
                elif deed == "flush":
                    producer.flush(WAIT_S)
                    assert delivery.done()

            interruption = Interruption(number, handler)
            with interruption:
                metadata = producer.send("events", b"%d" % number).result(WAIT_S)
            producer.flush(WAIT_S)
            where = interruption.where
            assert log.values()[metadata.offset] == b"%d" % number, where
            assert log.values().count(b"%d" % number) == 1, where
            assert log.values().count(inner) == interruption.happened, where
            assert producer.metrics()["buffer_free_bytes"] == BUFFER_BYTES, where
            if not interruption.happened:
                break


def test_the_loop_is_not_woken_for_records_that_threads_send_themselves() -> None:
    """But it looks from time to time, so that a record that nobody waits for is sent."""
    log = Log()
    with producing(log) as (producer, _):
        sent_until_fast(producer)
        accumulator = producer._accumulator
        wait_until(lambda: producer.send_and_wait("events", b"warm") and accumulator.patience_s, "batches linger")
        delivery = producer.send("events", b"nobody waits")
        wait_until(delivery.done, "it is sent")
        assert log.values()[-1] == b"nobody waits"
        wait_until(lambda: not accumulator.patience_s, "batches do not linger any more")
