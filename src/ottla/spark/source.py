"""`format("ottla")`: topics as DataFrames, in batches and in streams, with the options of Spark's own connector.

Spark creates these objects in each of its processes: the planner, the helper process of a streaming query, and the
workers that run tasks. They are pickled to be sent, so readers contain options and no open resources.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ottla.spark.batch import OttlaReader
from ottla.spark.columns import ReadColumns, read_schema
from ottla.spark.options import ReadOptions, WriteOptions
from ottla.spark.python_workers import quieten_planner


class OttlaSource(DataSource):
    """The data source of `format("ottla")`. Each method may be the first of ours that a planning process calls: see
    `quieten_planner`."""

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> StructType:
        quieten_planner()
        # Not in the constructor, which is also used for writing: `load()` reports a wrong option.
        return read_schema(include_headers=ReadOptions.parse(self.options).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        quieten_planner()
        return OttlaReader(ReadOptions.parse(self.options), ReadColumns.of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (PySpark's name)
        from ottla.spark.stream import OttlaStreamReader

        quieten_planner()
        return OttlaStreamReader(ReadOptions.parse(self.options), ReadColumns.of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from ottla.spark.sink import OttlaArrowWriter

        quieten_planner()
        return OttlaArrowWriter(WriteOptions.parse(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 (PySpark's name)
        from ottla.spark.sink import OttlaStreamArrowWriter

        quieten_planner()
        return OttlaStreamArrowWriter(WriteOptions.parse(self.options), schema, overwrite)
