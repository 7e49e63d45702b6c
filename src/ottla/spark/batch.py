"""A batch query: the ranges of topics that its tasks read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceReader,
    InputPartition,
)

from ottla.spark.columns import ReadColumns
from ottla.spark.data_loss import lose
from ottla.spark.offsets import LATEST_OFFSET, PartitionOffsets
from ottla.spark.options import ReadOptions
from ottla.spark.planning import bound_late, ranges_between, split
from ottla.spark.ranges import OffsetRange, RangePartition
from ottla.spark.topics import ClusterView, SourceError

if TYPE_CHECKING:
    import pyarrow as pa


class OttlaReader(DataSourceReader):
    """Reads topics from one position to another."""

    def __init__(self, options: ReadOptions, columns: ReadColumns) -> None:
        options.batch_ends()
        self._options = options
        self._columns = columns

    def partitions(self) -> list[RangePartition]:
        view = ClusterView(self._options)
        try:
            return [RangePartition(one) for one in plan_batch(view, self._options)]
        finally:
            view.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from ottla.spark.reading import read_partition

        return read_partition(self._options, self._columns, partition)


def plan_batch(view: ClusterView, options: ReadOptions) -> list[OffsetRange]:
    """Returns the ranges that tasks read. Ends given as earliest or latest stay so: see `bound_late`."""
    starting, ending = options.batch_ends()
    told_starts = view.position(starting, "startingOffsets", is_start=True)
    told_ends = view.position(ending, "endingOffsets", is_start=False)
    starts, ends = view.resolved(told_starts), view.resolved(told_ends)
    for partition in sorted(starts):
        if starts[partition] > ends[partition]:
            raise SourceError(
                f"the batch starts at offset {starts[partition]} of {partition}, after its end at "
                f"{ends[partition]}: startingOffsets may be beyond the end, or the topic was created again"
            )
    _keep_within(view, starts, ends, told_starts, told_ends, fail_on_data_loss=options.fail_on_data_loss)
    pieces = split(ranges_between(starts, ends), options.min_partitions, options.max_records_per_partition)
    return bound_late(pieces, told_starts, told_ends)


def _keep_within(
    view: ClusterView,
    starts: PartitionOffsets,
    ends: PartitionOffsets,
    told_starts: PartitionOffsets,
    told_ends: PartitionOffsets,
    *,
    fail_on_data_loss: bool,
) -> None:
    """Checks that offsets named by the query exist: missing ones raise an error or are skipped."""
    firsts = view.earliest([partition for partition, offset in told_starts.items() if offset >= 0])
    lasts = view.resolved({partition: LATEST_OFFSET for partition, offset in told_ends.items() if offset >= 0})
    for partition, first in sorted(firsts.items()):
        if starts[partition] < first:
            what = f"offsets {starts[partition]} to {first - 1} of partition {partition} no longer exist"
            lose(what, fail=fail_on_data_loss)
            starts[partition] = first
    for partition, last in sorted(lasts.items()):
        if ends[partition] > last:
            what = f"partition {partition} ends at offset {last}, but the batch should end at {ends[partition]}"
            lose(what, fail=fail_on_data_loss)
            ends[partition] = last
