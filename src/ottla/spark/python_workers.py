"""How a local Spark starts its Python workers, and talks to them.

Spark's defaults are slow for small micro-batches. Java writes to a worker over TCP, in small pieces that wait for each
other's acknowledgement: 40 ms per task. Workers load PySpark from an archive of sources, which each of them compiles
again: 0.4 s per worker. And Spark starts Python for every kind of process and for every streaming query, which takes
nearly as long with compiled sources: here they are forked.
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
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ottla.spark.fork_server import Server, start_server
from ottla.spark.quiet_workers import quieten

_SOCKET_NAME: Final = "/.00000000-0000-0000-0000-000000000000.sock"
_ADDRESS_MAX: Final = 104
"""The smallest limit of any system for the address of a Unix socket, in bytes, including the final zero."""
_HOME: Final = "SPARK_HOME"
_PLANNER: Final = "PYSPARK_DRIVER_PYTHON"
_PARTS: Final = ("RELEASE", "bin", "conf", "data", "jars", "sbin")
"""All parts of a Spark installation except Python."""


def worker_settings() -> dict[str, str]:
    """How workers are started and reached: with Unix sockets if the system has them."""
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
    """A directory for this process, removed with it: Spark does not remove its sockets."""
    folder = tempfile.mkdtemp(prefix="ottla-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def quieten_planner() -> None:
    """The same for a planning process, which Spark starts: to be called from our code that it calls. Does nothing in
    other processes, or on a second call."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name == "pyspark.daemon" and not hasattr(main.worker, "is_quiet"):
        quieten(main)


_fork_server: Server | None = None


def worker_python() -> str:
    """What Spark starts as Python: a script that asks the fork server, which this starts, or else this Python."""
    global _fork_server
    if _HOME in os.environ or not hasattr(socket, "AF_UNIX"):  # that home may have another PySpark
        return sys.executable
    if _fork_server is None or not _fork_server.is_running:
        installed = find_spec("pyspark")
        is_found = installed is not None and _is_found_by_every_python(Path(installed.origin or "").parent.parent)
        _fork_server = start_server(socket_folder()) if is_found else None
    return sys.executable if _fork_server is None else _fork_server.script


def is_worker_python(python: str | None) -> bool:
    """Whether this is the script that `worker_python` returned at any time."""
    return _fork_server is not None and _fork_server.script == python


def end_fork_server() -> None:
    """Ends the server after Java has ended. The script still works, as Python."""
    if _fork_server is not None:
        _fork_server.close()


@contextmanager
def environment_of_java(python: str) -> Iterator[None]:
    """While Java starts: a home without Python, and which Python plans queries. The user's variable for that may name a
    program that only runs notebooks."""
    before = os.environ.get(_PLANNER)
    os.environ[_PLANNER] = python
    try:
        with lean_home():
            yield
    finally:
        if before is None:
            del os.environ[_PLANNER]
        else:
            os.environ[_PLANNER] = before


@contextmanager
def lean_home() -> Iterator[None]:
    """While Java starts, uses a Spark home without Python: workers load the installed PySpark, which is compiled. Does
    not change a home that the environment sets, and does nothing if none can be created."""
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
    """Links to the parts of the installed Spark, in the user's cache directory; None if that is not possible."""
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
    except (OSError, RuntimeError):  # not writable, no links, or no home directory
        return None
    return home


def _is_found_by_every_python(folder: Path) -> bool:
    """Whether a new process loads from there, and not only this one."""
    places = [*site.getsitepackages(), site.getusersitepackages(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return any(place and Path(place).exists() and folder.samefile(place) for place in places)


def _link(link: Path, target: Path) -> None:
    try:
        link.symlink_to(target)
    except FileExistsError:
        if not link.is_symlink() or link.readlink() != target:
            raise
