"""The job's processes: a driver in Python, its Java, and the Python processes that Spark starts. They are of the
driver's session or of that of its fork server, by which they are found and ended.

The fork server's processes have its command line. What each of them does is seen by the launcher that asked for it,
which has the same standard output.
"""

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
_FORK_SERVER = "ottla.spark.fork_server"


class Driver:
    """One after the other, with the same checkpoint."""

    def __init__(self, job: Job, place: Path) -> None:
        self._job = job
        self._said = place / "job.jsonl"
        self._log = place / "job.log"
        self._said.touch()
        self._process: subprocess.Popen[bytes] | None = None
        self._sessions: set[int] = set()

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
        self._sessions = {self._process.pid}

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the driver was not started"
        return self._process

    def family(self) -> list[psutil.Process]:
        """All that live, the driver included."""
        driver = self._running.pid
        found = []
        for pid in psutil.pids():
            try:
                session = os.getsid(pid)
                process = psutil.Process(pid)
                if session == pid and process.ppid() == driver and _runs(process, _FORK_SERVER):
                    self._sessions.add(pid)
                if session in self._sessions and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue
        return found

    def task_workers(self) -> list[psutil.Process]:
        """Python workers that run tasks, or wait for some: children of a process that its launcher calls so."""
        family = self.family()
        outputs = {_output(one) for one in family if _runs(one, _TASKS)} - {None}
        parents = {one.pid for one in family if _output(one) in outputs}
        return [one for one in family if _parent(one) in parents]

    def planners(self) -> list[psutil.Process]:
        """The launcher of the Python process that goes along with the query: when it is killed, that is."""
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


def _output(process: psutil.Process) -> str | None:
    """What the standard output is: a pipe to Java, for what Java has started."""
    try:
        return str(Path(f"/proc/{process.pid}/fd/1").readlink())
    except OSError:
        return None


def _parent(process: psutil.Process) -> int | None:
    try:
        return int(process.ppid())
    except psutil.NoSuchProcess:
        return None
