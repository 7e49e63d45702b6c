"""The Spark pipeline of `ottla demo`: revenue by category in windows of some seconds.

Run by `ottla pipeline run`, like any other pipeline: orders are parsed, joined with the catalogue, summed by event
time, and written to a topic whenever a sum changes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from ottla.cli.demo.events import CATALOGUE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

REVENUE: Final = "revenue"
"""The topic of the results, and the name of the query."""
WINDOW_S: Final = 10

_ORDER: Final = "order BIGINT NOT NULL, item STRING NOT NULL, price DOUBLE NOT NULL, at TIMESTAMP NOT NULL"


def pipeline(spark: SparkSession) -> dict[str, DataStreamWriter]:
    from pyspark.sql import functions as F

    from ottla.spark import decode_json, encode_json, write_stream

    brokers = {"kafka.bootstrap.servers": os.environ["OTTLA_BOOTSTRAP"]}
    records = spark.readStream.format("ottla").options(**brokers, subscribe="orders", startingOffsets="earliest").load()
    orders = decode_json(records, _ORDER).good.select("value.*").withWatermark("at", f"{WINDOW_S} seconds")
    catalogue = spark.createDataFrame(list(CATALOGUE.items()), "item STRING, goods STRING")
    revenue = (
        orders.join(F.broadcast(catalogue), "item")
        .groupBy(F.window("at", f"{WINDOW_S} seconds"), "goods")
        .agg(F.round(F.sum("price"), 2).alias("revenue"), F.count("*").alias("orders"))
        .select(F.col("window.start").alias("since"), "goods", "revenue", "orders", F.col("goods").alias("key"))
    )
    rows = encode_json(revenue, "since", "goods", "revenue", "orders")
    return {REVENUE: write_stream(rows, **brokers, topic=REVENUE).outputMode("update")}
