"""The result of `send`: a record that is being delivered, and its offset once it is acknowledged.

A delivery costs a producer two references per record: the batch, which knows the result, and the index in it. Threads
wait for it with `result`, coroutines with `await`; waiting is optional.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.client.arguments import seconds
from ottla.client.errors import CallTimeoutError
from ottla.client.loop_thread import wait_for

if TYPE_CHECKING:
    from ottla.client.produce.batch import Batch

NO_OFFSET = -1


class RecordMetadata(NamedTuple):
    """Where a record is. The offset is -1 if no acknowledgement was requested (acks=0), or if the broker already had
    the record and does not say where."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """In milliseconds since the epoch: the record's own timestamp, or the append time if the topic uses that."""


class Delivery:
    """A record that was sent. Thread-safe; any number of threads and tasks can wait for it."""

    __slots__ = ("batch", "index")

    # No __init__: the code that creates a delivery sets both slots, in half the time.
    batch: Batch
    index: int

    def __eq__(self, other: object) -> bool:
        """Whether both are of the same record: a callback may get another object than `send` returned."""
        return isinstance(other, Delivery) and self.batch is other.batch and self.index == other.index

    def __hash__(self) -> int:
        return hash((id(self.batch), self.index))

    def done(self) -> bool:
        """Whether the result is known."""
        return self._place()[0].outcome is not None

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Waits for the record's metadata. Raises the error if it failed, or TimeoutError after `timeout` seconds. For
        threads; coroutines await the delivery itself."""
        self._wait(seconds("timeout", timeout))
        return self._metadata()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """The error, or None if the record was delivered. Waits like `result`."""
        self._wait(seconds("timeout", timeout))
        return self._failure()

    def add_done_callback(self, function: Callable[[Delivery], object]) -> None:
        """Calls the function with the delivery when it is done, in the producer's loop, which waits for it; immediately
        if it is already done. Exceptions are logged. With an `AsyncProducer` it can be a coroutine function, which runs
        as a task of the loop."""
        batch = self.batch
        if function is not batch.queue.callbacks.last_checked:
            batch.queue.callbacks.check(function, "function")
        batch.is_watched = True
        entry: tuple[Any, ...] = (self.index, function)
        # No call in between: whoever sets one of the two takes the list after that.
        batch.callbacks += entry
        if batch.outcome is not None or batch.parts is not None:
            batch.call_back()

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self.done():
            yield from self.settled().__await__()
        return self._metadata()

    async def settled(self) -> None:
        """Waits until the result is known."""
        if self.done():
            return
        self.batch.check_loop()
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[None] = loop.create_future()
        self.batch.is_watched = True
        self.batch.when_done(self.index, lambda: _arrive(loop, arrived))
        self.batch.hurry()
        await arrived

    def __repr__(self) -> str:
        batch, index = self._place()
        if batch.outcome is None:
            return f"<Delivery to {batch.partition}: on its way>"
        failure = batch.outcome.error
        what = repr(failure) if failure else f"offset {batch.offset_of(index)}"
        return f"<Delivery to {batch.partition}: {what}>"

    def _place(self) -> tuple[Batch, int]:
        """The batch that contains the record now: one that was too large for the broker was split."""
        return self.batch.place_of(self.index)

    def _wait(self, timeout: float | None) -> None:
        if self.done():
            return
        self.batch.check_waiting_thread()
        told = timeout
        self.batch.is_watched = True
        fast = self.batch.queue.fast_wait
        if fast is not None:
            until_s = inf if timeout is None else monotonic() + timeout
            if fast.send(self.batch, timeout):
                return
            if timeout is not None:
                timeout = max(0.0, until_s - monotonic())
        # A bare lock, held until the batch is done: an Event would cost more than everything else.
        arrived = threading.Lock()
        arrived.acquire()
        self.batch.when_done(self.index, arrived.release)
        self.batch.hurry()
        if not self.batch.queue.wait(partial(wait_for, arrived, timeout)):
            raise CallTimeoutError(f"the record to {self.batch.partition} was not acknowledged within {told:g} s")

    def _failure(self) -> Exception | None:
        batch, _ = self._place()
        batch.is_watched = True
        return batch.outcome.error if batch.outcome else None

    def _metadata(self) -> RecordMetadata:
        batch, index = self._place()
        failure = self._failure()
        if failure is not None:
            raise failure.with_traceback(None)
        return batch.metadata_of(index)


def _arrive(loop: asyncio.AbstractEventLoop, arrived: asyncio.Future[None]) -> None:
    """Called in the producer's loop, which need not be the loop that waits."""

    def set_result() -> None:
        if not arrived.done():
            arrived.set_result(None)

    if asyncio._get_running_loop() is loop:
        set_result()
    else:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(set_result)
