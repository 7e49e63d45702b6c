"""How a local Spark starts its Python workers, and talks to them.

By default it does so in ways that are slow for small micro-batches. Java writes to a worker by TCP, in small pieces
that wait for each other's acknowledgement: 40 ms a task. And workers load PySpark from an archive of sources, which
each of them compiles anew: 0.4 s a worker, of which every streaming query has one of its own.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import site
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

_SOCKET_NAME: Final = "/.00000000-0000-0000-0000-000000000000.sock"
_ADDRESS_MAX: Final = 104
"""Bytes of a Unix socket's address, with the zero at its end, where they are fewest."""
_HOME: Final = "SPARK_HOME"
_PARTS: Final = ("RELEASE", "bin", "conf", "data", "jars", "sbin")
"""Of a Spark, all but its Python."""


def worker_settings() -> dict[str, str]:
    """How workers are started, and reached: by Unix sockets where the system has them."""
    settings = {"spark.python.daemon.module": "ottla.spark.daemon"}
    if not hasattr(socket, "AF_UNIX"):
        return settings
    folder = socket_folder()
    if len(os.fsencode(folder + _SOCKET_NAME)) >= _ADDRESS_MAX:
        return settings
    return settings | {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": folder,
    }


@cache
def socket_folder() -> str:
    """Of this process, and gone with it: Spark leaves sockets behind."""
    folder = tempfile.mkdtemp(prefix="ottla-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def quieten(daemon: ModuleType) -> None:
    """Has workers of PySpark's daemon go without a word when Java does not listen any more, as happens when a query or
    a session is stopped. With Unix sockets they notice, and would print a traceback each."""
    serve: Callable[[socket.socket, bool], int] = daemon.worker

    def serve_quietly(sock: socket.socket, authenticated: bool) -> int:
        try:
            return serve(sock, authenticated)
        except BrokenPipeError:
            os._exit(1)

    serve_quietly.is_quiet = True  # type: ignore[attr-defined]
    daemon.worker = serve_quietly  # type: ignore[attr-defined]


def quieten_planner() -> None:
    """The same for a process that plans, which Spark does not let us start: for what it calls of ours to call. Does
    nothing in other processes, nor the second time."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name == "pyspark.daemon" and not hasattr(main.worker, "is_quiet"):
        quieten(main)


@contextmanager
def lean_home() -> Iterator[None]:
    """While Java starts, Spark's home is one without a Python of its own: workers load the PySpark that is installed,
    and compiled. Leaves a home alone that the environment names, and changes nothing where none can be made."""
    home = None if _HOME in os.environ else _made_home()
    if home is None:
        yield
        return
    os.environ[_HOME] = str(home)
    try:
        yield
    finally:
        os.environ.pop(_HOME, None)


def _made_home() -> Path | None:
    """Links to the parts of the installed Spark, in the user's cache; None where that cannot be."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    if not (installed / "jars").is_dir() or not _is_found_by_every_python(installed.parent):
        return None
    which = hashlib.sha256(os.fsencode(installed)).hexdigest()[:12]
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        home = cache / "ottla" / f"spark-{pyspark.__version__}-{which}"
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        for part in _PARTS:
            if (installed / part).exists():
                _link(home / part, installed / part)
    except (OSError, RuntimeError):  # nothing can be written there, there are no links, or there is no home at all
        return None
    return home


def _is_found_by_every_python(folder: Path) -> bool:
    """Whether a new process loads from there, and not this one only."""
    places = [*site.getsitepackages(), site.getusersitepackages(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return any(place and Path(place).exists() and folder.samefile(place) for place in places)


def _link(link: Path, target: Path) -> None:
    try:
        link.symlink_to(target)
    except FileExistsError:
        if not link.is_symlink() or link.readlink() != target:
            raise
