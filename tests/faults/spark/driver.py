"""The job's processes: a driver in Python, its Java, and the Python workers that Spark starts. All of them are of one
session, by which they are found and ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from faults.spark.job import Job
from support.waiting import wait_until

WAIT_S = 180.0
"""Only a failure waits that long: the machine may be busy."""
_PROGRAM = Path(__file__).with_name("job.py")
_TASKS = "pyspark.worker"
_PLANNER = "pyspark.sql.streaming.python_streaming_source_runner"


class Driver:
    """One after the other, with the same checkpoint."""

    def __init__(self, job: Job, place: Path) -> None:
        self._job = job
        self._said = place / "job.jsonl"
        self._log = place / "job.log"
        self._said.touch()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, drains: bool = False) -> None:
        job = replace(self._job, drains=drains)
        with self._said.open("ab") as said, self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(_PROGRAM), job.to_json()],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=log,
                start_new_session=True,
            )

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the driver was not started"
        return self._process

    def family(self) -> list[psutil.Process]:
        """All that live, the driver included."""
        session = self._running.pid
        found = []
        for pid in psutil.pids():
            try:
                if os.getsid(pid) == session:
                    process = psutil.Process(pid)
                    if process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue
        return found

    def task_workers(self) -> list[psutil.Process]:
        """Python workers that run tasks, or wait for some. What forks them has their name, and is not one of them."""
        named = [one for one in self.family() if _runs(one, _TASKS)]
        pids = {one.pid for one in named}
        return [one for one in named if _parent(one) in pids]

    def planners(self) -> list[psutil.Process]:
        """The Python process that goes along with the query."""
        return [one for one in self.family() if _runs(one, _PLANNER)]

    def is_alive(self) -> bool:
        return self._running.poll() is None

    def kill(self) -> None:
        """Python and Java at once; workers have to find out, and end."""
        os.killpg(self._running.pid, signal.SIGKILL)
        self._running.wait(WAIT_S)
        wait_until(lambda: not self.family(), "workers end when their driver was killed", WAIT_S)

    def terminate(self) -> None:
        """As a supervisor would: the driver is asked, and does the rest."""
        self._running.send_signal(signal.SIGTERM)
        self.wait()

    def wait(self) -> None:
        """For an end without failure, of all processes."""
        code = self._running.wait(WAIT_S)
        assert code == 0, f"the job ended with {code}:\n{self.log()}"
        wait_until(lambda: not self.family(), "workers end with their driver", WAIT_S)

    def close(self) -> None:
        """Whatever is left."""
        if self._process is None:
            return
        while left := self.family():
            for process in left:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    continue
        self._process.wait(WAIT_S)

    def events(self) -> list[dict[str, Any]]:
        """What the job said, over all starts."""
        whole = self._said.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def said(self, what: str) -> int:
        return sum(what in event for event in self.events())

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-20_000:]


def _runs(process: psutil.Process, module: str) -> bool:
    try:
        return module in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def _parent(process: psutil.Process) -> int | None:
    try:
        return int(process.ppid())
    except psutil.NoSuchProcess:
        return None
