"""Stateful operators of `ottla.spark.streams` under fire, as a program: joins, aggregations, `process` and windows in
one query, with one sink.

Its argument is JSON. Each start has another number of shuffle partitions, which must not matter to state that is there.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.spark.streams import SlidingWindows, aggregate_table, count, join_foreign, join_stream_table, stream, table
from ottla.spark.streams.processors import Context, Processor, process
from ottla.spark.streams.states import Map, Value
from support.exactly_once.streams_fire import WINDOW_S, Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TEXT = {"key": "CAST(key AS STRING)", "value": "CAST(value AS STRING)"}


class Numbering(Processor):
    """Numbers the clicks of a user, in all and by city."""

    number = Value[int]("BIGINT")
    by_city = Map[str, int]("STRING", "BIGINT")

    def process(self, record: Any, context: Context) -> Iterator[str]:  # noqa: ARG002
        number = (self.number.get() or 0) + 1
        self.number.set(number)
        city = record.value["right"] or "none"
        self.by_city.set(city, (self.by_city.get(city) or 0) + 1)
        yield f"{number} {record.value['left']} {city} {self.by_city.get(city)}"


def results(spark: SparkSession, bootstrap: str, names: Topics) -> DataFrame:
    from pyspark.sql import functions as F

    options = {"kafka.bootstrap.servers": bootstrap, "maxOffsetsPerTrigger": "60", "commitOffsets": "false"}
    clicks = stream(spark, names.clicks, options, **TEXT)  # type: ignore[arg-type]
    users = table(spark, names.users, options, **TEXT)  # type: ignore[arg-type]
    orders = table(spark, names.orders, options, **TEXT)  # type: ignore[arg-type]
    spent = aggregate_table(
        join_foreign(orders, users, "substring_index(value, ' ', 1)"),
        "substring_index(value.right, '-', 1)",
        zero=lambda: 0,
        add=lambda _, order, total: total + int(order["left"].split()[1]),
        subtract=lambda _, order, total: total - int(order["left"].split()[1]),
        schema="BIGINT",
    )
    numbered = process(join_stream_table(clicks, users, "left"), Numbering(), "STRING")
    sliding = SlidingWindows(timedelta(seconds=WINDOW_S), grace=timedelta(hours=1), emit="final")
    windows = count(clicks, windows=sliding)
    window = F.concat_ws(" ", F.col("key.key"), F.unix_millis("key.window.start"))
    return (
        spent.selectExpr("key", "CAST(value AS STRING) AS value", f"'{names.spent}' AS topic")
        .unionByName(numbered.selectExpr("key", "value", f"'{names.numbered}' AS topic"))
        .unionByName(
            windows.select(
                window.alias("key"), F.col("value").cast("string").alias("value"), F.lit(names.windows).alias("topic")
            )
        )
    )


def run(given: Mapping[str, Any]) -> None:
    from ottla.spark import session

    spark = session("local[2,4]", sql_shuffle_partitions=1 + given["start"] % 2)
    query = (
        results(spark, given["bootstrap"], Topics(*given["topics"]))
        .writeStream.format("ottla")
        .options(**{"kafka.bootstrap.servers": given["bootstrap"], "exactlyOnce": "true"})
        .option("checkpointLocation", given["checkpoint"])
        .start()
    )
    Path(given["started"]).touch()
    query.awaitTermination()


if __name__ == "__main__":
    try:
        run(json.loads(sys.argv[1]))
    except Exception:
        traceback.print_exc()
        os._exit(1)  # without waiting for Java
