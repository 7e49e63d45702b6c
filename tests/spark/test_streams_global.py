"""Global tables: joined by any column, fresh for each batch of rows, in a memory that is limited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from ottla.client.errors import UnknownTopicError
from ottla.spark.streams import StreamError, global_table, join_global_table, stream
from ottla.spark.streams.global_tables import view_of
from support.clients.peers import Peer
from support.stream_plays import Play, Record, Topics

TEXT: dict[str, Any] = {"key": "CAST(key AS STRING)", "value": "CAST(value AS STRING)"}


def test_a_global_table_is_fresh_in_each_micro_batch(spark: SparkSession, broker: Peer, tmp_path: Path) -> None:
    topics = Topics(broker.bootstrap)
    topics.create("users")
    topics.create("clicks", policy="delete")
    max_bytes = 1 << 20

    def joined() -> DataFrame:
        clicks = stream(spark, topics.name("clicks"), topics.options, **TEXT)
        users = global_table(topics.name("users"), topics.options, value="CAST(value AS STRING)", max_bytes=max_bytes)
        return join_global_table(clicks, users, "value", "left")

    play = Play(joined, tmp_path)

    def act() -> list[tuple[str | None, str, str | None]]:
        return sorted((row.key, *row.value) for row in play.act())

    topics.send("users", [Record("ana", "Wien"), Record("bo", "Brno"), Record("ana", "Praha")])
    topics.send("clicks", [Record("1", "ana"), Record("2", "bo"), Record("3", "eve"), Record("4", None)])
    assert act() == [("1", "ana", "Praha"), ("2", "bo", "Brno"), ("3", "eve", None)]
    topics.send("users", [Record("bo", None), Record("eve", "Linz")])
    topics.send("clicks", [Record("1", "ana"), Record("2", "bo"), Record("3", "eve")])
    assert act() == [("1", "ana", "Praha"), ("2", "bo", None), ("3", "eve", "Linz")]
    max_bytes = 200
    topics.send("clicks", [Record("1", "ana")])
    with pytest.raises(StreamingQueryException, match="max_bytes"):
        play.act()


def test_a_worker_replaces_a_view_that_has_failed(broker: Peer) -> None:
    """It serves queries after the one that failed as well."""
    topics = Topics(broker.bootstrap)
    users = global_table(topics.name("users"), topics.options)

    def found(key: bytes) -> bytes | None:
        value: bytes | None = view_of(users).get(key)
        return value

    with pytest.raises(UnknownTopicError):
        found(b"ana")
    topics.create("users")
    topics.send("users", [Record("ana", "Wien")])
    assert found(b"ana") == b"Wien"
    failed = view_of(users)
    failed.close()  # as if reading had failed since
    assert found(b"ana") == b"Wien"
    view_of(users).close()


def test_arguments_that_do_not_fit(spark: SparkSession) -> None:
    columns = "key STRING, value INT, timestamp TIMESTAMP, topic STRING, partition INT, offset BIGINT"
    frame = spark.createDataFrame([], columns)
    users = global_table("users", {"kafka.bootstrap.servers": "localhost:1"})
    with pytest.raises(StreamError, match="the keys of a global table are bytes or strings, but on is int: cast it"):
        join_global_table(frame, users, "value")
    with pytest.raises(StreamError, match="how must be 'inner' or 'left', not 'outer'"):
        join_global_table(frame, users, "key", "outer")
