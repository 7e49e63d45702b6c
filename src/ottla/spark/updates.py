"""Streams whose rows change, which `format("ottla")` cannot write as a stream.

Spark uses a sink written in Python only in mode `append`. Aggregations in mode `update` or `complete` are written batch
by batch instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def write_stream(frame: DataFrame, **options: str) -> DataStreamWriter:
    """Returns a stream writer to topics for every output mode: `write_stream(totals, …).outputMode("update").start()`.

    Takes the options of `frame.writeStream.format("ottla")`, with the same guarantee: at least once.
    """

    def write(batch: DataFrame, number: int) -> None:  # noqa: ARG001 - Spark gives it
        batch.write.format("ottla").options(**options).mode("append").save()

    return frame.writeStream.foreachBatch(write)
