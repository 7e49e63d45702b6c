"""The Arrow batches that a consumer returns: their columns, and how they are combined.

    topic       dictionary<int32, string>     key        binary, null if there is none
    partition   int32                         value      binary, null for a tombstone
    offset      int64                         headers    list<struct<key: string, value: binary>>
    timestamp   timestamp[us, UTC], 1 ms before 1970 if there is none

and, on request, timestampType: int32, 0 if the producer set the timestamp, 1 if the broker did.

pyarrow is imported on the first call, not when this module is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from typing import Any, Final

from ottla.client.arguments import wrong_type
from ottla.client.errors import ClientError

COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
ALL_COLUMNS: Final = (*COLUMNS, "timestampType")


class ChosenColumns:
    """The requested columns, in this order. Created by `chosen_columns`."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.keys = "key" in names
        self.values = "value" in names
        self.headers = "headers" in names
        self.partitions = "partition" in names
        self.timestamps = "timestamp" in names
        self.timestamp_types = "timestampType" in names

    @cached_property
    def schema(self) -> Any:
        """The schema of every batch, including empty ones."""
        import pyarrow as pa

        types = _types()
        return pa.schema([(name, types[name]) for name in self.names])

    @cached_property
    def no_rows(self) -> Any:
        """An empty batch, returned by a poll that finds nothing."""
        import pyarrow as pa

        return pa.RecordBatch.from_pylist([], schema=self.schema)

    def of(self, batch: Any, topic: str) -> Any:
        """Adds the topic to a decoded batch and puts the columns into the requested order."""
        import pyarrow as pa

        columns = [_topics(topic, batch.num_rows) if name == "topic" else batch.column(name) for name in self.names]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def chosen_columns(columns: Sequence[str] = COLUMNS) -> ChosenColumns:
    """Raises an error for columns that records do not have."""
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise wrong_type("columns", columns, "a sequence of str")
    return _chosen(tuple(columns))


@cache
def _chosen(names: tuple[str, ...]) -> ChosenColumns:
    for name in names:
        if name not in ALL_COLUMNS:
            raise ClientError(f"{name!r} is not a column of records; use {', '.join(ALL_COLUMNS)}")
    if not names or len(set(names)) < len(names):
        raise ClientError(f"columns must name at least one column, each only once, not {', '.join(names) or 'none'}")
    return ChosenColumns(names)


@cache
def _types() -> dict[str, Any]:
    import pyarrow as pa

    from ottla.client.consume.kernels import KERNELS

    KERNELS.load()
    from ottla.records.column_reader import HEADERS_TYPE, TIMESTAMP_TYPE

    return {
        "topic": pa.dictionary(pa.int32(), pa.string()),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": TIMESTAMP_TYPE,
        "timestampType": pa.int32(),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": HEADERS_TYPE,
    }


@cache
def _dictionary(topic: str) -> Any:
    import pyarrow as pa

    return pa.array([topic], pa.string())


def _topics(topic: str, rows: int) -> Any:
    import numpy as np
    import pyarrow as pa

    indices = pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(np.zeros(rows, np.int32))], 0)
    return pa.DictionaryArray.from_arrays(indices, _dictionary(topic), safe=False)


def combined(batches: list[Any]) -> Any:
    """Combines several batches into one; returns None if there are none."""
    if len(batches) <= 1:
        return batches[0] if batches else None
    import pyarrow as pa

    return pa.concat_batches(batches)
