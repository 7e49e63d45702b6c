"""Aggregations whose result is a table: one row per key, updated as records come.

They emit changes in output mode `append`, so that further operators can follow in the same query. If an aggregation is
the last step, Spark's own `groupBy(…).agg(…)` in output mode `update` is faster: see docs/spark/streams.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType

from ottla.spark.streams.buckets import AT, POSITION, Input, lane_of_result, run, run_packed
from ottla.spark.streams.cores.aggregates import ADD_SIDE, SUBTRACT_SIDE, Add, AggregateStep, RegroupStep
from ottla.spark.streams.frames import StreamError, check_frame
from ottla.spark.streams.python_values import PythonValues
from ottla.spark.streams.results import keyed, results_of, types_of
from ottla.spark.streams.values import check_kind, packed_key, unpacked
from ottla.spark.streams.windows import SlidingWindows, run_windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Zero = Callable[[], Any]


def count(stream: DataFrame, *, windows: SlidingWindows | None = None) -> DataFrame:
    """The number of records with each key, as a table with a BIGINT value. Records without a value do not count.

    With `windows`, in each window of each key: the key of the table is `struct(key, window)`, and `window` has `start`
    and `end`. The same holds for `reduce`, `aggregate` and `cogroup`.
    """
    return aggregate(stream, _nothing, _one_more, LongType(), windows=windows)


def reduce(
    stream: DataFrame, combine: Callable[[Any, Any], Any], *, windows: SlidingWindows | None = None
) -> DataFrame:
    """Combines the values of each key: `combine(total, value)`. The first value is the first total."""
    check_frame(stream, "stream")
    return aggregate(stream, _none, _Combining(combine), types_of(stream)[1], windows=windows)


def aggregate(
    stream: DataFrame, zero: Zero, add: Add, schema: DataType | str, *, windows: SlidingWindows | None = None
) -> DataFrame:
    """Adds each value to the total of its key: `add(key, value, total)` returns the new total; `zero()` is the first.

    `schema` is the type of totals, such as `"BIGINT"` or `"n INT, total DOUBLE"`; totals of a struct are dicts. A
    total of None deletes the key. The functions must depend on nothing but their arguments.
    """
    return cogroup([(stream, add)], zero, schema, windows=windows)


def cogroup(
    streams: Sequence[tuple[DataFrame, Add]],
    zero: Zero,
    schema: DataType | str,
    *,
    windows: SlidingWindows | None = None,
) -> DataFrame:
    """Aggregates several streams with the same type of key into one table, each with a function of its own."""
    if not streams:
        raise StreamError("cogroup needs at least one stream with its function")
    total_type = _type_of(schema)
    names = [f"stream {number}" if len(streams) > 1 else "stream" for number in range(1, len(streams) + 1)]
    for name, (frame, _) in zip(names, streams, strict=True):
        check_frame(frame, name)
    kinds = [types_of(frame) for frame, _ in streams]
    key_type = kinds[0][0]
    for name, (other, _) in zip(names, kinds, strict=True):
        if other.simpleString() != key_type.simpleString():
            words = f"the key of {name} is {other.simpleString()}, but that of the first one {key_type.simpleString()}"
            raise StreamError(f"{words}: cast one of them")
    step = AggregateStep(
        zero,
        tuple(add for _, add in streams),
        PythonValues(key_type),
        tuple(PythonValues(kind) for _, kind in kinds),
        PythonValues(total_type),
    )
    if windows is not None:
        named = [(name, frame) for name, (frame, _) in zip(names, streams, strict=True)]
        return run_windows(windows, step, named, total_type)
    inputs = [
        Input(keyed(frame), side, name) for side, (name, (frame, _)) in enumerate(zip(names, streams, strict=True))
    ]
    about = ", ".join(kind.simpleString() for _, kind in kinds)
    results = run(step, inputs, f"aggregate({about} to {total_type.simpleString()}) by {key_type.simpleString()}")
    return results_of(results, key_type, unpacked(F.col("value"), total_type))


def aggregate_table(
    table: DataFrame, group: Column | str, zero: Zero, add: Add, subtract: Add, schema: DataType | str
) -> DataFrame:
    """Aggregates the rows of a table by `group`, an expression on its columns, as a table with that key.

    When a row changes or is deleted, `subtract(group, old value, total)` takes its old value out of the total of its
    old group, and `add(group, new value, total)` it to that of its new group. Rows whose group is null belong to none.
    """
    check_frame(table, "table")
    total_type = _type_of(schema)
    key_type, value_type = types_of(table)
    expression = F.expr(group) if isinstance(group, str) else group
    group_type = table.select(expression).schema.fields[0].dataType
    words = f"{value_type.simpleString()} to {total_type.simpleString()}) by {group_type.simpleString()}"
    changes = Input(keyed(table), 0, "table", packed_key(expression, group_type, "the group"))
    moved = run(RegroupStep(), [changes], f"aggregate_table, groups({key_type.simpleString()}, {words}")
    is_leaving = F.col("left").isNotNull()
    rows = moved.select(
        "key",
        F.when(is_leaving, SUBTRACT_SIDE).otherwise(ADD_SIDE).alias("side"),
        lane_of_result(POSITION).alias("lane"),
        POSITION,
        AT,
        F.coalesce("left", "joined").alias("value"),
        F.lit(None).cast("binary").alias("extra"),
    )
    values = PythonValues(value_type)
    step = AggregateStep(zero, (subtract, add), PythonValues(group_type), (values, values), PythonValues(total_type))
    results = run_packed(step, [rows], f"aggregate_table, totals({words}")
    return results_of(results, group_type, unpacked(F.col("value"), total_type))


def _type_of(schema: DataType | str) -> DataType:
    kind = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    check_kind(kind, "the schema of totals")
    return kind


def _nothing() -> int:
    return 0


def _none() -> None:
    return None


def _one_more(key: Any, value: Any, total: int) -> int:  # noqa: ARG001
    return total + 1


class _Combining:
    """A function of two values as one that adds; a class, so that it can be pickled by reference."""

    def __init__(self, combine: Callable[[Any, Any], Any]) -> None:
        self._combine = combine

    def __call__(self, key: Any, value: Any, total: Any) -> Any:  # noqa: ARG002
        return value if total is None else self._combine(total, value)
