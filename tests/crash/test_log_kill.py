"""A process that appends is killed again and again; each time, everything it had acknowledged is there.

`OTTLA_KILLS` says how often (`make crash`: hundreds of times), `OTTLA_SEED` with which seed to begin.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import IO

import pytest

from crash.appender import OPTIONS
from ottla.base.clock import SystemClock
from ottla.log.directories import LogDirectories
from ottla.log.local_disk import LocalDisk
from support.logs.workload import PARTITION, Told, config_of

KILLS = int(os.environ.get("OTTLA_KILLS", "60"))
SEED = int(os.environ.get("OTTLA_SEED", "0"))
PARTS = 2
"""For two cores."""
TESTS = Path(__file__).parent.parent
SOURCES = TESTS.parent / "src"


class Appender:
    """The process that makes processes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in: IO[str] = process.stdin
        self._out: IO[str] = process.stdout

    def run(self, seed: int, told: Told) -> tuple[str, str]:
        """Lets one live and die. How it died, and what it was doing."""
        self._in.write(f"{seed}\n")
        self._in.flush()
        doing = "nothing"
        for line in self._out:
            message = json.loads(line)
            if isinstance(message, list):
                stage, name, value = message
                told.hear((stage, name, value))
                doing = name if stage == "begin" else f"after {name}"
                continue
            if "error" in message:
                pytest.fail(f"seed {seed}: the process failed: {message['error']}")
            assert message["done"] in (-9, 0), f"seed {seed}: it ended with {message['done']}"
            return message["how"], doing
        pytest.fail(f"seed {seed}: the appender is gone")


@contextmanager
def appender(directory: Path) -> Iterator[Appender]:
    paths = os.pathsep.join((str(SOURCES), str(TESTS)))
    with subprocess.Popen(
        [sys.executable, "-m", "crash.appender", str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    ) as process:
        yield Appender(process)
        assert process.stdin is not None
        process.stdin.close()


def judge(directory: Path, told: Told, *, clean: bool) -> None:
    """Opens what the killed process left, as the next one will find it."""
    directories = LogDirectories(LocalDisk(), SystemClock(), [directory], OPTIONS)
    directories.open(config_of)
    log = directories.get(PARTITION)
    assert log is not None or not told.is_created, "the replica is gone"
    if log is not None:
        told.judge(log, power_cut=False)
    if clean:
        directories.close()
        return
    for each in directories.logs():
        for segment in each.segments:
            segment.abandon()
    directories._release_locks()


@pytest.mark.parametrize("part", range(PARTS))
def test_acknowledged_appends_survive_a_killed_process(tmp_path: Path, part: int) -> None:
    directory = tmp_path / "log"
    told = Told()
    died: Counter[str] = Counter()
    doing: Counter[str] = Counter()
    with appender(directory) as processes:
        for kill in range(KILLS // PARTS):
            seed = SEED + part * 1_000_000 + kill
            how, what = processes.run(seed, told)
            died[how.split()[-1]] += 1
            doing[what] += 1
            try:
                judge(directory, told, clean=Random(seed).random() < 0.3)
            except Exception as error:
                raise AssertionError(f"seed {seed}, killed by {how}, {what}: {error}") from error
    sys.stdout.write(f"killed by {dict(died)}, doing {dict(doing)}\n")
    assert sum(died.values()) == KILLS // PARTS
    assert len(doing) > 2, f"the kills met only {doing}"
