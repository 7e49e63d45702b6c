"""The columns of a DataFrame that is written: which belong to a record, their types, and where rows are written.

    value       binary or string                 topic       string, unless the option names a topic: that one wins
    key         binary or string                 partition   int; null leaves it to the key, or to the producer
    headers     array<struct<key: string,        timestamp   timestamp, or double in seconds since 1970; null is now
                             value: binary>>

Only value is required. Columns with other names are ignored, as in Spark's own connector.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from ottla.spark.columns import HEADERS, ColumnError

_BYTES: Final = (BinaryType(), StringType())
WRITE_TYPES: Final[Mapping[str, tuple[DataType, ...]]] = {
    "topic": (StringType(),),
    "key": _BYTES,
    "value": _BYTES,
    "headers": (HEADERS,),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(), DoubleType()),
}


@dataclass(frozen=True, slots=True)
class WriteColumns:
    """The columns that are written. Created by `of`; sent from the driver to the tasks."""

    names: tuple[str, ...]
    """The columns that are parts of records, without the topic."""
    topic: str | None
    """The topic of all rows; None if a column contains it."""

    @classmethod
    def of(cls, schema: StructType, topic: str | None) -> WriteColumns:
        """Rejects a schema whose rows cannot be records."""
        types = {field.name: field.dataType for field in schema.fields}
        here = f"the columns are {schema.simpleString().removeprefix('struct')}"
        if "value" not in types:
            raise ColumnError(f"the column value is missing; {here}: rename or add one")
        if topic is None and "topic" not in types:
            raise ColumnError(f"no topic to write to: set the option topic, or add a column topic; {here}")
        for name, allowed in WRITE_TYPES.items():
            given = types.get(name)
            if given is None or (name == "topic" and topic is not None):
                continue
            if not any(_is_same(given, one) for one in allowed):
                words = " or ".join(one.simpleString() for one in allowed)
                raise ColumnError(f"column {name} must be {words}, not {given.simpleString()}: cast it")
        names = [field.name for field in schema.fields if field.name in WRITE_TYPES and field.name != "topic"]
        for name in (*names, "topic"):
            if [field.name for field in schema.fields].count(name) > 1:
                raise ColumnError(f"there is more than one column {name}; {here}")
        return cls(tuple(names), topic)

    def by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, dict[str, pa.Array]]]:
        """Yields the columns for each topic, as `Producer.send_batch` takes them; rows keep their order."""
        columns = {name: _sendable(name, batch.column(name)) for name in self.names}
        if self.topic is not None:
            yield self.topic, columns
            return
        topics = batch.column("topic")
        if topics.null_count:
            words = f"{topics.null_count} of {len(topics)} rows in a batch have null as their topic"
            raise ColumnError(f"{words}: fill the column topic, or set the option topic for all rows")
        encoded = topics.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        if len(names) == 1:
            yield names[0], columns
            return
        codes = encoded.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        ordered = {name: column.take(pa.array(order)) for name, column in columns.items()}
        begin = 0
        for name, count in zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True):
            yield name, {part: column.slice(begin, count) for part, column in ordered.items()}
            begin += count


def _sendable(name: str, column: pa.Array) -> pa.Array:
    if name != "timestamp":
        return column
    if pa.types.is_floating(column.type):
        try:
            milliseconds = pc.floor(pc.multiply(column, 1000.0)).cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise ColumnError(f"column timestamp must be seconds since the epoch, or null: {error}") from None
    else:
        milliseconds = pc.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms", column.type.tz))
        milliseconds = milliseconds.cast(pa.int64())
    return milliseconds.fill_null(int(time.time() * 1000)) if milliseconds.null_count else milliseconds


def _is_same(given: DataType, allowed: DataType) -> bool:
    """Compares types, ignoring nullability and collation."""
    if isinstance(given, StringType) and isinstance(allowed, StringType):
        return True
    return given.simpleString() == allowed.simpleString()
