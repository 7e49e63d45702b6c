"""The process from which the Python workers of a local Spark are forked (`spark.python.daemon.module`): PySpark's own
daemon, with everything loaded that our workers need.

With PySpark's daemon each worker loads its modules itself, and garbage collection after each task scans everything:
50 ms with ours. Here a worker finds the modules loaded, and objects that existed before it are excluded from
collection.

Nothing that is loaded here may start a thread, because workers are forked. PySpark keeps Arrow out of its daemon for
that reason: one of Arrow's allocators has a thread, which it can do without. And what draws random numbers must begin
anew in each worker: with PySpark's daemon, numpy does, because each worker loads it.
"""

from __future__ import annotations

import gc
import os
import pickle
import socket
import sys
from contextlib import suppress
from importlib import import_module
from typing import Final

from pyspark import daemon

from ottla.spark.quiet_workers import quieten

TASKS: Final = "pyspark.worker"
FOR_PLANS: Final = ("ottla.spark.source", "ottla.spark.sink", "ottla.spark.exactly_once.driver")
FOR_TASKS: Final = (
    "ottla.spark.source",
    "ottla.spark.sink",
    "ottla.spark.exactly_once.tasks",
    "ottla.spark.reading",
    "ottla.records.columns",
    "ottla.client.produce.columns",
    # pyarrow imports it, if it is installed, when it first makes an array: 0.3 s of CPU in each worker.
    "pandas",
)


_ARROW_ALLOCATOR: Final = "JE_ARROW_MALLOC_CONF"
_AHEAD_BYTES: Final = 4 * 1024 * 1024
_serve: Final = daemon.worker


def load(worker_module: str) -> None:
    """Loads what a worker of this kind needs. If something cannot be loaded, the worker that needs it reports that."""
    os.environ.setdefault(_ARROW_ALLOCATOR, "background_thread:false")
    for name in (worker_module, *(FOR_TASKS if worker_module == TASKS else FOR_PLANS)):
        with suppress(ImportError):
            import_module(name)
    _note_generator()
    os.register_at_fork(after_in_child=_draw_own_numbers)


_unused: bytes | None = None
"""The state of numpy's generator as long as nobody has drawn or seeded anything."""


def _note_generator() -> None:
    global _unused
    _unused = _state_of_generator()


def _state_of_generator() -> bytes | None:
    """None while numpy's generator is not loaded."""
    generator = sys.modules.get("numpy.random")
    return None if generator is None else pickle.dumps(generator.get_state())


def _draw_own_numbers() -> None:
    """In a new process: the functions of `numpy.random` would go on where they were, and all workers would draw the
    same numbers. Python's `random` begins anew by itself. What a program has seeded is left alone."""
    if _unused is not None and _state_of_generator() == _unused:
        sys.modules["numpy.random"].seed()
        _note_generator()


def serve_with_room(sock: socket.socket, authenticated: bool) -> int:
    """Runs a worker. It may be a few batches ahead of Java, which takes them one by one: unlike that of TCP, the buffer
    of a Unix socket does not grow by itself. The system may allow less."""
    if sock.family == socket.AF_UNIX:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _AHEAD_BYTES)
    return _serve(sock, authenticated)


def main() -> None:
    load(sys.argv[1] if len(sys.argv) > 1 else TASKS)
    gc.collect()
    gc.freeze()
    daemon.worker = serve_with_room
    quieten(daemon)
    daemon.manager()


if __name__ == "__main__":
    main()
