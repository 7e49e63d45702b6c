"""A server in a process of its own, as a test handles it: start, stop, kill, pause, resume. Its output goes to a file.

Every wait is bounded, and every error shows the end of the output.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 60.0
_PORTS: Final = (10_000, 32_000)
_PORT_TRIES: Final = 200
_given_away: Final[deque[int]] = deque(maxlen=1000)


class BrokerFailedError(RuntimeError):
    """A server did not start, stop or reach a state in time; the message has its output."""


def unused_port() -> int:
    """A free port outside the system's ephemeral range, so that no connection takes it while the server is stopped. Not
    one of the last that were given away, which nobody may listen on yet."""
    for _ in range(_PORT_TRIES):
        port = random.randrange(*_PORTS)
        if port in _given_away:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _given_away.append(port)
            return port
    raise BrokerFailedError(f"none of {_PORT_TRIES} ports between {_PORTS[0]} and {_PORTS[1]} is free")


class ServerProcess:
    """Base of the servers; `name` stands in errors. Subclasses start it and know when it is ready."""

    _name = "the server"

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_paused = False

    def _spawn(
        self, command: Sequence[str], output: Path, marks: Mapping[str, str], descriptors: Sequence[int] = ()
    ) -> None:
        """`marks` are added to the environment; `descriptors` stay open in the process."""
        with output.open("ab") as file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                pass_fds=descriptors,
                env={**os.environ, **marks} if marks else None,
            )
        self._is_paused = False

    def start(self) -> None:
        """Starts the server and returns when it serves."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stops the server cleanly; keeps the data. A paused server is resumed for it."""
        if self._process is None:
            return
        self.resume()
        process, self._process = self._process, None
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BrokerFailedError(f"{self._name} did not stop in {STOP_TIMEOUT_S:.0f} s:\n{self.output}") from None
        if not self._is_clean(code):
            raise BrokerFailedError(f"{self._name} ended with code {code}:\n{self.output}")

    def _is_clean(self, code: int) -> bool:
        return code == 0

    def kill(self) -> None:
        """Kills the server as `kill -9` does: nothing is flushed."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            process.wait()
        self._is_paused = False

    def pause(self) -> None:
        """Freezes the process (SIGSTOP): it accepts connections, and answers nothing."""
        self.process.send_signal(signal.SIGSTOP)
        self._is_paused = True

    def resume(self) -> None:
        """Lets a paused process go on. Idempotent."""
        if self._process is not None and self._is_paused:
            self._process.send_signal(signal.SIGCONT)
        self._is_paused = False

    def restart(self) -> None:
        self.stop()
        self.start()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError(f"{self._name} is not running")
        return self._process

    @property
    def is_running(self) -> bool:
        """False also for a server that has ended by itself."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    @property
    def output(self) -> str:
        """The server's log output so far."""
        raise NotImplementedError
