"""`ottla start --brokers 3` as a user runs it: without a terminal, with Ctrl-C, killed, and started again."""

from __future__ import annotations

import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from ottla.testing.server_process import unused_port
from support.clients.command_line import caller
from support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("cluster")

WAIT_S: Final = 60.0


class Launched:
    """The command, and the lines that it prints."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "ottla", "start", "--brokers", "3", "--data-dir", str(directory), *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def wait_for(self, pattern: str) -> str:
        """The next line that matches."""
        while True:
            line = self._queue.get(timeout=WAIT_S)
            assert line is not None, self.lines
            self.lines.append(line)
            if re.search(pattern, line):
                return line

    def end(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        code = self.process.wait(WAIT_S)
        while (line := self._queue.get(timeout=WAIT_S)) is not None:
            self.lines.append(line)
        return code


@contextmanager
def launched(directory: Path, *arguments: str) -> Iterator[Launched]:
    one = Launched(directory, *arguments)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.process.kill()  # its processes notice that it is gone
            one.process.wait(WAIT_S)
        if one.process.stdout is not None:
            one.process.stdout.close()


def pids(directory: Path) -> list[int]:
    """Of processes that work with the directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(part.startswith(os.fsencode(directory)) for part in command):
            found.append(int(process.name))
    return found


def test_a_cluster_starts_serves_stops_and_starts_again(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    port = unused_port()
    with launched(tmp_path, "--port", str(port)) as cluster:
        assert "development" in cluster.wait_for("")
        ready = cluster.wait_for("^Ottla is ready at ")
        bootstrap = ready.removeprefix("Ottla is ready at ")
        assert bootstrap == ",".join(f"127.0.0.1:{port + number}" for number in range(3))
        assert [line for line in cluster.lines if re.fullmatch("broker [123] is the controller", line)]
        ottla = caller(bootstrap, capfdbinary)
        ottla("topics", "create", "orders", "--partitions", "3")
        assert '"replicas": [' in ottla("topics", "describe", "orders", "--json")
        assert cluster.end() == 0
        assert cluster.lines[-1].startswith("Stopped.")
        assert not [line for line in cluster.lines if "killed" in line]
    assert pids(tmp_path) == []
    with launched(tmp_path, "--port", str(port)) as cluster:
        cluster.wait_for("^Ottla is ready at ")
        assert "orders" in ottla("topics", "list")
        wait_until(
            lambda: ottla("cluster", "problems", "--json").startswith("[]"),
            "not all replicas are in sync after a restart",
        )
        assert cluster.end(signal.SIGTERM) == 0


def test_a_broker_that_dies_is_reported_and_nothing_outlives_the_command(tmp_path: Path) -> None:
    with launched(tmp_path, "--port", str(unused_port())) as cluster:
        cluster.wait_for("^Ottla is ready at ")
        (victim,) = [pid for pid in pids(tmp_path / "broker-2.properties") if pid != cluster.process.pid]
        os.kill(victim, signal.SIGKILL)
        told = cluster.wait_for("^broker 2 ended by SIGKILL")
        assert f"ottla start {tmp_path / 'broker-2.properties'}" in told
        with launched(tmp_path) as second:
            second.wait_for(f"already running in {re.escape(str(tmp_path))} \\(process {cluster.process.pid}\\)")
            assert second.process.wait(WAIT_S) == 1
        cluster.process.kill()
        cluster.process.wait(WAIT_S)
    wait_until(lambda: pids(tmp_path) == [], "processes are left after the command was killed")


def test_a_port_in_use_is_reported_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with launched(tmp_path, "--port", str(port)) as cluster:
            cluster.wait_for(f"Broker 1 cannot start: 127.0.0.1:{port} is in use. Choose another first port")
            assert cluster.process.wait(WAIT_S) == 1
    assert not (tmp_path / "zookeeper").exists()
