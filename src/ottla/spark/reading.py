"""What a task does: reads a range of a partition as Arrow batches with only the requested columns.

The consumer fetches ahead while Spark processes a batch; its memory is limited by `queued.max.bytes`, and only a few
megabytes are columns at a time. No Python code runs per record.

Offsets without a visible record (compaction, transactions) are skipped. Missing records (deleted in the meantime, or
the topic was created again) are an error or are skipped, as the query specifies.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ottla.base.ids import TopicPartition
from ottla.client.errors import (
    ClientError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
    UnknownPartitionError,
    UnknownTopicError,
)
from ottla.spark.columns import ReadColumns
from ottla.spark.data_loss import lose
from ottla.spark.offsets import EARLIEST_OFFSET, LATEST_OFFSET
from ottla.spark.options import ReadOptions
from ottla.spark.ranges import OffsetRange, RangePartition
from ottla.spark.worker_clients import CONSUMERS

if TYPE_CHECKING:
    from ottla.client.consume import Consumer

_LOOK_S: Final = 1.0
"""If nothing came for this long, the end of the partition is checked."""
_SHORT_LOG_PATIENCE_S: Final = 5.0
"""When its leader changes, a log may end too early for a moment; after this time the end is accepted."""
_CONSTANT: Final = ("topic", "partition")
"""Columns that are created here, not by the consumer."""

_GONE: Final = (OffsetOutOfRangeError, LogTruncatedError, UnknownTopicError, UnknownPartitionError)
"""What a poll raises if records do not exist, or no longer."""

_SETTINGS: Final = {
    "auto.offset.reset": "none",
    "enable.auto.commit": "false",
    "allow.auto.create.topics": "false",
}
_USUAL: Final = {"queued.max.bytes": str(16 * 1024 * 1024)}
"""Default config: a task reads one partition, and more would not make it faster."""


def read_partition(options: ReadOptions, columns: ReadColumns, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Returns the batches of a task. A plan without ranges still has one task, which returns nothing."""
    if isinstance(partition, RangePartition):
        yield from read_range(options.client_settings, partition.span, columns, options.fail_on_data_loss)


