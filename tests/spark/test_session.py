"""The session that `ottla.spark.session` gives."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.spark import session
from ottla.spark.sessions import SessionConflictError

MASTER = "local[2]"


def test_everything_is_set(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    assert (spark.conf.get("spark.sql.streaming.stateStore.providerClass") or "").endswith("RocksDBStateStoreProvider")
    assert conf.get("spark.driver.host") == "127.0.0.1"
    assert conf.get("spark.python.unix.domain.socket.enabled") == "true"
    assert spark.sparkContext.uiWebUrl is None


def test_workers_run_this_python(spark: SparkSession) -> None:
    ran = spark.sparkContext.parallelize([0], 1).map(lambda _: (sys.executable, sys.prefix)).collect()
    assert ran == [(sys.executable, sys.prefix)]


def test_workers_load_the_pyspark_that_is_installed_and_leave_it_to_no_collector(spark: SparkSession) -> None:
    """And not the archive of sources, which each of them would compile."""

    def look(_: int) -> tuple[str, bool]:
        import gc

        import pyspark

        return pyspark.__file__, gc.get_freeze_count() > 10_000

    import pyspark

    assert spark.sparkContext.parallelize([0], 1).map(look).collect() == [(pyspark.__file__, True)]
    assert "SPARK_HOME" not in os.environ


def test_nothing_listens_beyond_this_machine(spark: SparkSession) -> None:
    """The Java below this process, and whatever it started."""
    assert spark.range(1).count() == 1
    listening = Path("/proc/net/tcp").read_text().splitlines()[1:]
    everybody = {line.split()[9] for line in listening if line.split()[3] == "0A" and line.split()[1][:8] == "00000000"}
    everybody |= {
        line.split()[9]
        for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]
        if line.split()[3] == "0A" and line.split()[1][:32] == "0" * 32
    }
    assert not everybody & _sockets_below(os.getpid())


def _sockets_below(root: int) -> set[str]:
    """The inodes of sockets of a process's descendants."""
    parents: dict[int, int] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(place.parent.name)] = int(place.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
    below = {root}
    while True:
        more = {pid for pid, parent in parents.items() if parent in below} - below
        if not more:
            break
        below |= more
    found: set[str] = set()
    for pid in below - {root}:
        for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                target = str(descriptor.readlink())
            except OSError:
                continue
            if target.startswith("socket:["):
                found.add(target[8:-1])
    return found


def test_a_running_session_is_given_again(spark: SparkSession) -> None:
    assert session(MASTER, sql_shuffle_partitions=2) is spark


def test_what_can_change_is_changed(spark: SparkSession) -> None:
    session(MASTER, sql_shuffle_partitions=3)
    try:
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    finally:
        session(MASTER, sql_shuffle_partitions=2)


@pytest.mark.usefixtures("spark")
def test_what_cannot_change_is_refused() -> None:
    with pytest.raises(SessionConflictError, match=r"spark\.driver\.memory cannot be changed to 77g: .* Stop it first"):
        session(MASTER, driver_memory="77g")
    with pytest.raises(
        SessionConflictError, match=r"spark\.master cannot be changed to local\[7\]: .* running with local\[2\]"
    ):
        session("local[7]")
