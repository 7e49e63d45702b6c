"""Streams whose rows change, which `format("ottla")` cannot write as a stream.

Spark uses a sink written in Python only in mode `append`. Aggregations in mode `update` or `complete` are written batch
by batch instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_NAME_OF_WRITE: Final = "exactlyOnceId"


def write_stream(frame: DataFrame, **options: str) -> DataStreamWriter:
    """Returns a stream writer to topics for every output mode: `write_stream(totals, …).outputMode("update").start()`.

    Takes the options of `frame.writeStream.format("ottla")`, with the same guarantees.
    """
    if not any(name.lower() == _NAME_OF_WRITE.lower() for name in options):
        options[_NAME_OF_WRITE] = "write_stream"  # with exactlyOnce, writes in foreachBatch have names

    def write(batch: DataFrame, number: int) -> None:  # noqa: ARG001 - Spark gives it
        batch.write.format("ottla").options(**options).mode("append").save()

    return frame.writeStream.foreachBatch(write)
