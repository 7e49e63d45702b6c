"""The members of a group as processes, and what each has told so far."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from faults.client.chaos.checker import Tenure, check_tenure

_SCRIPT: Final = Path(__file__).with_name("member.py")
_STYLES: Final = ("poll", "iteration", "arrow", "asyncio")
_EXPLAIN_S: Final = 1.0
CLOSE_TIMEOUT_S: Final = 60.0
"""A guard against members that never end; a prompt close takes a moment."""
STARVED_TIMEOUT_S: Final = 300.0
"""The same on a machine that is too busy to run them."""


def draw_orders(common: dict[str, Any], topic: str, chance: random.Random) -> dict[str, Any]:
    """How a new member works: its style, and limits from tiny to huge."""
    settings = {
        **common,
        "enable.auto.commit": chance.random() < 0.5,
        "auto.commit.interval.ms": chance.choice((50, 300)),
        "max.poll.records": chance.choice((1, 20, 500, 5000)),
        "fetch.max.bytes": chance.choice((1, 10_000, 50_000_000)),
        "max.partition.fetch.bytes": chance.choice((1, 5_000, 1_000_000)),
        "queued.max.bytes": chance.choice((20_000, 50_000_000)),
        "fetch.max.wait.ms": chance.choice((10, 500)),
    }
    return {"topic": topic, "style": chance.choice(_STYLES), "seed": chance.getrandbits(32), "settings": settings}


class Member:
    def __init__(self, number: int, orders: dict[str, Any]) -> None:
        self.name = f"member {number} ({orders['style']}, auto commit {orders['settings']['enable.auto.commit']})"
        self._settings: dict[str, Any] = orders["settings"]
        self.tenures: list[Tenure] = []
        self.refusals: list[str] = []
        self.interrupted = 0
        self.is_closed = False
        self._is_ready = threading.Event()
        """Whether it handles signals."""
        self._was_killed = False
        self._current: dict[int, list[int]] = {}
        self._strays: list[str] = []
        self._complaints: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, str(_SCRIPT), json.dumps(orders)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._readers = [
            threading.Thread(target=self._read, args=(self._process.stdout,)),
            threading.Thread(target=self._complaints.extend, args=(self._process.stderr,)),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            if not line.endswith("\n"):  # killed in the middle of it
                return
            match json.loads(line):
                case ["assigned", partitions]:
                    for partition in partitions:
                        self._current[partition] = []
                        self.tenures.append((partition, self._current[partition]))
                case ["revoked", partitions]:
                    for partition in partitions:
                        self._current.pop(partition, None)
                case ["consumed", partition, offsets]:
                    if partition in self._current:
                        self._current[partition].extend(offsets)
                    else:
                        self._strays.append(f"records of partition {partition}, which it does not own: {offsets[:5]}")
                case ["ready"]:
                    self._is_ready.set()
                case ["interrupted"]:
                    self.interrupted += 1
                case ["refused", *reason]:
                    self.refusals.append(": ".join(reason))
                case ["closed"]:
                    self.is_closed = True

    def signal(self, number: signal.Signals) -> None:
        self._is_ready.wait(STARVED_TIMEOUT_S)
        if self._process.poll() is None:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._was_killed = True
        self._process.kill()
        self._ended()

    def begin_to_close(self) -> None:
        self.signal(signal.SIGTERM)

    def check_alive(self) -> None:
        code = self._process.poll()
        assert code is None, f"{self.name} ended by itself with code {code}:\n{''.join(self._complaints)}"

    def explain(self) -> str:
        """Where it is, for whoever looks into a failure: what it owns and saw, and what each of its threads does."""
        seen = {index: offsets[-1] if offsets else None for index, offsets in self._current.items()}
        self.signal(signal.SIGUSR1)
        time.sleep(_EXPLAIN_S)  # after the failure: nothing depends on it
        return (
            f"{self.name}: owns, with the last offset it saw, {seen}; interrupted {self.interrupted} times; "
            f"last refusals {self.refusals[-3:]}; settings {self._settings}\n{''.join(self._complaints)}"
        )

    def wait_until_closed(self) -> None:
        """Within `CLOSE_TIMEOUT_S`, without the time in which it could have run and the machine had no core for it."""
        begun_s, waited_s, delays_s = time.monotonic(), 0.0, self._delays_s()
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(1.0)
                    return
                since_s = time.monotonic() - begun_s
                before_s, delays_s = delays_s, self._delays_s()
                waited_s += max((each - before_s.get(task, 0.0) for task, each in delays_s.items()), default=0.0)
                if since_s - waited_s > CLOSE_TIMEOUT_S or since_s > STARVED_TIMEOUT_S:
                    told = f"{self.name} did not close in {since_s:.0f} s, {waited_s:.0f} of them without a core"
                    raise AssertionError(f"{told}\n{self.explain()}")
        finally:
            self._process.kill()
            self._ended()

    def _delays_s(self) -> dict[str, float]:
        """How long each of its threads has had to wait for a core so far."""
        with suppress(OSError):  # one of them, or all, have ended
            tasks = Path(f"/proc/{self._process.pid}/task").iterdir()
            return {task.name: int((task / "schedstat").read_text().split()[1]) / 1e9 for task in tasks}
        return {}

    def _ended(self) -> None:
        self._process.wait()
        for reader in self._readers:
            reader.join()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def check(self) -> None:
        """Of a member that has ended."""
        if not self._was_killed:
            complaints = "".join(self._complaints)
            assert self.is_closed, f"{self.name} ended with code {self._process.returncode}:\n{complaints}"
        assert not self._strays, f"{self.name} was given {self._strays[:3]}"
        for tenure in self.tenures:
            check_tenure(tenure, self.name)
