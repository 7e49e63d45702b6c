"""A standalone Spark cluster of processes on this machine: a master and workers, each with one core.

Workers have different loopback addresses, so that Spark takes them for different hosts, and speculates: it starts a
task a second time, elsewhere, if it takes longer than the others.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pyspark

from ottla.testing.server_process import unused_port
from support.waiting import wait_until

_HOST = "127.0.0.1"


class Standalone(NamedTuple):
    master: str
    conf: Mapping[str, str]
    sessions: list[int]
    """Processes, each of which leads a session."""


@contextmanager
def standalone_spark(directory: Path, workers: int = 2) -> Iterator[Standalone]:
    port = unused_port()
    master = f"spark://{_HOST}:{port}"
    with ExitStack() as running:

        def start(name: str, host: str, *command: str) -> int:
            return running.enter_context(_process(directory / name, host, *command, "--host", host))

        sessions = [
            start("master", _HOST, "master.Master", "--port", str(port), "--webui-port", "0"),
            *(
                start(
                    f"worker-{number}",
                    f"127.0.0.{number + 2}",
                    *("worker.Worker", master, "--webui-port", "0", "--cores", "1", "--memory", "700m"),
                    *("--work-dir", str(directory / f"work-{number}")),
                )
                for number in range(workers)
            ),
        ]
        log = directory / "master" / "log"
        wait_until(lambda: log.read_text().count("Registering worker") >= workers, f"workers at {master}")
        conf = {
            "spark.driver.host": _HOST,
            "spark.driver.bindAddress": _HOST,
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.speculation": "true",
            "spark.speculation.interval": "20ms",
            "spark.speculation.minTaskRuntime": "20ms",
            "spark.speculation.multiplier": "1.2",
            "spark.speculation.quantile": "0.5",
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(sys.path),
        }
        yield Standalone(master, conf, sessions)


@contextmanager
def _process(directory: Path, host: str, *command: str) -> Iterator[int]:
    directory.mkdir(parents=True)
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": host,
        "SPARK_DAEMON_MEMORY": "200m",
        "PYSPARK_PYTHON": sys.executable,
    }
    name, *arguments = command
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process.pid
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
