"""Ctrl-C in the calls of the blocking producer: each can be made again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ottla.client.loop_thread import LoopThread
from ottla.client.produce import Producer
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.schema import Request
from unit.client.produce.scripted_log import settings
from unit.client.transactions.scripted_coordinator import Coordinator, Held


class CtrlCError(Exception):
    """What Ctrl-C raises here: pytest must not see a KeyboardInterrupt."""


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise CtrlCError

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


@contextmanager
def interrupted_at(thread: LoopThread, coordinator: Coordinator, request: type[Request]) -> Iterator[None]:
    """The call in the block is interrupted when the broker has its request, which is carried out later."""

    async def order() -> Held:
        held = Held()
        coordinator.faults = {request: [held]}
        return held

    async def interrupt(held: Held) -> None:
        await held.came.wait()
        os.kill(os.getpid(), signal.SIGUSR1)

    async def go_on(held: Held) -> None:
        held.go_on.set()

    held = thread.run(order())
    interrupting = asyncio.run_coroutine_threadsafe(interrupt(held), thread.loop)
    with pytest.raises(CtrlCError):
        yield
    interrupting.result(30)
    thread.run(go_on(held))


def test_calls_that_were_interrupted_are_made_again() -> None:
    coordinator, thread = Coordinator(2), LoopThread("the broker")
    broker = coordinator.broker()
    thread.run(broker.__aenter__())
    try:
        with Producer(settings(broker, transactional_id="t", request_timeout_ms=2_000)) as producer:
            with interrupted_at(thread, coordinator, InitProducerIdRequest):
                producer.init_transactions()
            producer.init_transactions()
            for request in (EndTxnRequest, ProduceRequest):
                producer.begin_transaction()
                producer.send("events", b"1", partition=0)
                with interrupted_at(thread, coordinator, request):
                    producer.commit_transaction()
                producer.commit_transaction()
                producer.begin_transaction()
                producer.send("events", b"2", partition=0).result(30)
                with interrupted_at(thread, coordinator, EndTxnRequest):
                    producer.abort_transaction()
                producer.abort_transaction()
            # A block aborts what can be aborted.
            with interrupted_at(thread, coordinator, ProduceRequest), producer.transaction():
                producer.send("events", b"3", partition=0).result(30)
            with producer.transaction():
                producer.send("events", b"4", partition=0)
        assert [how for how, _ in coordinator.ends] == ["commit", "abort", "commit", "abort", "abort", "commit"]
    finally:
        thread.run(broker.__aexit__(None, None, None))
        thread.close()
