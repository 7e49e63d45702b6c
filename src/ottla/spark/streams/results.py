"""What operators make of the results of a step: a DataFrame with the columns of a stream or a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from ottla.spark.streams.buckets import AT, POSITION
from ottla.spark.streams.frames import KEY, OFFSET, PARTITION, TIMESTAMP, TOPIC, VALUE, WINDOW
from ottla.spark.streams.values import unpacked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def types_of(frame: DataFrame) -> tuple[DataType, DataType]:
    """The types of key and value."""
    schema: StructType = frame.schema
    return schema[KEY].dataType, schema[VALUE].dataType


def keyed(frame: DataFrame) -> DataFrame:
    """Rows without a key belong to no row of a table."""
    return frame.where(F.col(KEY).isNotNull())


def results_of(results: DataFrame, key_type: DataType, value: Column, window: Column | None = None) -> DataFrame:
    """The columns of a stream or a table. A result belongs to no topic yet. With a window, the key is a struct."""
    key = unpacked(F.col("key"), key_type)
    return results.select(
        (key if window is None else F.struct(key.alias(KEY), window.alias(WINDOW))).alias(KEY),
        value.alias(VALUE),
        F.timestamp_micros(AT).alias(TIMESTAMP),
        F.lit(None).cast("string").alias(TOPIC),
        F.lit(None).cast("int").alias(PARTITION),
        F.col(POSITION).alias(OFFSET),
    )
