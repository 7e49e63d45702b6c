"""Encodes columns into batches: how `send_batch` sends an Arrow table without a Python object per record.

Rows are processed in pieces of a few megabytes. If rows have partitions of their own (given, or by key), a piece is
sorted by partition, and the kernels encode the part of each partition into batches at once. Serializers and
interceptors are not involved: columns are bytes or strings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ottla.client.arguments import wrong_type
from ottla.client.config import ProducerConfig
from ottla.client.errors import RecordTooLargeError, SerializationError, UnknownPartitionError
from ottla.client.produce import kernels
from ottla.client.produce.encoding import batch_options
from ottla.client.produce.partitioners import TopicPartitioner
from ottla.records import BatchView
from ottla.records.cells import timestamps_ms_of
from ottla.records.columns import encode_batches

Partitions: TypeAlias = "NDArray[np.int32]"

NAMES: Final = ("value", "key", "headers", "timestamp", "partition")
_PIECE_BYTES: Final = 8 * 1024 * 1024
_BATCH_BYTES: Final = 512 * 1024
"""The minimum size of batches: all records are there, so smaller batches gain nothing. Half of what brokers accept."""
_NULL: Final = -1
_PAIR: Final = [("key", pa.string()), ("value", pa.binary())]
_VIEWS: Final = (
    pa.types.is_binary_view,
    pa.types.is_string_view,
    pa.types.is_fixed_size_binary,
    pa.types.is_dictionary,
)
"""Types of bytes and strings that have to be copied first."""


class EncodedBatch(NamedTuple):
    """An encoded batch for a partition; None for the one that records without a key stick to."""

    partition: int | None
    encoded: memoryview
    record_count: int


class Columns(NamedTuple):
    """The columns of records; None if a column is missing."""

    value: Any
    key: Any = None
    headers: Any = None
    timestamp: Any = None
    partition: Any = None

    def slice(self, first: int, rows: int) -> Columns:
        return Columns(*(None if column is None else column.slice(first, rows) for column in self))

    def take(self, rows: NDArray[np.int64]) -> Columns:
        indices = pa.array(rows)
        return Columns(*(None if column is None else _arrow(column).take(indices) for column in self))


def _arrow(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks()
    return column


def columns_of(topic: str, data: Any) -> Columns:
    """Returns the columns of a table, a record batch, a data frame or a mapping; raises if they are not valid.

    A data frame is any object that exports an Arrow stream, such as those of pandas, Polars and DuckDB."""
    if not isinstance(data, pa.Table | pa.RecordBatch) and hasattr(data, "__arrow_c_stream__"):
        try:
            data = pa.table(data)
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise SerializationError(topic, "columns", f"{type(data).__name__} is not a table: {error}") from error
    if isinstance(data, pa.Table | pa.RecordBatch):
        given: Mapping[str, Any] = dict(zip(data.schema.names, data.columns, strict=True))
    elif isinstance(data, Mapping):
        given = data
    else:
        raise wrong_type("data", data, "an Arrow table, a record batch, a data frame or a mapping of columns")
    unknown = [str(name) for name in given if name not in NAMES]
    if unknown or given.get("value") is None:
        what = f"{', '.join(unknown)}: no part of a record" if unknown else "there is no column value"
        hint = f"columns are {', '.join(NAMES)}; select those, and rename what has another name"
        raise SerializationError(topic, "columns", f"{what}; {hint}")
    columns = {name: column for name, column in given.items() if column is not None}
    try:
        made = {name: _column(name, column) for name, column in columns.items()}
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise SerializationError(topic, "columns", str(error)) from error
    rows = {name: len(column) for name, column in made.items()}
    if len(set(rows.values())) > 1:
        counts = ", ".join(f"{count} of {name}" for name, count in rows.items())
        raise SerializationError(topic, "columns", f"they have not the same number of rows: {counts}")
    return Columns(**made)


def _column(name: str, column: Any) -> Any:
    """Converts a column to what the kernels accept."""
    is_arrow = isinstance(column, pa.Array | pa.ChunkedArray)
    if not is_arrow:
        column = _listed(name, column)
    if name in ("value", "key"):
        if is_arrow:
            return _plain(column)
        for one in column:
            if one is not None and not isinstance(one, bytes | str):
                raise TypeError(f"a {name} of type {type(one).__name__}: columns are of bytes or text")
        return pa.array([one.encode() if isinstance(one, str) else one for one in column], pa.large_binary())
    if name == "headers":
        if is_arrow:
            return _headers(column)
        rows = [[{"key": key, "value": value} for key, value in _pairs(row)] for row in column]
        return pa.array(rows, pa.list_(pa.struct(_PAIR)))
    if name == "timestamp":
        return pa.array(timestamps_ms_of(column, len(column)))
    if is_arrow:
        return column.cast(pa.int32())  # stays in Arrow, because numpy has no nulls
    return pa.array(np.asarray(column), pa.int32())


def _listed(name: str, column: Any) -> Any:
    """Returns the column as something that can be read twice: not a generator."""
    if isinstance(column, str | bytes | Mapping) or not isinstance(column, Iterable):
        raise TypeError(f"the column {name} must be an Arrow array or a sequence, not {type(column).__name__}")
    return column if hasattr(column, "__len__") and hasattr(column, "__getitem__") else list(column)


def _plain(column: Any) -> Any:
    """Converts bytes or strings to a type from which Arrow can take rows: it supports that for few types."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if any(is_one(kind) for is_one in _VIEWS):
        return column.cast(pa.large_binary())
    return column


