"""What a Spark does in its turn. Times are those of the query alone: not of the start of Spark, nor of making rows."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ottla.spark import write_stream
from spark_program import serve

WAIT_S: Final = 600
_NOOP: Final = "noop"
"""A sink that takes rows and does nothing with them."""


class Program:
    """Each public method is a request. Options are those of the connector, the address among them."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._rows: DataFrame | None = None
        self._copy: StreamingQuery | None = None

    def count(self, connector: str, options: Mapping[str, str]) -> dict[str, float]:
        begun_s = time.perf_counter()
        records = self._read(connector, options).count()
        return {"records": records, "seconds": time.perf_counter() - begun_s}

    def read(self, connector: str, options: Mapping[str, str]) -> dict[str, float]:
        """Keys and values."""
        begun_s = time.perf_counter()
        rows = self._read(connector, options).select("key", "value")
        rows.write.format(_NOOP).mode("overwrite").save()
        return {"seconds": time.perf_counter() - begun_s}

    def stream(self, connector: str, options: Mapping[str, str], checkpoint: str) -> dict[str, float]:
        """Keys and values, from the beginning to the end, in the batches that the options ask for."""
        return _streamed(self._stream(connector, options).select("key", "value"), checkpoint)

    def copy(
        self, connector: str, options: Mapping[str, str], sink: Mapping[str, str], checkpoint: str
    ) -> dict[str, float]:
        """Keys and values from topic to topic, to the end of what is there."""
        rows = self._stream(connector, options).select("key", "value")
        return _to_the_end(rows.writeStream.format(connector).options(**sink), checkpoint)

    def aggregate(self, connector: str, options: Mapping[str, str], checkpoint: str) -> dict[str, float]:
        """How many records each key has in each window of ten seconds."""
        rows = self._stream(connector, options).withWatermark("timestamp", "1 minute")
        return _streamed(rows.groupBy(functions.window("timestamp", "10 seconds"), "key").count(), checkpoint)

    def operate(
        self,
        connector: str,
        options: Mapping[str, str],
        work: str,
        topics: Sequence[str],
        limits: Sequence[Mapping[str, str]],
        sink: Mapping[str, str],
        checkpoint: str,
    ) -> dict[str, float]:
        """From topics to a topic by an operator of `streams.operators`, to the end of what is there. `limits` are
        options of one topic each."""
        # Only the Spark of this line needs what this imports.
        from bench.spark.streams.operators import OPERATORS

        operator = OPERATORS[work]
        rows = operator.make(self._spark, topics, [{**options, **own} for own in limits])
        if operator.output_mode == "append":
            return _to_the_end(rows.writeStream.format(connector).options(**sink), checkpoint)
        return _to_the_end(write_stream(rows, **sink).outputMode(operator.output_mode), checkpoint)

    def make_rows(self, count: int, key_bytes: int, value_bytes: int) -> None:
        """Keeps rows in memory for `write`."""
        if self._rows is not None:
            self._rows.unpersist()
        number = functions.col("id").cast("string")
        rows = self._spark.range(count).select(
            _bytes(number, key_bytes).alias("key"), _bytes(number, value_bytes).alias("value")
        )
        self._rows = rows.persist()
        self._rows.count()

    def write(self, connector: str, options: Mapping[str, str]) -> dict[str, float]:
        if self._rows is None:
            raise RuntimeError("ask for make_rows first")
        begun_s = time.perf_counter()
        self._rows.write.format(connector).options(**options).mode("append").save()
        return {"seconds": time.perf_counter() - begun_s}

    def start_copying(
        self, connector: str, source: Mapping[str, str], sink: Mapping[str, str], checkpoint: str
    ) -> None:
        """Streams from topic to topic, as soon as there is something; returns when the query has looked once."""
        rows = self._stream(connector, source).select("key", "value")
        self._copy = rows.writeStream.format(connector).options(**sink, checkpointLocation=checkpoint).start()
        until_s = time.monotonic() + WAIT_S
        while self._copy.lastProgress is None and self._copy.isActive and time.monotonic() < until_s:
            time.sleep(0.05)

    def stop_copying(self) -> None:
        if self._copy is not None:
            self._copy.stop()
            error = self._copy.exception()
            self._copy = None
            if error is not None:
                raise error

    def _read(self, connector: str, options: Mapping[str, str]) -> DataFrame:
        return self._spark.read.format(connector).options(**options).load()

    def _stream(self, connector: str, options: Mapping[str, str]) -> DataFrame:
        return self._spark.readStream.format(connector).options(**options).load()


def _bytes(seed: Column, length: int) -> Column:
    """So many, that differ from row to row and do not compress to nothing."""
    digits = [functions.sha2(functions.concat(seed, functions.lit(str(part))), 256) for part in range(length // 64 + 1)]
    return functions.substring(functions.concat(*digits), 1, length).cast("binary")


def _streamed(rows: DataFrame, checkpoint: str) -> dict[str, float]:
    return _to_the_end(rows.writeStream.format(_NOOP).outputMode("update"), checkpoint)


def _to_the_end(writer: DataStreamWriter, checkpoint: str) -> dict[str, float]:
    begun_s = time.perf_counter()
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    if not query.awaitTermination(WAIT_S):
        query.stop()
        raise TimeoutError(f"the query is not done after {WAIT_S} s")
    elapsed_s = time.perf_counter() - begun_s
    return of_progress([json.loads(progress.json) for progress in query.recentProgress], elapsed_s)


def of_progress(progress: list[dict[str, Any]], elapsed_s: float) -> dict[str, float]:
    """The time in batches is told apart from what a query needs once, to start and to end."""
    seconds = sum(one["durationMs"]["triggerExecution"] for one in progress) / 1000
    return {
        "records": sum(one["numInputRows"] for one in progress),
        "batches": len(progress),
        "seconds": seconds,
        "once_s": max(0.0, elapsed_s - seconds),
    }


if __name__ == "__main__":
    serve(Program)
