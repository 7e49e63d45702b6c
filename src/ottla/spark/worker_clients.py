"""Clients that stay open from task to task, because Spark's Python workers do: a query's first task in a worker
connects, those after it find connections and metadata at hand.

A client is lent to one task at a time. It comes back when the task is done; one that failed, or was given up half-way,
is closed. Those that nobody has wanted for a while are closed at the next look; the rest end with the worker.

PySpark has the garbage collector look at everything after each task. With clients and kernels loaded that takes 50 ms,
as long as it takes to read half a million records: so what is there after a worker's first task is kept out of it, also
where workers are not forked from `ottla.spark.daemon`.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final, Generic, Protocol, TypeVar

from pyspark import TaskContext

from ottla.base.errors import OttlaError
from ottla.client.consume import Consumer
from ottla.client.produce import Producer

IDLE_MAX_S: Final = 300.0
_CLOSE_TIMEOUT_S: Final = 5.0


class _Closable(Protocol):
    def close(self, timeout: float = ...) -> None: ...


T = TypeVar("T", bound=_Closable)
_Key = frozenset[tuple[str, str]]


class ClientPool(Generic[T]):
    """Clients of one kind by their settings. Thread-safe."""

    def __init__(self, make: Callable[[Mapping[str, str]], T], clock: Callable[[], float] = time.monotonic) -> None:
        self._make = make
        self._clock = clock
        self._lock = threading.Lock()
        self._idle: dict[_Key, list[tuple[T, float]]] = {}

    @contextmanager
    def lent(self, settings: Mapping[str, str]) -> Iterator[T]:
        """One that nobody else uses meanwhile."""
        key = frozenset(settings.items())
        found, unwanted = self._find(key)
        for one in unwanted:
            _close(one)
        client = self._make(settings) if found is None else found
        try:
            yield client
        except BaseException:
            _close(client)
            raise
        with self._lock:
            self._idle.setdefault(key, []).append((client, self._clock()))
        _spare_garbage_collector()

    def _find(self, key: _Key) -> tuple[T | None, list[T]]:
        """One that is free, and all that were free for too long."""
        since_s = self._clock() - IDLE_MAX_S
        with self._lock:
            waiting = self._idle.get(key)
            found = waiting.pop()[0] if waiting else None
            unwanted = [one for idle in self._idle.values() for one, free_s in idle if free_s < since_s]
            kept = {
                other: [(one, free_s) for one, free_s in idle if free_s >= since_s]
                for other, idle in self._idle.items()
            }
            self._idle = {other: idle for other, idle in kept.items() if idle}
        return found, unwanted

    def close(self) -> None:
        """Closes all that are free."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for one in idle.values():
            for client, _ in one:
                _close(client)


_is_spared = False


def _spare_garbage_collector() -> None:
    """Only in a worker of Spark's, which has nothing else to do than such tasks; once. Python itself could tell whether
    it was done already, but counts all that is kept out to do so."""
    global _is_spared
    if not _is_spared and TaskContext.get() is not None:
        _is_spared = True
        gc.collect()
        gc.freeze()


def _close(client: _Closable) -> None:
    with suppress(OttlaError, TimeoutError):
        client.close(_CLOSE_TIMEOUT_S)


CONSUMERS: Final = ClientPool(Consumer)
PRODUCERS: Final = ClientPool(Producer)
