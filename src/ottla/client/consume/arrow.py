"""The Arrow batches that a consumer hands out: their columns, and how they are put together.

    topic       dictionary<int32, string>     key        binary, null if there is none
    partition   int32                         value      binary, null for a tombstone
    offset      int64                         headers    list<struct<key: string, value: binary>>
    timestamp   timestamp[us, UTC], 1 ms before 1970 if there is none

Loads pyarrow when it is called, and not before.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


@cache
def arrow_schema() -> Any:
    """Of every batch, of those without rows as well."""
    import pyarrow as pa

    from ottla.client.consume.decoding import KERNELS

    KERNELS.load()
    from ottla.records.column_reader import HEADERS_TYPE, TIMESTAMP_TYPE

    types = {
        "topic": pa.dictionary(pa.int32(), pa.string()),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": TIMESTAMP_TYPE,
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": HEADERS_TYPE,
    }
    return pa.schema([(name, types[name]) for name in COLUMNS])


@cache
def _dictionary(topic: str) -> Any:
    import pyarrow as pa

    return pa.array([topic], pa.string())


def labelled(batch: Any, topic: str) -> Any:
    """The batch with its topic, and its columns in their order."""
    import numpy as np
    import pyarrow as pa

    rows = batch.num_rows
    indices = pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(np.zeros(rows, np.int32))], 0)
    topics = pa.DictionaryArray.from_arrays(indices, _dictionary(topic), safe=False)
    columns = [topics, *(batch.column(name) for name in COLUMNS[1:])]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema())


def combined(batches: list[Any]) -> Any:
    """One batch of several; None of none."""
    if len(batches) <= 1:
        return batches[0] if batches else None
    import pyarrow as pa

    return pa.concat_batches(batches)


@cache
def empty_batch() -> Any:
    """What a poll gives when nothing came."""
    import pyarrow as pa

    return pa.RecordBatch.from_pylist([], schema=arrow_schema())