def read_range(
    client_settings: Mapping[str, str], span: OffsetRange, columns: ReadColumns, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """Yields the records of the range in batches, in order. A range that begins at -2 or ends at -1 uses the current
    start or end of the partition. Raises `DataLossError`, or errors of the client."""
    is_late = span.start == EARLIEST_OFFSET or span.until == LATEST_OFFSET
    if not span and not is_late:
        return
    settings = {**_USUAL, **client_settings, **_SETTINGS}
    with CONSUMERS.lent(settings) as consumer:
        if is_late:
            span = _bound(consumer, span)
        if span:
            yield from _Task(consumer, span, columns, fail_on_data_loss).batches()


def _bound(consumer: Consumer, span: OffsetRange) -> OffsetRange:
    partition = TopicPartition(span.topic, span.partition)
    start, until = span.start, span.until
    if start == EARLIEST_OFFSET:
        start = consumer.beginning_offsets([partition])[partition]
    if until == LATEST_OFFSET:
        until = consumer.end_offsets([partition])[partition]
    return replace(span, start=start, until=until)


class _Task:
    """Reads one range, once."""

    def __init__(self, consumer: Consumer, span: OffsetRange, columns: ReadColumns, fail_on_data_loss: bool) -> None:
        self._consumer = consumer
        self._span = span
        self._partition = TopicPartition(span.topic, span.partition)
        self._fail_on_data_loss = fail_on_data_loss
        self._assembly = _Assembly(span, columns)
        self._patience_s = consumer.config.default_api_timeout_ms / 1000
        self._waits_for_transactions = consumer.config.isolation_level == "read_committed"

    def batches(self) -> Iterator[pa.RecordBatch]:
        consumer, span, partition = self._consumer, self._span, self._partition
        names = self._assembly.asked
        consumer.assign([partition])
        consumer.seek(partition, span.start, until=span.until)
        position, since_s = span.start, time.monotonic()
        while position < span.until:
            try:
                batch = consumer.poll_arrow(_LOOK_S, names)
            except _GONE as error:
                position = self._go_on_after(position, error)
                continue
            if batch.num_rows:
                yield self._assembly.of(batch)
            before, position = position, consumer.position(partition)
            if position != before:
                since_s = time.monotonic()
            elif not batch.num_rows:
                position = self._look_at_end(position, time.monotonic() - since_s)

    def _go_on_after(self, position: int, error: ClientError) -> int:
        """Returns the next offset of the range that still exists, or its end."""
        span = self._span
        if isinstance(error, UnknownTopicError | UnknownPartitionError):
            self._lost(f"{self._name} no longer exists; offsets {position} to {span.until - 1} are lost: {error}")
            return span.until
        if isinstance(error, TopicRecreatedError):
            self._lost(f"offsets {position} to {span.until - 1} of {self._name} were deleted with their topic: {error}")
            return span.until
        first = self._consumer.beginning_offsets([self._partition])[self._partition]
        if first > position:
            after = min(first, span.until)
            self._lost(f"offsets {position} to {after - 1} of {self._name} were deleted before they were read")
        else:
            end = self._consumer.end_offsets([self._partition])[self._partition]
            if end > position:
                after = position
            else:
                after = span.until
                self._lost(self._cut_off(position, end))
        if after < span.until:
            self._consumer.seek(self._partition, after, until=span.until)
        return after

    def _look_at_end(self, position: int, waited_s: float) -> int:
        """Called when nothing came: either it will, or the log is shorter than when the range was planned."""
        span = self._span
        if waited_s < min(self._patience_s, _SHORT_LOG_PATIENCE_S):
            return position
        try:
            end = self._consumer.end_offsets([self._partition])[self._partition]
        except (UnknownTopicError, UnknownPartitionError) as error:  # polls keep looking for it for longer
            return self._go_on_after(position, error)
        is_over = waited_s >= self._patience_s
        if end < span.until and (is_over or not self._waits_for_transactions):
            self._lost(self._cut_off(position, end))
            return span.until
        if is_over:
            raise ClientError(
                f"no records of {self._name} arrived from offset {position} within {self._patience_s:g} s, although it "
                f"ends at {end}: if the brokers are slow, increase kafkaConsumer.pollTimeoutMs"
            )
        return position

    def _cut_off(self, position: int, end: int) -> str:
        words = f"{self._name} ends at offset {end}, but offsets {position} to {self._span.until - 1} should be read"
        return f"{words}: it was truncated, or its topic was created again"

    @property
    def _name(self) -> str:
        return f"partition {self._partition}"

    def _lost(self, what: str) -> None:
        lose(what, fail=self._fail_on_data_loss)


class _Assembly:
    """Converts the batches of one partition to what Spark expects."""

    def __init__(self, span: OffsetRange, columns: ReadColumns) -> None:
        self._names = columns.names
        self._schema = columns.arrow_schema
        self.asked = [name for name in self._names if name not in _CONSTANT] or ["offset"]
        self._values = {"topic": span.topic, "partition": span.partition}
        self._constants: dict[str, pa.Array] = {}

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = []
        for name in self._names:
            if name in _CONSTANT:
                arrays.append(self._constant(name, batch.num_rows))
            elif name == "headers":
                arrays.append(_retyped_headers(batch.column(name), self._schema.field(name).type))
            else:
                arrays.append(batch.column(name))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _constant(self, name: str, rows: int) -> pa.Array:
        """A column with the same value in every row, sliced from the longest one so far."""
        made = self._constants.get(name)
        if made is None or len(made) < rows:
            made = pa.repeat(pa.scalar(self._values[name], self._schema.field(name).type), rows)
            self._constants[name] = made
        return made.slice(0, rows)


def _retyped_headers(headers: pa.ListArray, kind: pa.ListType) -> pa.ListArray:
    """The same bytes under Spark's names; null for a record without headers, as in Spark's own connector."""
    pairs = pa.StructArray.from_arrays(headers.values.flatten(), fields=list(kind.value_type))
    ends = headers.offsets
    counts = np.diff(ends.to_numpy())
    nulls = int(np.count_nonzero(counts == 0))
    validity = pa.py_buffer(np.packbits(counts != 0, bitorder="little")) if nulls else None
    return pa.Array.from_buffers(kind, len(headers), [validity, ends.buffers()[1]], nulls, children=[pairs])
