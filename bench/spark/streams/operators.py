"""Our side of each line: what a user writes with `ottla.spark.streams`. Runs in the Spark of the session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla.spark.streams import count, join_foreign, join_stream_table, stream, table

Options = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Operator:
    make: Callable[[SparkSession, Sequence[str], Sequence[Options]], DataFrame]
    """Of topics, each with its options."""
    output_mode: str = "append"


def windowed_count(spark: SparkSession, topics: Sequence[str], options: Sequence[Options]) -> DataFrame:
    """Windows are Spark's own. A result's key is that of the record and the start of the window, as text."""
    records = stream(spark, topics[0], options[0]).withWatermark("timestamp", "1 minute")
    counts = records.groupBy(F.window("timestamp", "10 seconds"), "key").count()
    start_ms = F.unix_millis("window.start").cast("string").cast("binary")
    return counts.select(F.concat("key", start_ms).alias("key"), F.col("count").cast("string").alias("value"))


def stream_table(spark: SparkSession, topics: Sequence[str], options: Sequence[Options]) -> DataFrame:
    clicks = stream(spark, topics[0], options[0])
    return _both(join_stream_table(clicks, table(spark, topics[1], options[1])))


def foreign_key(spark: SparkSession, topics: Sequence[str], options: Sequence[Options]) -> DataFrame:
    """The first eight bytes of a left value are the key of its right row."""
    left, right = (table(spark, topic, own) for topic, own in zip(topics, options, strict=True))
    return _both(join_foreign(left, right, "substring(value, 1, 8)"))


def counts(spark: SparkSession, topics: Sequence[str], options: Sequence[Options]) -> DataFrame:
    return _as_text(count(stream(spark, topics[0], options[0])))


def spark_counts(spark: SparkSession, topics: Sequence[str], options: Sequence[Options]) -> DataFrame:
    return _as_text(stream(spark, topics[0], options[0]).groupBy("key").agg(F.count("*").alias("value")))


OPERATORS: Final = {
    "windowed-count": Operator(windowed_count, "update"),
    "stream-table": Operator(stream_table),
    "foreign-key": Operator(foreign_key),
    "count": Operator(counts),
    "spark-count": Operator(spark_counts, "update"),
}


def _both(frame: DataFrame) -> DataFrame:
    """The bytes of the left value and those of the right one. Null if either is."""
    return frame.select("key", F.concat("value.left", "value.right").alias("value"), "timestamp")


def _as_text(counts: DataFrame) -> DataFrame:
    return counts.select("key", F.col("value").cast("string").alias("value"))
