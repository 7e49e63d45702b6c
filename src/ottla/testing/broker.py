"""A real broker for tests, in any framework: in its own process, on a free port, in a temporary directory.

    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

Consumer groups form immediately: `group.initial.rebalance.delay.ms` is 0. Several brokers can run at once. `stop` and
`restart` keep the data; leaving the block removes it. A broker that fails to start raises `BrokerFailedError` with its
output, and leaves neither a process nor a directory.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from ottla.testing.server_process import (
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    BrokerFailedError,
    ServerProcess,
    unused_port,
)

__all__ = ["Broker", "BrokerFailedError", "Setting", "settings_text"]

Setting = str | int | float | bool
"""Types of config values; written as in `server.properties`, so True becomes true."""


def settings_text(settings: Mapping[str, Setting]) -> dict[str, str]:
    """Formats settings as in a properties file. Raises `TypeError` for a value that is not a `Setting`."""
    texts = {}
    for key, value in settings.items():
        if not isinstance(value, str | int | float):
            raise TypeError(f"{key} must be a str, int, float or bool, not {type(value).__name__}")
        texts[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


class Broker(ServerProcess):
    """See the module. `overrides` are settings by Kafka's names, as in `server.properties`; `marks` are added to the
    environment of the process."""

    _name = "the broker"

    def __init__(
        self,
        overrides: Mapping[str, Setting] | None = None,
        *,
        directory: Path | None = None,
        port: int = 0,
        marks: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.overrides: dict[str, Setting] = dict(overrides or {})
        settings_text(self.overrides)  # raises early, where the mistake is
        self._given_directory = directory
        self._port = port
        self._directory: Path | None = None
        self._marks = dict(marks or {})
        self._bootstrap = ""

    # --- life ---------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Starts the broker and returns when it serves; after a stop, with the same port and data."""
        if self._process is not None:
            raise RuntimeError("the broker is already running")
        if not self._port:
            self._port = unused_port()
        overrides = settings_text(self.overrides)
        is_first = self._directory is None
        if self._directory is None:
            self._directory = self._given_directory or Path(tempfile.mkdtemp(prefix="ottla-"))
            self._directory.mkdir(parents=True, exist_ok=True)
        settings = {
            "broker.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "ottla.data.dir": str(self._directory / "data"),
            "log.dirs": str(self._directory / "data" / "logs"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",  # tests have few members, and need not wait for more
            **overrides,
        }
        try:
            self._launch(self._directory, settings)
        except BaseException:
            self.kill()
            if is_first:  # after a restart, the data may be worth a look
                self._remove_own_directory()
            raise

    def _launch(self, directory: Path, settings: Mapping[str, str]) -> None:
        ready_end, child_end = os.pipe()
        try:
            command = [sys.executable, "-m", "ottla.testing.broker_process", str(child_end), json.dumps(settings)]
            self._spawn(command, directory / "output.log", self._marks, (child_end,))
            os.close(child_end)
            child_end = -1
            host, port = self._wait_until_ready(ready_end)
        finally:
            os.close(ready_end)
            if child_end >= 0:
                os.close(child_end)
        self._port = port
        self._bootstrap = f"{host}:{port}"

    def _wait_until_ready(self, descriptor: int) -> tuple[str, int]:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        poll = select.poll()  # `select` cannot wait for a descriptor beyond 1023
        poll.register(descriptor, select.POLLIN)
        told = b""
        while not told.endswith(b"\n"):
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not poll.poll(left_s * 1000):
                raise BrokerFailedError(f"the broker did not start in {START_TIMEOUT_S:.0f} s:\n{self.output}")
            piece = os.read(descriptor, 4096)
            if not piece:
                code = self.process.wait(STOP_TIMEOUT_S)
                self._process = None
                raise BrokerFailedError(f"the broker ended with code {code}:\n{self.output}")
            told += piece
        host, port = json.loads(told)
        return host, port

    def close(self) -> None:
        """Stops the broker, and removes its data unless you chose the directory."""
        try:
            self.stop()
        finally:
            self._remove_own_directory()

    def _remove_own_directory(self) -> None:
        if self._directory is not None and self._given_directory is None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    # --- what there is ------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`."""
        return self._bootstrap

    @property
    def port(self) -> int:
        return self._port

    @property
    def directory(self) -> Path:
        if self._directory is None:
            raise RuntimeError("the broker was not started yet, or is closed")
        return self._directory

    @property
    def output(self) -> str:
        """The broker's log output so far."""
        path = self.directory / "output.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
