"""A process from which the Python processes of a local Spark are forked, with everything loaded that they need.

A query uses Python processes of six kinds, and Spark starts each of them as a program: 0.4 s of CPU before it has
loaded PySpark and our clients, for every query at least once. So `PYSPARK_PYTHON` is a script here, which asks this
server (`ottla.spark.fork_launcher`). The server forks, and the new process runs the module as Python would, with the
streams, the directory, the environment and the arguments of the script.

What cannot be changed after Python has started must be the same: if the environment says otherwise, or if the server is
gone, the script becomes Python. The server has no threads. It ends when the process that started it has ended, and
when those that it forked have: they end with Spark's Java, as they would without it.
"""

from __future__ import annotations

import atexit
import gc
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

from ottla.spark.fork_launcher import REFUSED, STARTED
from ottla.spark.quiet_workers import quieten

LOADED: Final = (
    "pyspark.worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark_ottla",
    "ottla.spark.stream",
    "ottla.client.administer",
)
"""Beside what `ottla.spark.daemon` loads for tasks."""

_SPOKEN: Final = {
    "api_versions": "ApiVersions",
    "describe_configs": "DescribeConfigs",
    "describe_topic_partitions": "DescribeTopicPartitions",
    "end_txn": "EndTxn",
    "fetch": "Fetch",
    "find_coordinator": "FindCoordinator",
    "list_offsets": "ListOffsets",
    "list_transactions": "ListTransactions",
    "metadata": "Metadata",
    "produce": "Produce",
}
_SPOKEN_BEFORE: Final = {"init_producer_id": ("InitProducerId", 5), "offset_commit": ("OffsetCommit", 9)}
"""Messages of which clients use an earlier version than the last one: without prepared transactions, and with names of
topics."""

_READ_AT_START: Final = ("PYTHON", "LD_", "DYLD_", "MALLOC_", "OMP_", "OPENBLAS_", "MKL_", "NUMBA_", "COVERAGE_")
"""Variables that Python and libraries read only once begin so."""
_READ_LATER: Final = ("PYTHONPATH", "PYTHONUNBUFFERED")
_DAEMON: Final = "pyspark.daemon"
_CHATTY: Final = "pyspark.sql.streaming.transform_with_state_driver_worker"
"""It prints five lines for each stateful function when a query starts, whatever the log level is."""
_SCRIPT_NAME: Final = "python"
_ADDRESS_NAME: Final = "fork"
_SHEBANG_BYTES_MAX: Final = 120
_REQUEST_TIMEOUT_S: Final = 10
_LOOK_S: Final = 1.0
_END_TIMEOUT_S: Final = 5


class Server:
    """The server, as the process sees it that starts Spark."""

    def __init__(self, folder: str) -> None:
        self.script: Final = str(Path(folder) / _SCRIPT_NAME)
        address = str(Path(folder) / _ADDRESS_NAME)
        Path(address).unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(address)
            listening.listen(64)
            environment = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", **os.environ}  # as Spark sets them
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(listening.fileno())],
                stdin=subprocess.PIPE,
                env=environment,
                pass_fds=[listening.fileno()],
                start_new_session=True,
            )
        _write_script(Path(self.script), address)
        atexit.register(self.let_end)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def let_end(self) -> None:
        """From now on it forks nothing, and ends when its processes have."""
        atexit.unregister(self.let_end)
        if self._process.stdin is not None:
            self._process.stdin.close()

    def close(self) -> None:
        """Waits until the server has ended, after Java has."""
        self.let_end()
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def start_server(folder: str) -> Server | None:
    """Starts a server with its files in this private directory; returns None if that is not possible here."""
    shebang = _shebang()
    can_be_run = bool(sys.executable) and len(shebang) <= _SHEBANG_BYTES_MAX and shebang.count(b" ") == 1
    if not hasattr(os, "fork") or not can_be_run:
        return None
    server = Server(folder)
    if not os.access(server.script, os.X_OK):  # nothing in this directory can be run
        server.close()
        return None
    return server


def _shebang() -> bytes:
    return b"#!" + os.fsencode(sys.executable) + b" -IS"


def _write_script(script: Path, address: str) -> None:
    here = str(Path(__file__).absolute().parent)
    lines = (
        "import sys",
        f"sys.path.append({here!r})",
        "from fork_launcher import main",
        f"main({address!r}, {sys.executable!r})",
    )
    script.write_bytes(_shebang() + b"\n" + os.fsencode("\n".join(lines)) + b"\n")
    script.chmod(0o700)


# In the server.


@dataclass(frozen=True, slots=True)
class Request:
    """A process to start."""

    directory: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    streams: Sequence[int]

    @classmethod
    def of(cls, body: bytes, streams: Sequence[int]) -> Request:
        directory, count, *others = map(os.fsdecode, body.split(b"\0"))
        arguments, environment = others[: int(count)], others[int(count) :]
        return cls(directory, arguments, dict(zip(environment[::2], environment[1::2], strict=True)), streams)

    def is_possible(self, here: Mapping[str, str]) -> bool:
        """Whether a process with the environment `here` can become the requested one."""
        if len(self.arguments) < 2 or self.arguments[0] not in ("-m", "-c"):
            return False
        return all(
            here.get(name) == text
            for name, text in self.environment.items()
            if name.startswith(_READ_AT_START) and name not in _READ_LATER and not name.startswith("PYTHON_")
        )


