"""Settings of a session, before there is one."""

from __future__ import annotations

import os
import subprocess
import sys

import pyspark.sql
import pytest

import ottla.spark
from ottla.spark.sessions import SessionConflictError, default_settings, local_cores, session, spark_key


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("spark.sql.shuffle.partitions", "spark.sql.shuffle.partitions"),
        ("spark_sql_shuffle_partitions", "spark.sql.shuffle.partitions"),
        ("sql_shuffle_partitions", "spark.sql.shuffle.partitions"),
        ("sql_session_timeZone", "spark.sql.session.timeZone"),
        ("driver_memory", "spark.driver.memory"),
    ],
)
def test_names_of_settings(name: str, key: str) -> None:
    assert spark_key(name) == key


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[3,2]", 3),
        ("local[*]", os.cpu_count()),
        ("local[*, 4]", os.cpu_count()),
        ("spark://host:7077", None),
        ("local-cluster[2,1,1024]", None),
        ("yarn", None),
        ("k8s://localhost:6443", None),
    ],
)
def test_cores_of_a_master(master: str, cores: int | None) -> None:
    assert local_cores(master) == cores


def test_a_cluster_keeps_its_own_addresses_and_sizes() -> None:
    here, cluster = default_settings("local[3]"), default_settings("spark://host:7077")
    assert here["spark.driver.bindAddress"] == "127.0.0.1"
    assert here["spark.sql.shuffle.partitions"] == "3"
    assert here["spark.driver.memory"] in {"1g", "2g", "3g", "4g"}
    assert set(here) - set(cluster) == {
        "spark.driver.bindAddress",
        "spark.driver.host",
        "spark.driver.memory",
        "spark.sql.shuffle.partitions",
        "spark.sql.streaming.checkpointFileManagerClass",
        "spark.ui.enabled",
    }


def test_the_package_loads_without_spark() -> None:
    program = "import sys, ottla.spark; print('pyspark' in sys.modules, 'session' in dir(ottla.spark))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "True"]


def test_every_export_is_there() -> None:
    assert all(getattr(ottla.spark, name) is not None for name in ottla.spark.__all__)
    with pytest.raises(AttributeError, match="sesion"):
        _ = ottla.spark.sesion


def test_a_session_of_spark_connect_is_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    monkeypatch.setattr(pyspark.sql.SparkSession, "getActiveSession", lambda: remote)
    with pytest.raises(SessionConflictError, match="a session of Spark Connect is active: use it directly"):
        session("local[2]")
