"""Clients that stay open between tasks, because Spark's Python workers do: the first task of a query in a worker
connects, later ones find open connections and metadata.

One task at a time uses a client. It is returned when the task is done; after a failure, or if the task stops halfway,
it is closed. Unused clients are closed after a while, at the next request; the others end with the worker.

PySpark runs a full garbage collection after each task. With clients and kernels loaded that takes 50 ms, as long as it
takes to read half a million records. So objects that exist after a worker's first task are excluded from collection,
also if workers are not forked from `ottla.spark.daemon`.
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
    """Clients of one kind, by config. Thread-safe."""

    def __init__(self, make: Callable[[Mapping[str, str]], T], clock: Callable[[], float] = time.monotonic) -> None:
        self._make = make
        self._clock = clock
        self._lock = threading.Lock()
        self._idle: dict[_Key, list[tuple[T, float]]] = {}

    @contextmanager
    def lent(self, settings: Mapping[str, str]) -> Iterator[T]:
        """A client that nobody else uses in the meantime."""
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
        """Returns a free client, and all that were free for too long."""
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
        """Closes all free clients."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for one in idle.values():
            for client, _ in one:
                _close(client)


_is_spared = False


def _spare_garbage_collector() -> None:
    """Runs once, and only in a Spark worker, which does nothing but such tasks. Python could say whether it was done
    already, but counts all excluded objects for that."""
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
