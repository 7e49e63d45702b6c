"""Tables and joins in Spark: random changes, late ones too, over several micro-batches and restarts.

The operators themselves are tested against models in tests/unit/spark/streams; here, that Spark runs them so.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from ottla.spark.codecs.json_columns import decode_json
from ottla.spark.streams import StreamError, count, join_foreign, join_stream_table, join_tables, latest, stream, table
from support.clients.peers import Peer
from support.stream_plays import Play, Record, Topics, updated

KEYS = [f"k{number}" for number in range(40)]
TEXT = {"key": "CAST(key AS STRING)", "value": "CAST(value AS STRING)"}


@pytest.fixture
def topics(broker: Peer) -> Topics:
    return Topics(broker.bootstrap)


def some_records(chance: random.Random, count: int, keys: list[str] = KEYS) -> list[Record]:
    """Timestamps go back and forth; one record of four is a tombstone."""
    return [
        Record(chance.choice(keys), chance.choice([None, *[f"v{chance.random()}"] * 3]), chance.randrange(1000, 9000))
        for _ in range(count)
    ]


def rows_after(records: list[Record]) -> dict[str | None, str]:
    rows = {one.key: one.value for one in records}
    return {key: value for key, value in rows.items() if value is not None}


def test_latest_and_two_tables(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topics.create("left", "right")
    chance = random.Random(7)

    def side(name: str) -> DataFrame:
        return table(spark, topics.name(name), topics.options, **TEXT)  # type: ignore[arg-type]

    plays = {
        "latest": Play(lambda: latest(side("left")), tmp_path),
        # Directly behind each other, in one query.
        "outer": Play(lambda: join_tables(latest(side("left")), side("right"), "outer"), tmp_path),
    }
    tables: dict[str, dict[str, object]] = {name: {} for name in plays}
    sent: dict[str, list[Record]] = {"left": [], "right": []}
    for _ in range(3):
        for name, records in sent.items():
            more = some_records(chance, 60)
            topics.send(name, more)
            records += more
        for name, play in plays.items():
            updated(tables[name], play.act())
        left, right = rows_after(sent["left"]), rows_after(sent["right"])
        assert tables["latest"] == left
        assert tables["outer"] == {key: (left.get(key), right.get(key)) for key in left.keys() | right.keys()}
    now = table(spark, topics.name("left"), topics.options, streaming=False, **TEXT)  # type: ignore[arg-type]
    assert {row.key: row.value for row in latest(now).collect()} == rows_after(sent["left"])


def test_a_stream_and_a_table(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topics.create("table")
    topics.create("clicks", policy="delete")

    def joined() -> DataFrame:
        clicks = stream(spark, topics.name("clicks"), topics.options, **TEXT)  # type: ignore[arg-type]
        users = table(spark, topics.name("table"), topics.options, **TEXT)  # type: ignore[arg-type]
        return join_stream_table(clicks, users, "left").where("key IS NOT NULL OR value.left = 'lost'")

    play = Play(joined, tmp_path)

    def act() -> list[tuple[object, ...]]:
        rows = sorted(play.act(), key=lambda row: (row.key or "", row.offset))
        return [(row.key, *row.value, round(row.timestamp.timestamp() * 1000)) for row in rows]

    topics.send("table", [Record("a", "A1", 2000), Record("a", "A2", 4000), Record("b", "B1", 1500)])
    clicks = [Record("a", "1", 1000), Record("a", "2", 2000), Record("a", "3", 5000), Record("a", "late", 3000)]
    topics.send("clicks", [*clicks, Record("a", None, 6000), Record("c", "4", 1), Record(None, "lost", 1)])
    assert act() == [
        (None, "lost", None, 1),
        ("a", "1", None, 1000),
        ("a", "2", "A1", 2000),
        ("a", "3", "A2", 5000),
        ("a", "late", "A2", 3000),
        ("c", "4", None, 1),
    ]
    topics.send("table", [Record("a", None, 7000), Record("b", "B2", 100)])
    topics.send("clicks", [Record("a", "5", 6500), Record("a", "6", 7000), Record("b", "7", 8000)])
    assert act() == [("a", "5", "A2", 6500), ("a", "6", None, 7000), ("b", "7", "B2", 8000)]


def test_a_foreign_key(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topics.create("orders", "customers")
    chance = random.Random(11)
    customers = [f"c{number}" for number in range(4)]
    schema = "item INT, customer STRING"

    def joined() -> DataFrame:
        orders = table(spark, topics.name("orders"), topics.options, key=TEXT["key"])
        people = table(spark, topics.name("customers"), topics.options, **TEXT)  # type: ignore[arg-type]
        return join_foreign(decode_json(orders, schema).good, people, "value.customer", "left")

    play, found = Play(joined, tmp_path), dict[str, object]()
    orders: dict[str, tuple[int, str | None]] = {}
    sent: list[Record] = []
    for act in range(4):
        records: list[Record] = []
        for item in range(50):
            key = chance.choice(KEYS)
            orders.pop(key, None)
            if chance.random() < 0.2:
                records.append(Record(key, None))
                continue
            orders[key] = item, chance.choice([None, *customers])
            records.append(Record(key, json.dumps(dict(zip(("item", "customer"), orders[key], strict=True)))))
        topics.send("orders", records)
        if act != 1:  # a micro-batch in which only one side changes
            more = some_records(chance, 3, customers)
            topics.send("customers", more)
            sent += more
        updated(found, play.act())
        right = rows_after(sent)
        assert found == {key: ((item, who), right.get(who)) for key, (item, who) in orders.items()}


def test_a_checkpoint_of_other_types_or_another_operator(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topics.create("one")
    topics.send("one", [Record("1", "1")])
    kind, decoded = "latest", TEXT

    def frame() -> DataFrame:
        one = table(spark, topics.name("one"), topics.options, **decoded)  # type: ignore[arg-type]
        return latest(one) if kind == "latest" else count(one)

    play = Play(frame, tmp_path)
    assert len(play.act()) == 1
    topics.send("one", [Record("1", "2")])
    decoded = {**TEXT, "value": "CAST(CAST(value AS STRING) AS INT)"}
    with pytest.raises(StreamingQueryException) as raised:
        play.act()
    assert "holds the state of 'latest(string) by string', but the query has 'latest(int) by string'" in str(
        raised.value
    )
    kind, decoded = "count", TEXT
    with pytest.raises(StreamingQueryException) as raised:
        play.act()
    assert "the query has 'aggregate(string to bigint) by string' in its place" in str(raised.value)
    kind = "latest"
    assert [row.value for row in play.act()] == ["2"]  # nothing was lost


def test_arguments_that_do_not_fit(spark: SparkSession) -> None:
    def frame(columns: str) -> DataFrame:
        return spark.createDataFrame([], f"{columns}, timestamp TIMESTAMP, topic STRING, partition INT, offset BIGINT")

    texts = frame("key STRING, value STRING")
    with pytest.raises(StreamError, match="how must be 'inner' or 'left', not 'outer'"):
        join_stream_table(texts, texts, "outer")
    with pytest.raises(StreamError, match="the key of left is string, but the key of right is int: cast one of them"):
        join_tables(texts, frame("key INT, value STRING"))
    with pytest.raises(StreamError, match="the foreign key is int, but the key of right is string"):
        join_foreign(frame("key STRING, value STRUCT<n: INT>"), texts, "value.n")
    with pytest.raises(StreamError, match="left has no column timestamp, topic; its columns are key, value"):
        join_tables(texts.drop("timestamp", "topic"), texts)
    with pytest.raises(StreamError, match="the value of table contains map<int,int>, which has no representation"):
        join_stream_table(texts, frame("key STRING, value MAP<INT, INT>"))
