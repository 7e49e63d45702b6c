"""`ottla zookeeper` as a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def server_process(place: Path, *, kill: bool = False, tick_ms: int = 2000) -> Iterator[str]:
    """The address of a server that keeps its tree in a folder; stopped at the end, or killed."""
    command = [sys.executable, "-m", "ottla", "zookeeper", "--listen", "127.0.0.1:0"]
    command += ["--data", str(place / "data"), "--tick-ms", str(tick_ms)]
    with (place / "server.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        if process.stdout is None:
            raise RuntimeError("the server has no standard output")
        line = process.stdout.readline()
        if not line.startswith("ZooKeeper is ready at "):
            raise RuntimeError(f"the server did not start: {line!r} {(place / 'server.log').read_text()}")
        advice = [process.stdout.readline() for _ in range(2)][-1]
        if "run an ensemble of Apache ZooKeeper in production" not in advice:
            raise RuntimeError(f"the server does not say what it is for: {advice!r}")
        yield line.rsplit(" ", 1)[1].strip()
    finally:
        if kill:
            process.kill()
        else:
            process.terminate()
        code = process.wait(30)
        if process.stdout is not None:
            process.stdout.close()
    if not kill and code != 0:
        raise RuntimeError(f"the server ended with {code}: {(place / 'server.log').read_text()}")
