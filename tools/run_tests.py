"""Runs the suite in two runs of pytest at once: `make test`.

Tests of processes wait for most of their time: for time-outs, disks, and each other. Unit tests compute. So they run
beside the others on what these leave of the processors: as many workers as there are cores, with a lower priority, so
that they do not slow down a test that has to keep a time-out. All others get one worker more than there are cores.

Arguments are given to both runs. The output of unit tests comes after that of the others.

**A few failed tests are run again, alone.** Thousands of tests share two cores, brokers and a garbage collector, so one
in many thousands may fail because of another one. If all of them pass alone, the run has passed, and its end names
them: each is a race in a test or in the product that somebody has to find. More than a few, or a crash, fail at once.
With `--compat`, there is one run, of the tests that need Apache Kafka: `make compat`.
"""

from __future__ import annotations

import json
import os
import re
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
SOME_FAILED: Final = 1
"""What pytest ends with if tests failed, and nothing else was wrong."""
AGAIN_MAX: Final = 3
_LOWER_PRIORITY: Final = 10
_GROUP: Final = re.compile(r"@[^\]@]*$")
"""What xdist adds to the name of a test that belongs to a group."""


def pytest_command(workers: int, name: str, arguments: Sequence[str]) -> list[str]:
    slowest = ("--durations=25", "--durations-min=0.5")
    cache = ("-o", f"cache_dir=.pytest_cache/{name}")
    return [sys.executable, "-m", "pytest", "-n", str(workers), "--dist", "loadgroup", *slowest, *cache, *arguments]


def failed_tests(name: str) -> list[str]:
    """Of the last run of that name, as arguments for pytest."""
    file = ROOT / ".pytest_cache" / name / "v" / "cache" / "lastfailed"
    return [_GROUP.sub("", test) for test in json.loads(file.read_text())] if file.exists() else []


def passes_alone(name: str) -> bool:
    """Whether the tests that failed, if they are few, pass when nothing runs beside them."""
    tests = failed_tests(name)
    if not 0 < len(tests) <= AGAIN_MAX:
        return False
    print(f"Running {len(tests)} of the {name} tests again, alone.", flush=True)
    again = [sys.executable, "-m", "pytest", "-o", f"cache_dir=.pytest_cache/{name}-again", *tests]
    if subprocess.run(again, cwd=ROOT, check=False).returncode:
        return False
    print("FLAKY, failed beside other tests and passed alone:", *tests, sep="\n  ", flush=True)
    return True


def forget_failures(name: str) -> None:
    (ROOT / ".pytest_cache" / name / "v" / "cache" / "lastfailed").unlink(missing_ok=True)


def run_one(name: str, workers: int, arguments: Sequence[str]) -> int:
    """One run alone."""
    forget_failures(name)
    code = subprocess.run(pytest_command(workers, name, arguments), cwd=ROOT, check=False).returncode
    return 0 if code == SOME_FAILED and passes_alone(name) else code


def run_two(arguments: Sequence[str]) -> int:
    cores = os.cpu_count() or 2
    waiting_workers = int(os.environ.get("WORKERS") or cores + 1)
    began_s = time.monotonic()
    for name in ("computing", "waiting"):
        forget_failures(name)
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
    outcomes = {"waiting": waiting.returncode, "computing": computing.returncode}
    for name, code in outcomes.items():
        if code == SOME_FAILED and passes_alone(name):
            outcomes[name] = 0
    codes = set(outcomes.values()) - {NOTHING_TO_RUN}
    print(f"Both runs took {time.monotonic() - began_s:.0f} s and {'failed' if codes != {0} else 'passed'}.")
    return max(codes, default=NOTHING_TO_RUN)


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--compat"]:
        return run_one("compat", os.cpu_count() or 2, arguments[1:])
    return run_two(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
