"""Latest values, and joins with tables.

All functions return DataFrames with the columns of a stream or a table. The value of a join is a struct with the
fields `left` and `right`; it is null where a row of the result is deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from ottla.spark.streams.buckets import AT, POSITION, Input, packed_rows, run, run_packed
from ottla.spark.streams.cores.foreign import SUBSCRIPTIONS, LeftStep, RightStep
from ottla.spark.streams.cores.joins import (
    LEFT_SIDE,
    RIGHT_SIDE,
    STREAM_SIDE,
    TABLE_SIDE,
    How,
    LatestStep,
    StreamTableStep,
    TablesStep,
)
from ottla.spark.streams.frames import KEY, OFFSET, PARTITION, TIMESTAMP, TOPIC, VALUE, StreamError, check_frame
from ottla.spark.streams.results import keyed, results_of, types_of
from ottla.spark.streams.values import packed_key, unpacked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LEFT_OR_INNER: Final = ("inner", "left")


def latest(table: DataFrame) -> DataFrame:
    """The last change of each key of a table.

    In a streaming query, at most one row per key and micro-batch, and no tombstones of keys that do not exist. In a
    batch query, the rows of the table, without tombstones.
    """
    check_frame(table, "table")
    key_type, value_type = types_of(table)
    if table.isStreaming:
        about = f"latest({value_type.simpleString()}) by {key_type.simpleString()}"
        results = run(LatestStep(), [Input(keyed(table), TABLE_SIDE, "table")], about)
        return results_of(results, key_type, unpacked(F.col("value"), value_type))
    # The last one of each partition first, whatever its timestamp; then as the partitions would be merged.
    last = F.max_by(F.struct(*table.columns), OFFSET).alias("last")
    lasts = keyed(table).groupBy(KEY, TOPIC, PARTITION).agg(last, F.max(TIMESTAMP).alias("highest"))
    newest = F.max_by("last", F.struct("highest", TOPIC, PARTITION)).alias("newest")
    rows = lasts.groupBy(KEY).agg(newest)
    return rows.select("newest.*").where(F.col(VALUE).isNotNull())


def join_stream_table(stream: DataFrame, table: DataFrame, how: How = "inner") -> DataFrame:
    """Each record of a stream with the value that its key has in a table at that moment.

    A change of the table alone gives no result. As in Kafka Streams, records without a value are skipped; with
    `how="left"`, a record without a key, or whose key is not in the table, is joined with null.
    """
    _check_how(how, _LEFT_OR_INNER)
    key_type, kinds, about = _sides(stream, table, "stream", "table")
    records = stream if how == "left" else keyed(stream)
    inputs = [Input(keyed(table), TABLE_SIDE, "table"), Input(records, STREAM_SIDE, "stream")]
    return _joined(run(StreamTableStep(how), inputs, f"join_stream_table({how}, {about})"), key_type, kinds)


def join_tables(left: DataFrame, right: DataFrame, how: How = "inner") -> DataFrame:
    """Two tables with the same key, as a table. A change on either side updates the result, a deletion included."""
    _check_how(how, get_args(How))
    key_type, kinds, about = _sides(left, right, "left", "right")
    inputs = [Input(keyed(left), LEFT_SIDE, "left"), Input(keyed(right), RIGHT_SIDE, "right")]
    return _joined(run(TablesStep(how), inputs, f"join_tables({how}, {about})"), key_type, kinds)


def join_foreign(left: DataFrame, right: DataFrame, foreign_key: Column | str, how: How = "inner") -> DataFrame:
    """Two tables, where each row of the left one refers to a key of the right one; as a table with the left key.

    `foreign_key` is an expression on the columns of `left`, such as `"value.customer"`. A change on the right updates
    all rows that refer to it. With `how="left"`, rows that refer to nothing are joined with null.
    """
    _check_how(how, _LEFT_OR_INNER)
    check_frame(left, "left")
    check_frame(right, "right")
    expression = F.expr(foreign_key) if isinstance(foreign_key, str) else foreign_key
    foreign_type = left.select(expression).schema.fields[0].dataType
    (left_key, left_type), (right_key, right_type) = types_of(left), types_of(right)
    if _text(foreign_type) != _text(right_key):
        words = f"the foreign key is {_text(foreign_type)}, but the key of right is {_text(right_key)}"
        raise StreamError(f"{words}: cast one of them")
    about = f"{how}, {_text(left_key)}: {_text(left_type)}, {_text(right_key)}: {_text(right_type)}"
    reference = packed_key(expression, foreign_type, "the foreign key")
    changes = Input(keyed(left), LEFT_SIDE, "left", reference)
    messages = run(LeftStep(how), [changes], f"join_foreign, left side({about})").select(
        "key",
        F.lit(SUBSCRIPTIONS).alias("side"),
        F.lit(0).cast("bigint").alias("lane"),
        POSITION,
        AT,
        F.col("message").alias("value"),
        F.col("left_key").alias("extra"),
    )
    rows = packed_rows(Input(keyed(right), RIGHT_SIDE, "right"))
    results = run_packed(RightStep(how), [messages, rows], f"join_foreign, right side({about})")
    return _joined(results, left_key, (left_type, right_type))


def _check_how(how: str, allowed: tuple[Any, ...]) -> None:
    if how not in allowed:
        raise StreamError(f"how must be {' or '.join(map(repr, allowed))}, not {how!r}")


def _sides(
    left: DataFrame, right: DataFrame, left_name: str, right_name: str
) -> tuple[DataType, tuple[DataType, DataType], str]:
    """The type of the key, those of the values, and words about them."""
    check_frame(left, left_name)
    check_frame(right, right_name)
    (left_key, left_type), (right_key, right_type) = types_of(left), types_of(right)
    if _text(left_key) != _text(right_key):
        words = f"the key of {left_name} is {_text(left_key)}, but the key of {right_name} is {_text(right_key)}"
        raise StreamError(f"{words}: cast one of them")
    about = f"{_text(left_key)}: {_text(left_type)}, {_text(right_type)}"
    return left_key, (left_type, right_type), about


def _text(kind: DataType) -> str:
    return kind.simpleString()


def _joined(results: DataFrame, key_type: DataType, kinds: tuple[DataType, DataType]) -> DataFrame:
    left, right = unpacked(F.col("left"), kinds[0]), unpacked(F.col("right"), kinds[1])
    both = F.struct(left.alias("left"), right.alias("right"))
    is_row = F.col("left").isNotNull() | F.col("right").isNotNull()
    return results_of(results, key_type, F.when(is_row, both))
