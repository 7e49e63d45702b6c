"""Creates a Spark session with the right settings for pipelines over topics."""

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
from ottla.spark.python_workers import (
    end_fork_server,
    environment_of_java,
    is_worker_python,
    worker_python,
    worker_settings,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK: Final = "127.0.0.1"

_EVERYWHERE: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A batch uploads its changes instead of a snapshot of the whole state.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL: Final = {
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.ui.enabled": "false",
    # On a local disk it renames as safely as the default, which starts a program for every file that it touches: half
    # of the time of a small micro-batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
_LOCAL_MASTER: Final = re.compile(r"local(\[(?P<cores>\*|\d+)(,\s*(\*|\d+))?\])?")
_END_TIMEOUT_S: Final = 10
_CONNECT: Final = "pyspark.sql.connect"
_QUIET: Final = ("ERROR", "FATAL", "OFF")
_GIB: Final = 1 << 30
_MEMORY_GIB: Final = (1, 4)
"""The minimum and maximum of the machine's memory for a local driver, in which everything runs."""


class SessionConflictError(OttlaError):
    """A session is already running, with settings that can no longer be changed."""


def session(
    master: str = "local[*]", app_name: str = "ottla", *, java_output: Path | None = None, **conf: object
) -> SparkSession:
    """Returns a Spark session that knows `format("ottla")`; the running one, if there is one.

    Settings use Spark's names, `**{"spark.sql.shuffle.partitions": 8}`, or Python names, `sql_shuffle_partitions=8`.
    They override the settings made here: UTC, Arrow, RocksDB for state, little logging, this Python for the workers.
    With a local master everything listens on 127.0.0.1 only, there is no web UI unless `ui_enabled=True`, and there are
    as many shuffle partitions as cores. The output of Spark's Java goes to standard error, or to the file
    `java_output`; with the latter, Ctrl-C only affects this process.

    Raises `SparkUnavailableError` if PySpark or Java 17 is missing, and `SessionConflictError` if a running session has
    conflicting settings.
    """
    check_pyspark()
    from pyspark.sql import SparkSession

    asked = {spark_key(name): _text(value) for name, value in conf.items()}
    running = SparkSession.getActiveSession()
    if running is not None:
        if type(running).__module__.startswith(_CONNECT):
            raise SessionConflictError(
                "a session of Spark Connect is active: use it directly, because it cannot take the settings made here"
            )
        return _adapted(running, master, asked)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # otherwise spark-submit has already started Java
        check_java()
    settings = {"spark.master": master, "spark.app.name": app_name, **default_settings(master), **asked}
    # Another Python may not have what these load.
    has_our_workers = local_cores(master) is not None and "spark.pyspark.python" not in asked
    python = sys.executable
    if has_our_workers:
        settings = worker_settings() | settings
        python = worker_python()
    _prepare_environment(master, asked, python)
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    with environment_of_java(python) if has_our_workers else nullcontext():
        if java_output is not None:
            _start_java(settings, java_output)
        started = builder.getOrCreate()
    _set_log_level(started, settings["spark.log.level"])
    return started


def end(running: SparkSession) -> None:
    """Stops a session and the Java that was started for it, and waits until it has ended and removed its files."""
    from pyspark import SparkContext

    with suppress(Exception):  # Java may have ended already, in any way
        running.stop()
    gateway: Any = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is None:
        return  # not started by us
    try:
        _end_java(gateway, process)
    finally:
        end_fork_server()


def _end_java(gateway: Any, process: subprocess.Popen[bytes]) -> None:
    from pyspark import SparkContext

    with suppress(Exception):
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    if process.stdin is not None:
        process.stdin.close()  # Java ends when this is closed
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def default_settings(master: str) -> dict[str, str]:
    """The default settings of a session."""
    cores = local_cores(master)
    settings = dict(_EVERYWHERE)
    if find_spec("pandas") is None:
        settings["spark.sql.execution.pythonUDF.arrow.enabled"] = "false"  # it needs pandas, and warns without it
    if cores is None:
        return settings
    return settings | _LOCAL | {"spark.sql.shuffle.partitions": str(cores), "spark.driver.memory": _local_memory()}


def local_cores(master: str) -> int | None:
    """The number of tasks at a time if the master is this process; None for any other master."""
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


def _prepare_environment(master: str, asked: Mapping[str, str], python: str) -> None:
    """Sets what Spark reads from the environment when its Java starts, and never from its settings."""
    if "spark.pyspark.python" in asked:
        os.environ["PYSPARK_PYTHON"] = asked["spark.pyspark.python"]
    elif local_cores(master) is not None:
        os.environ["PYSPARK_PYTHON"] = python  # in any case: workers must find what this process has
    elif is_worker_python(os.environ.get("PYSPARK_PYTHON")):
        os.environ["PYSPARK_PYTHON"] = sys.executable  # other machines do not have that of an earlier local session
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if local_cores(master) is not None:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)  # also the address of the web UI


def _set_log_level(running: SparkSession, level: str) -> None:
    running.sparkContext.setLogLevel(level)
    # PySpark logs at length what it also raises.
    logging.getLogger("SQLQueryContextLogger").disabled = level.upper() in _QUIET


def _start_java(settings: Mapping[str, str], output: Path) -> None:
    """Starts Spark's Java outside our terminal: Ctrl-C would end its Python workers, and fail their tasks."""
    from pyspark import SparkConf, SparkContext, java_gateway

    launch: Any = java_gateway.launch_gateway  # it has no types

    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with output.open("ab") as file:
        gateway = launch(conf, {"start_new_session": True, "stdout": file, "stderr": file})
    SparkContext._ensure_initialized(gateway=gateway)


def _adapted(running: SparkSession, master: str, asked: Mapping[str, str]) -> SparkSession:
    """The running session with the requested settings, as far as they can be changed."""
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
