"""The network between the members of a test cluster: a proxy in its own process, told what to cut.

`Network` may be used from any one thread at a time.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Final

from ottla.testing.proxy import Faults, Flow, Route
from ottla.testing.proxy_process import faults_to_json

_ANSWER_TIMEOUT_S: Final = 30.0


class NetworkFailedError(RuntimeError):
    """The proxy did not start, or has ended; the message has its output."""


class Network:
    """See the module. `log` is the file for the proxy's own errors."""

    def __init__(self, cluster: str, routes: Sequence[Route], log: Path) -> None:
        self._faults = Faults()
        self._log = log
        self._lock = threading.Lock()
        settings = json.dumps({"cluster": cluster, "routes": [astuple(route) for route in routes]})
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ottla.testing.proxy_process", settings],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        try:
            self._expect(b"ready\n")
        except BaseException:
            self.close()
            raise

    def cut(self, source: int, target: int, *, one_way: bool = False, reset: bool = False) -> None:
        """Blocks the flow from source to target, and the other one unless `one_way`. With `reset`, connections of the
        pair end instead of hanging."""
        flows: set[Flow] = {(source, target)} if one_way else {(source, target), (target, source)}
        with self._lock:
            if reset:
                self._apply(replace(self._faults, reset=self._faults.reset | flows))
            else:
                self._apply(replace(self._faults, blocked=self._faults.blocked | flows))

    def delay(self, source: int, target: int, delay_s: float) -> None:
        """Delays what source sends to target; 0 ends it."""
        with self._lock:
            self._apply(replace(self._faults, delays_s={**self._faults.delays_s, (source, target): delay_s}))

    def heal(self, one: int | None = None, other: int | None = None) -> None:
        """Ends all faults, or those between two members."""
        with self._lock:
            if one is None or other is None:
                self._apply(Faults())
                return
            pair = {(one, other), (other, one)}
            delays = {flow: delay_s for flow, delay_s in self._faults.delays_s.items() if flow not in pair}
            self._apply(Faults(self._faults.blocked - pair, self._faults.reset - pair, delays))

    def _apply(self, faults: Faults) -> None:
        stdin = self._process.stdin
        if stdin is None:
            raise NetworkFailedError("the proxy has no standard input")
        try:
            stdin.write(faults_to_json(faults).encode() + b"\n")
            stdin.flush()
        except OSError:
            raise NetworkFailedError(f"the proxy has ended:\n{self.output}") from None
        self._expect(b"done\n")
        self._faults = faults

    def _expect(self, word: bytes) -> None:
        stdout = self._process.stdout
        if stdout is None:
            raise NetworkFailedError("the proxy has no standard output")
        poll = select.poll()
        poll.register(stdout, select.POLLIN)
        deadline_s = time.monotonic() + _ANSWER_TIMEOUT_S
        if not poll.poll((deadline_s - time.monotonic()) * 1000):
            raise NetworkFailedError(f"the proxy did not answer in {_ANSWER_TIMEOUT_S:.0f} s:\n{self.output}")
        line = stdout.readline()
        if line != word:
            raise NetworkFailedError(f"the proxy has ended:\n{self.output}")

    @property
    def output(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(_ANSWER_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
