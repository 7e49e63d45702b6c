"""Queries that need a new client while the broker restarts: they wait for it, as long as their time-outs allow."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from ottla.spark import write
from ottla.testing.broker import Broker
from support.topic_data import WAIT_S, TopicData

AWAY_S: Final = 6.0
"""Longer than a few attempts in a row, which is what clients used to make."""


@contextmanager
def restarting(broker: Broker) -> Iterator[None]:
    """The broker is away, and comes back after a while."""
    broker.stop()
    timer = threading.Timer(AWAY_S, broker.start)
    timer.start()
    try:
        yield
    finally:
        timer.join()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def frame_of(spark: SparkSession, data: TopicData, unique: int) -> DataFrame:
    """The setting differs from test to test, so that no worker has a client for it yet."""
    options = {"subscribe": data.name, "kafka.client.id": f"client-{unique}", "kafka.bootstrap.servers": data.bootstrap}
    return spark.read.format("ottla").options(**options).load()


def test_a_batch_that_is_read(spark: SparkSession, broker: Broker) -> None:
    data = TopicData(broker.bootstrap)
    data.send(range(3))
    with restarting(broker):
        assert frame_of(spark, data, 1).count() == 3


def test_a_batch_that_is_written(spark: SparkSession, broker: Broker) -> None:
    data = TopicData(broker.bootstrap)
    rows = spark.createDataFrame([("a",), ("b",)], "value string")
    with restarting(broker):
        results = write(rows, topic=data.name, **{"kafka.bootstrap.servers": data.bootstrap})
    assert sum(one.records for one in results) == 2


def test_a_stream_that_starts_and_writes(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    source, target = TopicData(broker.bootstrap), TopicData(broker.bootstrap)
    source.send(range(3))
    options = {"kafka.bootstrap.servers": source.bootstrap, "subscribe": source.name, "startingOffsets": "earliest"}
    frame = spark.readStream.format("ottla").options(**options).load().select("value")

    def write_on(rows: DataFrame, _: int) -> None:
        write(rows, topic=target.name, **{"kafka.bootstrap.servers": target.bootstrap})

    with restarting(broker):
        query = (
            frame.writeStream.foreachBatch(write_on)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WAIT_S)
    assert query.exception() is None
    assert frame_of(spark, target, 2).count() == 3
