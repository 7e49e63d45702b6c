"""What `send` gives back: a record on its way, and where it is once a broker has it.

A delivery costs a producer two references a record: the batch, which knows what became of it, and the place in it. It
can be waited for in a thread (`result`), in a loop (`await`), or not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.client.errors import CallTimeoutError
from ottla.client.loop_thread import SIGNALS_SEEN_WITHIN_S

if TYPE_CHECKING:
    from ottla.client.produce.batch import Batch

NO_OFFSET = -1


class RecordMetadata(NamedTuple):
    """Where a record is. The offset is -1 if no acknowledgement was asked for (acks=0), or if the broker had the record
    already and does not say where."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """In milliseconds since 1970: when the record was made, or when the broker appended it if the topic says so."""


class Delivery:
    """A record that was sent. Thread-safe; any number of threads and tasks can wait for it."""

    __slots__ = ("batch", "index")

    # No __init__: who makes one sets both, in half the time.
    batch: Batch
    index: int

    def done(self) -> bool:
        """Whether it is known what became of the record."""
        return self._place()[0].outcome is not None

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record is; raises what kept it from there, or TimeoutError after so many seconds. For threads: a
        coroutine awaits the delivery itself."""
        self._wait(timeout)
        return self._metadata()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """What kept the record from its partition; None if it is there. Waits like `result`."""
        self._wait(timeout)
        return self._failure()

    def add_done_callback(self, function: Callable[[Delivery], object]) -> None:
        """Calls it with the delivery when that is done, in the producer's loop, which waits meanwhile; at once if it is
        done already. What it raises is logged. That of an `AsyncProducer` may be a coroutine function, which becomes a
        task of the loop."""
        batch = self.batch
        callbacks = batch.queue.callbacks
        if function is not callbacks.last_checked:
            callbacks.check(function, "function")
        batch.is_watched = True
        batch.call_when_done(self.index, self, function)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self.done():
            yield from self.settled().__await__()
        return self._metadata()

    async def settled(self) -> None:
        """Waits until it is known what became of the record."""
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
        """The batch that the record is in now: one that was too large for the broker was split."""
        return self.batch.place_of(self.index)

    def _wait(self, timeout: float | None) -> None:
        if self.done():
            return
        self.batch.check_waiting_thread()
        self.batch.is_watched = True
        # A bare lock, held until the batch is done: an Event would cost more than all the rest.
        arrived = threading.Lock()
        arrived.acquire()
        self.batch.when_done(self.index, arrived.release)
        self.batch.hurry()
        if not wait_for(arrived, timeout):
            raise CallTimeoutError(f"the record to {self.batch.partition} was not acknowledged within {timeout:g} s")

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


def wait_for(lock: threading.Lock, timeout_s: float | None) -> bool:
    """Whether the lock was released within that time; in slices, so that Ctrl-C is seen whenever it comes."""
    until_s = inf if timeout_s is None else monotonic() + timeout_s
    while not lock.acquire(timeout=max(0.0, min(until_s - monotonic(), SIGNALS_SEEN_WITHIN_S))):
        if monotonic() >= until_s:
            return False
    return True


def _arrive(loop: asyncio.AbstractEventLoop, arrived: asyncio.Future[None]) -> None:
    """Called in the producer's loop, which need not be the one that waits."""

    def set_result() -> None:
        if not arrived.done():
            arrived.set_result(None)

    if asyncio._get_running_loop() is loop:
        set_result()
    else:
        with contextlib.suppress(RuntimeError):  # It is closed: nobody waits any more.
            loop.call_soon_threadsafe(set_result)
