"""Streams whose rows change: what `format("ottla")` cannot be told in a stream.

Spark asks a sink written in Python for mode `append` only. Aggregations that tell each change, `update`, and those that
tell everything again, `complete`, reach topics batch by batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def write_stream(frame: DataFrame, **options: str) -> DataStreamWriter:
    """A stream's writer to topics for every output mode: `write_stream(totals, …).outputMode("update").start()`.

    Takes the options of `frame.writeStream.format("ottla")`, and promises the same: at least once.
    """

    def write(batch: DataFrame, number: int) -> None:  # noqa: ARG001 - Spark gives it
        batch.write.format("ottla").options(**options).mode("append").save()

    return frame.writeStream.foreachBatch(write)
