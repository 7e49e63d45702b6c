"""The embedded ZooKeeper for tests, in its own process: on one port over all restarts, in a directory you choose."""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path
from typing import Final

from ottla.testing.server_process import START_TIMEOUT_S, BrokerFailedError, ServerProcess, unused_port

_LOOK_AGAIN_S: Final = 0.05
_ASK_TIMEOUT_S: Final = 5.0


class ZooKeeperServer(ServerProcess):
    """Sessions may last from 2 to 20 ticks."""

    _name = "ZooKeeper"

    def __init__(self, directory: Path, *, tick_ms: int = 500) -> None:
        super().__init__()
        self.directory = directory
        self.port = unused_port()
        self._tick_ms = tick_ms

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        if self._process is not None:
            raise RuntimeError("ZooKeeper is already running")
        self.directory.mkdir(parents=True, exist_ok=True)
        self._spawn(self._command(), self.directory / "output.log", {})
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "ottla", "zookeeper", "--listen", self.address]
        return [*command, "--data", str(self.directory / "data"), "--tick-ms", str(self._tick_ms)]

    def _wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self._says_ok():
            if not self.is_running:
                raise BrokerFailedError(f"ZooKeeper ended while starting:\n{self.output}")
            if time.monotonic() > deadline_s:
                raise BrokerFailedError(f"ZooKeeper did not start in {START_TIMEOUT_S:.0f} s:\n{self.output}")
            time.sleep(_LOOK_AGAIN_S)

    def _says_ok(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=_ASK_TIMEOUT_S) as connection:
                connection.sendall(b"srvr")
                return b"Mode: " in b"".join(iter(lambda: connection.recv(65536), b""))
        except OSError:
            return False

    @property
    def output(self) -> str:
        path = self.directory / "output.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
