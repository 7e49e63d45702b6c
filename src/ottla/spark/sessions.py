"""A Spark session with everything set right for pipelines over topics."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.base.errors import OttlaError
from ottla.spark.environment import check_java, check_pyspark
from ottla.spark.python_workers import lean_home, worker_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK: Final = "127.0.0.1"

_EVERYWHERE: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A batch uploads what it changed, in place of a snapshot of all the state.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL: Final = {
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.ui.enabled": "false",
    # On a disk it renames as well as the usual one, which starts a program for every file that it touches: half of
    # what a small micro-batch takes.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
_LOCAL_MASTER: Final = re.compile(r"local(\[(?P<cores>\*|\d+)(,\s*(\*|\d+))?\])?")
_END_TIMEOUT_S: Final = 10
_QUIET: Final = ("ERROR", "FATAL", "OFF")
_GIB: Final = 1 << 30
_MEMORY_GIB: Final = (1, 4)
"""The least and the most that a local driver, in which everything runs, is given of the machine's memory."""


class SessionConflictError(OttlaError):
    """A session is running already, with settings that cannot be changed any more."""


def session(
    master: str = "local[*]", app_name: str = "ottla", *, java_output: Path | None = None, **conf: object
) -> SparkSession:
    """A Spark session that knows `format("ottla")`; the one that is running, if there is one.

    Settings are given by Spark's names, `**{"spark.sql.shuffle.partitions": 8}`, or as Python spells them,
    `sql_shuffle_partitions=8`; they count more than what is set here: UTC, Arrow, RocksDB for state, few words in the
    log, this Python for the workers. With a local master everything listens on 127.0.0.1 only, there is no web UI
    unless `ui_enabled=True`, and there are as many shuffle partitions as cores. What Spark's Java says goes to
    standard error, or to the file `java_output`; with the latter, a Ctrl-C is for this process alone.

    Raises `SparkUnavailableError` where PySpark or Java 17 is missing, and `SessionConflictError` where a running
    session has settings that these contradict.
    """
    check_pyspark()
    from pyspark.sql import SparkSession

    asked = {spark_key(name): _text(value) for name, value in conf.items()}
    running = SparkSession.getActiveSession()
    if running is not None:
        return _adapted(running, master, asked)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # else spark-submit has started a Java already
        check_java()
    _prepare_environment(master, asked)
    settings = {"spark.master": master, "spark.app.name": app_name, **default_settings(master), **asked}
    # Another Python than this one need not have what these two load.
    has_our_workers = local_cores(master) is not None and "spark.pyspark.python" not in asked
    if has_our_workers:
        settings = worker_settings() | settings
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    with lean_home() if has_our_workers else nullcontext():
        if java_output is not None:
            _start_java(settings, java_output)
        started = builder.getOrCreate()
    _set_log_level(started, settings["spark.log.level"])
    return started


def end(running: SparkSession) -> None:
    """Stops a session and the Java that was started for it, and waits until that is gone, with what it put aside."""
    from pyspark import SparkContext

    with suppress(Exception):  # Java may be gone already, in whatever way
        running.stop()
    gateway: Any = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is None:
        return  # it is not ours
    with suppress(Exception):
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    process.stdin.close()  # what it waits for
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def default_settings(master: str) -> dict[str, str]:
    """What a session is given unless it is told otherwise."""
    cores = local_cores(master)
    settings = dict(_EVERYWHERE)
    if find_spec("pandas") is None:
        settings["spark.sql.execution.pythonUDF.arrow.enabled"] = "false"  # needs it, and warns of its lack
    if cores is None:
        return settings
    return settings | _LOCAL | {"spark.sql.shuffle.partitions": str(cores), "spark.driver.memory": _local_memory()}


def local_cores(master: str) -> int | None:
    """How many tasks run at a time where the master is this process; None for any other master."""
    found = _LOCAL_MASTER.fullmatch(master)
    if found is None:
        return None
    cores = found["cores"] or "1"
    return (os.cpu_count() or 1) if cores == "*" else int(cores)


def spark_key(name: str) -> str:
    """Spark's name of a setting: `sql_shuffle_partitions` is `spark.sql.shuffle.partitions`."""
    if "." in name:
        return name
    return "spark." + name.removeprefix("spark_").replace("_", ".")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _local_memory() -> str:
    least, most = _MEMORY_GIB
    machine_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _GIB
    return f"{min(most, max(least, machine_gib // 4))}g"


def _prepare_environment(master: str, asked: Mapping[str, str]) -> None:
    """What Spark reads from the environment when its Java starts, and never from its settings."""
    if "spark.pyspark.python" in asked:
        os.environ["PYSPARK_PYTHON"] = asked["spark.pyspark.python"]
    elif local_cores(master) is not None:
        os.environ["PYSPARK_PYTHON"] = sys.executable  # whatever was there: workers must find what this process has
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if local_cores(master) is not None:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)  # the web UI, when there is one, listens there


def _set_log_level(running: SparkSession, level: str) -> None:
    running.sparkContext.setLogLevel(level)
    # PySpark's own way to say at length what it raises as well.
    logging.getLogger("SQLQueryContextLogger").disabled = level.upper() in _QUIET


def _start_java(settings: Mapping[str, str], output: Path) -> None:
    """Starts Spark's Java apart from our terminal: a Ctrl-C would end its Python workers, and fail what they do."""
    from pyspark import SparkConf, SparkContext, java_gateway

    launch: Any = java_gateway.launch_gateway  # it has no types

    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with output.open("ab") as file:
        gateway = launch(conf, {"start_new_session": True, "stdout": file, "stderr": file})
    SparkContext._ensure_initialized(gateway=gateway)


def _adapted(running: SparkSession, master: str, asked: Mapping[str, str]) -> SparkSession:
    """The running session with what was asked for, as far as a session can be changed."""
    settings: dict[str, Any] = dict(running.sparkContext.getConf().getAll())
    for key, value in {"spark.master": master, **asked}.items():
        if running.conf.isModifiable(key):
            running.conf.set(key, value)
        elif key == "spark.log.level":
            _set_log_level(running, value)
        elif settings.get(key) != value:
            raise SessionConflictError(
                f"{key} cannot be changed to {value}: a session is running with {settings.get(key, 'its default')}. "
                "Stop it first with spark.stop()"
            )
    return running
