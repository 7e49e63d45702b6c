"""What customers of each city spend, minute by minute: a topic of orders, joined with a table, summed up, to a topic.

Run it with `ottla pipeline run spending.py`. It goes on from its checkpoint when it is run again.
"""

import os
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ottla.spark import dead_letters, decode_json, encode_json, write_stream

BROKERS = os.environ.get("OTTLA_BOOTSTRAP", "localhost:9092")  # `ottla pipeline run -b host:port` sets it
ORDER = "id BIGINT NOT NULL, customer STRING NOT NULL, price DOUBLE NOT NULL, at TIMESTAMP NOT NULL"


def pipeline(spark: SparkSession) -> dict[str, DataStreamWriter]:
    """Returns what is to be written, by name and not yet started: the command starts, shows and stops it."""
    records = (
        spark.readStream.format("ottla")  # options are those of Spark's own "kafka"
        .option("kafka.bootstrap.servers", BROKERS)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    # JSON that cannot be read does not end the pipeline: it goes to a topic of its own, with the reason.
    good, bad = decode_json(records, ORDER)
    orders = good.select("value.*").withWatermark("at", "1 minute")  # later than that is too late to count

    customers = spark.read.csv(str(Path(__file__).with_name("customers.csv")), header=True)
    spending = (
        orders.join(customers, "customer")
        .groupBy(F.window("at", "1 minute"), "city")
        .agg(F.round(F.sum("price"), 2).alias("spent"), F.count("*").alias("orders"))
        .select(F.col("window.start").alias("minute"), "city", "spent", "orders")
    )
    return {
        # A row for each minute and city that changed; `format("ottla")` itself writes what never changes.
        "spending": write_stream(
            encode_json(spending.withColumn("key", F.col("city")), "minute", "city", "spent", "orders"),
            **{"kafka.bootstrap.servers": BROKERS, "topic": "spending"},
        ).outputMode("update"),
        # As they came. Headers say why, and where they were: `ottla consume bad-orders --json` shows them.
        "bad-orders": dead_letters(bad, "bad-orders")
        .writeStream.format("ottla")
        .option("kafka.bootstrap.servers", BROKERS),
    }
