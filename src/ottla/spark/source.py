"""`format("ottla")`: topics as DataFrames, in batches and in streams, with the options of Spark's own connector.

Spark makes these objects anew in each of its processes: one that plans, one that goes along with a streaming query,
those that run tasks. What travels between them is pickled, so that readers hold options and nothing that is open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from ottla.base.ids import TopicPartition
from ottla.spark.columns import ReadColumns, read_schema
from ottla.spark.offsets import PartitionOffsets
from ottla.spark.options import ReadOptions, WriteOptions
from ottla.spark.planning import ranges_between, split
from ottla.spark.ranges import OffsetRange, RangePartition
from ottla.spark.topics import ClusterView, SourceError

if TYPE_CHECKING:
    import pyarrow as pa


class OttlaSource(DataSource):
    """What Spark asks for by `format("ottla")`."""

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> StructType:
        # Here and not in the constructor, which serves writing as well: a wrong option is told of by `load()`.
        return read_schema(include_headers=ReadOptions.parse(self.options).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        return OttlaReader(ReadOptions.parse(self.options), ReadColumns.of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (PySpark's name)
        from ottla.spark.stream import OttlaStreamReader

        return OttlaStreamReader(ReadOptions.parse(self.options), ReadColumns.of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from ottla.spark.sink import OttlaArrowWriter

        return OttlaArrowWriter(WriteOptions.parse(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 (PySpark's name)
        from ottla.spark.sink import OttlaStreamArrowWriter

        return OttlaStreamArrowWriter(WriteOptions.parse(self.options), schema, overwrite)


class OttlaReader(DataSourceReader):
    """A batch: from one place in the topics to another."""

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
        return read_partition(self._options, self._columns, partition)


def plan_batch(view: ClusterView, options: ReadOptions) -> list[OffsetRange]:
    """The ranges that tasks are to read."""
    starting, ending = options.batch_ends()
    starts = view.resolved(view.position(starting, "startingOffsets", is_start=True))
    ends = view.resolved(view.position(ending, "endingOffsets", is_start=False))
    _check_order(starts, ends)
    return split(ranges_between(starts, ends), options.min_partitions, options.max_records_per_partition)


def _check_order(starts: Mapping[TopicPartition, int], ends: PartitionOffsets) -> None:
    for partition, start in starts.items():
        if partition in ends and start > ends[partition]:
            raise SourceError(
                f"the batch is to begin at offset {start} of {partition} and to end before that, at {ends[partition]}: "
                "startingOffsets may lie beyond the end, or the topic was made anew"
            )


def read_partition(options: ReadOptions, columns: ReadColumns, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """What a task gives to Spark. A plan without ranges has one task all the same, which finds nothing."""
    from ottla.spark.reading import read_range

    if isinstance(partition, RangePartition):
        yield from read_range(options.client_settings, partition.span, columns, options.fail_on_data_loss)