class _Forks:
    """Accepts requests, and tells launchers when their processes have ended."""

    def __init__(self, listening: socket.socket, parent: int) -> None:
        self._listening = listening
        self._parent = parent
        self._launchers: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._awake, self._wake = socket.socketpair()
        self._wake.setblocking(False)

    def serve(self) -> Request | None:
        """Returns None when the server is to end, and in each new process, what that is to do."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        for source in (self._listening, self._awake, sys.stdin):
            self._selector.register(source, selectors.EVENT_READ)
        is_open, is_left = True, False
        while is_open or self._launchers:
            for key, _ in self._selector.select(_LOOK_S):
                if key.fileobj is sys.stdin:
                    is_left = True
                elif key.fileobj is self._listening:
                    request = self._accept()
                    if request is not None:
                        return request
                elif key.fileobj is self._awake:
                    self._awake.recv(4096)
                else:
                    self._lost(key.data)
            self._reap()
            if is_open and (is_left or os.getppid() != self._parent):
                is_open = False
                self._selector.unregister(self._listening)
                self._selector.unregister(sys.stdin)
                self._listening.close()
        return None

    def _accept(self) -> Request | None:
        launcher, _ = self._listening.accept()
        request, pid = None, None
        try:
            launcher.settimeout(_REQUEST_TIMEOUT_S)
            request = _received(launcher)
            launcher.settimeout(None)
            if request.is_possible(os.environ):
                pid = os.fork()  # first: after the answer, the launcher could not become Python any more
        except (OSError, ValueError):  # it has ended, or there is no room for another process
            pid = None
        if pid == 0:
            self._leave(launcher)
            return request
        for stream in () if request is None else request.streams:
            os.close(stream)
        with suppress(OSError):  # if it has ended, that is noticed below
            launcher.sendall(REFUSED if pid is None else STARTED)
        if pid is None:
            launcher.close()
        else:
            self._launchers[pid] = launcher
            self._selector.register(launcher, selectors.EVENT_READ, pid)
        return None

    def _leave(self, launcher: socket.socket) -> None:
        """What a new process does not share with the server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for one in (self._listening, self._awake, self._wake, launcher, *self._launchers.values()):
            one.close()

    def _reap(self) -> None:
        for pid, launcher in list(self._launchers.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                with suppress(OSError):
                    launcher.sendall(bytes([code if code >= 0 else 128 - code]))
                self._forget(pid)

    def _lost(self, pid: int) -> None:
        """Spark has killed the launcher: it means the process."""
        if pid in self._launchers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            self._selector.unregister(self._launchers[pid])

    def _forget(self, pid: int) -> None:
        launcher = self._launchers.pop(pid)
        with suppress(KeyError):
            self._selector.unregister(launcher)
        launcher.close()


def _received(launcher: socket.socket) -> Request:
    head, streams, _, _ = socket.recv_fds(launcher, 65536, 3)
    try:
        data = bytearray(head)
        while len(data) < 4 or len(data) < 4 + struct.unpack_from(">I", data)[0]:
            more = launcher.recv(65536)
            if not more:
                raise ValueError("the launcher ended in the middle of its request")
            data += more
        return Request.of(bytes(data[4:]), streams)
    except BaseException:
        for stream in streams:
            os.close(stream)
        raise


def become(request: Request, inherited: Sequence[str]) -> None:
    """Makes this process the requested one, and runs its module or its text. `inherited`: the server's PYTHONPATH."""
    for number, stream in enumerate(request.streams):
        os.dup2(stream, number)
    for stream in request.streams:
        if stream > 2:
            os.close(stream)
    os.chdir(request.directory)
    os.environ.clear()
    os.environ.update(request.environment)
    given = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    others = [place for place in sys.path[1:] if place not in given and place not in inherited]
    sys.path[:] = [request.directory, *given, *others]
    if os.environ.get("PYTHONUNBUFFERED"):
        for text in (sys.stdout, sys.stderr):
            text.reconfigure(write_through=True)  # type: ignore[union-attr]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    kind, what, *arguments = request.arguments
    if kind == "-c":
        sys.argv = [kind, *arguments]
        exec(what, {"__name__": "__main__", "__builtins__": __builtins__})
        return
    sys.argv = [what, *arguments]
    if what == _DAEMON:
        _serve_quietly()
        return
    if what == _CHATTY:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends
    import runpy

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=RuntimeWarning, module="runpy")  # it is loaded
        runpy.run_module(what, run_name="__main__", alter_sys=True)


def _serve_quietly() -> None:
    """Runs PySpark's daemon as the main module. Our code could quieten its workers only after they have begun."""
    daemon = import_module(_DAEMON)
    sys.modules["__main__"] = daemon
    quieten(daemon)
    daemon.manager()


def load() -> None:
    """Loads what the processes need. What cannot be loaded is reported by the process that needs it."""
    daemon = import_module("ottla.spark.daemon")  # by its name: it imports this module in turn
    daemon.load(daemon.TASKS)
    for name in LOADED:
        with suppress(ImportError):
            import_module(name)
    _prepare_protocol()


def _prepare_protocol() -> None:
    """Compiles the messages that clients of a query exchange with a new broker. With an older one, they compile some
    themselves."""
    from ottla.wire import codec, registry
    from ottla.wire.messages import headers

    registry.apis()  # imports all declarations, as the first connection would
    spoken = {module: (name, None) for module, name in _SPOKEN.items()}
    for module, (name, version) in {**spoken, **_SPOKEN_BEFORE}.items():
        declared = vars(import_module(f"ottla.wire.messages.{module}"))
        for message in (declared[f"{name}Request"], declared[f"{name}Response"]):
            codec.prepare(message, message.versions.high if version is None else version)
    codec.prepare(headers.RequestHeader, 2)
    for version in (0, 1):
        codec.prepare(headers.ResponseHeader, version)


def main() -> None:
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    load()
    gc.collect()
    gc.freeze()
    listening = socket.socket(fileno=int(sys.argv[1]))
    inherited = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    request = _Forks(listening, parent).serve()
    if request is not None:
        become(request, inherited)


if __name__ == "__main__":
    main()
