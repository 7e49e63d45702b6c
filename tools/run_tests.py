"""Runs the suite in two runs of pytest at once: `make test`.

Tests of processes wait for most of their time: for time-outs, disks, and each other. Unit tests compute. So they run
beside the others on what these leave of the processors: as many workers as there are cores, with a lower priority, so
that they do not slow down a test that has to keep a time-out. All others get one worker more than there are cores.

Arguments are given to both runs. The output of unit tests comes after that of the others.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
COMPUTING: Final = ("tests/unit", "tests/models")
NOTHING_TO_RUN: Final = 5
"""What pytest ends with if no test is selected."""
_LOWER_PRIORITY: Final = 10


def pytest_command(workers: int, name: str, arguments: Sequence[str]) -> list[str]:
    slowest = ("--durations=25", "--durations-min=0.5")
    cache = ("-o", f"cache_dir=.pytest_cache/{name}")
    return [sys.executable, "-m", "pytest", "-n", str(workers), "--dist", "loadgroup", *slowest, *cache, *arguments]


def main(arguments: Sequence[str]) -> int:
    cores = os.cpu_count() or 2
    waiting_workers = int(os.environ.get("WORKERS") or cores + 1)
    began_s = time.monotonic()
    with tempfile.TemporaryFile() as output:
        computing = subprocess.Popen(
            pytest_command(cores, "computing", [*arguments, *COMPUTING]),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=lambda: os.nice(_LOWER_PRIORITY),
        )
        try:
            ignored = [f"--ignore={folder}" for folder in COMPUTING]
            waiting = subprocess.run(
                pytest_command(waiting_workers, "waiting", [*arguments, *ignored, "tests"]), cwd=ROOT, check=False
            )
            computing.wait()
        finally:
            if computing.poll() is None:
                computing.terminate()
                computing.wait()
        output.seek(0)
        sys.stdout.flush()
        sys.stdout.buffer.write(output.read())
    codes = {waiting.returncode, computing.returncode} - {NOTHING_TO_RUN}
    print(f"Both runs took {time.monotonic() - began_s:.0f} s and {'failed' if codes != {0} else 'passed'}.")
    return max(codes, default=NOTHING_TO_RUN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
