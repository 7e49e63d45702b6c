"""What a Spark session does for the tests, in a process of its own.

Its environment is that of `spark_artifacts`, so that one Spark knows both connectors: Spark's own, by
`format("kafka")`, and ours. Bytes travel as hexadecimal digits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

from spark_program import serve

_WAIT_S = 60


class Program:
    """Each public method is a request."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read(self, connector: str, options: Mapping[str, str], columns: list[str] | None) -> list[list[dict[str, Any]]]:
        """The rows of each task of a query, all or some of its columns."""
        loaded = self._spark.read.format(connector).options(**options).load()
        rows = loaded if columns is None else loaded.select(*columns)
        return _by_task(rows)

    def schema(self, connector: str, options: Mapping[str, str]) -> Any:
        return json.loads(self._spark.read.format(connector).options(**options).load().schema.json())

    def count(self, connector: str, options: Mapping[str, str]) -> int:
        return self._spark.read.format(connector).options(**options).load().count()

    def stream(self, connector: str, options: Mapping[str, str], checkpoint: str) -> dict[str, Any]:
        """The rows of each task of each micro-batch up to what is there now, and how the query went."""
        batches: list[list[list[dict[str, Any]]]] = []

        def keep(batch: DataFrame, _: int) -> None:
            batches.append(_by_task(batch))

        rows = self._reader(connector, options).load()
        progress = _finished(rows.writeStream.foreachBatch(keep), checkpoint)
        return {"batches": batches, "progress": progress}

    def write(self, connector: str, options: Mapping[str, str], schema: str, rows: list[list[Any]]) -> None:
        given = self._spark.createDataFrame([tuple(_from_json(cell) for cell in row) for row in rows], schema)
        given.write.format(connector).options(**options).mode("append").save()

    def copy(
        self,
        source: str,
        source_options: Mapping[str, str],
        columns: list[str],
        sink: str,
        sink_options: Mapping[str, str],
        checkpoint: str,
    ) -> dict[str, Any]:
        """Streams what is there now from topic to topic."""
        rows = self._reader(source, source_options).load().selectExpr(*columns)
        return {"progress": _finished(rows.writeStream.format(sink).options(**sink_options), checkpoint)}

    def _reader(self, connector: str, options: Mapping[str, str]) -> DataStreamReader:
        return self._spark.readStream.format(connector).options(**options)


def _finished(writer: DataStreamWriter, checkpoint: str) -> list[dict[str, Any]]:
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    try:
        if not query.awaitTermination(_WAIT_S):
            raise TimeoutError(f"the query is not done after {_WAIT_S} s: {query.status}")
    finally:
        query.stop()
    return [json.loads(progress.json) for progress in query.recentProgress]


def _by_task(rows: DataFrame) -> list[list[dict[str, Any]]]:
    if "timestamp" in rows.columns:  # JSON, and every zone, agree on numbers
        rows = rows.withColumn("timestamp", functions.unix_micros("timestamp"))
    return [[_plain(row) for row in task] for task in rows.rdd.glom().collect()]


def _plain(row: Any) -> dict[str, Any]:
    return {name: _to_json(value) for name, value in row.asDict().items()}


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, list):  # headers
        return [[header["key"], _to_json(header["value"])] for header in value]
    return value


def _from_json(cell: Any) -> Any:
    """Bytes come as `{"hex": …}`, since text is text here."""
    if isinstance(cell, dict):
        return bytes.fromhex(cell["hex"])
    if isinstance(cell, list):
        return [(key, _from_json(value)) for key, value in cell]
    return cell


if __name__ == "__main__":
    serve(Program)