def _headers(column: Any) -> Any:
    kind = column.type
    if pa.types.is_null(kind) or pa.types.is_map(kind):
        return column.cast(pa.list_(pa.struct(_PAIR)))
    pair = getattr(kind, "value_type", None)
    if pair is not None and pa.types.is_struct(pair):
        plain = [
            (field.name, pa.large_binary() if any(is_one(field.type) for is_one in _VIEWS) else field.type)
            for field in pair
        ]
        if pa.struct(plain) != pair:
            return column.cast(pa.list_(pa.struct(plain)))
    return column  # if it is not a valid type of headers, the codec raises


def _pairs(row: Any) -> Any:
    return row.items() if isinstance(row, Mapping) else row or ()


def pieces(
    config: ProducerConfig,
    topic: str,
    columns: Columns,
    partitioner: TopicPartitioner,
    partition: int | None,
    stick: Callable[[], int],
) -> Iterator[list[EncodedBatch]]:
    """Yields batches, a few at a time, created on demand. A given partition applies to all rows. Rows of a partition
    keep their order: `stick` returns the partition for the rows of a piece that have neither key nor partition."""
    count = partitioner.partition_count
    if partition is not None and not 0 <= partition < count:
        raise UnknownPartitionError(f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}")
    rows = len(columns.value)
    row_bytes = max(sum(column.nbytes for column in columns if column is not None) // max(rows, 1), 1)
    step = max(_PIECE_BYTES // row_bytes, 1)
    encode = _encoder(config, topic)
    for first in range(0, rows, step):
        piece = columns.slice(first, min(step, rows - first))
        partitions = _partitions(topic, piece, partitioner) if partition is None else None
        if partitions is None:
            yield [EncodedBatch(partition, *one) for one in encode(piece)]
        else:
            is_left_open = partitions == _NULL
            if is_left_open.any() and not is_left_open.all():
                # Chosen now, and not when a batch is put into its queue: the partition may have other rows, too, and
                # batches of their own would not keep the order among both.
                partitions = np.where(is_left_open, np.int32(stick()), partitions)
            yield list(_by_partition(piece, partitions, encode))


def _by_partition(
    piece: Columns, partitions: Partitions, encode: Callable[[Columns], list[tuple[memoryview, int]]]
) -> Iterator[EncodedBatch]:
    order = np.argsort(partitions, kind="stable")
    ordered = piece.take(order)
    ends = np.flatnonzero(np.diff(partitions[order], append=np.int32(-2))) + 1
    begin = 0
    for end in ends.tolist():
        partition = int(partitions[order[begin]])
        for one in encode(ordered.slice(begin, end - begin)):
            yield EncodedBatch(None if partition == _NULL else partition, *one)
        begin = end


def _partitions(topic: str, piece: Columns, partitioner: TopicPartitioner) -> Partitions | None:
    """Returns the partition of each row; -1 if any will do. None if that holds for all rows."""
    rows, count = len(piece.value), partitioner.partition_count
    if piece.partition is not None:
        column = _arrow(piece.partition)
        given: Partitions = np.asarray(column.fill_null(_NULL).to_numpy(zero_copy_only=False), np.int32)
        is_left_open = np.asarray(column.is_null().to_numpy(zero_copy_only=False))
        wrong = given[((given < 0) & ~is_left_open) | (given >= count)]
        if len(wrong):
            raise UnknownPartitionError(f"topic {topic!r} has partitions 0 to {count - 1}, not {wrong[0]}")
        others = _partitions(topic, piece._replace(partition=None), partitioner) if column.null_count else None
        return given if others is None else np.where(is_left_open, others, given)
    if not partitioner.is_usual:
        keys = piece.key.to_pylist() if piece.key is not None else [None] * rows
        chosen = map(partitioner.choose, map(_in_bytes, keys), map(_in_bytes, piece.value.to_pylist()))
        return np.fromiter((_NULL if one is None else one for one in chosen), np.int32, rows)
    if piece.key is None or partitioner.ignores_keys:
        return None
    keys = _arrow(piece.key).cast(pa.large_binary())
    ends = np.frombuffer(keys.buffers()[1], np.int64)[keys.offset : keys.offset + rows + 1]
    data = keys.buffers()[2]
    content = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    partitions: Partitions = np.empty(rows, np.int32)
    kernels.partitions_of_keys(
        np.require(ends, requirements="W"), np.require(content, requirements="W"), count, partitions
    )
    if keys.null_count:
        partitions[np.asarray(keys.is_null().to_numpy(zero_copy_only=False))] = _NULL
    return partitions


def _in_bytes(cell: Any) -> bytes | None:
    return cell.encode() if isinstance(cell, str) else cell


def _encoder(config: ProducerConfig, topic: str) -> Callable[[Columns], list[tuple[memoryview, int]]]:
    """Returns a function that encodes rows of one partition into batches with their record counts."""
    options = batch_options(config)
    limit = min(config.max_request_size, config.buffer_memory)
    most = min(max(config.batch_size, _BATCH_BYTES), limit)

    def encode(some: Columns) -> list[tuple[memoryview, int]]:
        stamps = int(time.time() * 1000) if some.timestamp is None else some.timestamp
        try:
            batches = encode_batches(some.value, some.key, some.headers, stamps, max_batch_bytes=most, options=options)
        except (TypeError, ValueError) as error:
            raise SerializationError(topic, "columns", str(error)) from error
        for batch in batches:
            BatchView(batch).assign_offset(0)  # each batch is sent separately
            if len(batch) > limit:
                reason = f"a record of {len(batch)} bytes for topic {topic!r} is above max.request.size"
                raise RecordTooLargeError(f"{reason}, which is {limit}: raise it, or send less")
        return [(batch, BatchView(batch).record_count) for batch in batches]

    return encode
