"""Sliding windows, and the last results of windows that have closed.

`SlidingWindows` is an argument of the functions in `ottla.spark.streams.aggregates`. Spark's own `window` and
`session_window` cover the other kinds. Time is the watermark of the query: see docs/decisions/0018-streams.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType, TimestampType

from ottla.spark.streams.buckets import Input, packed_rows
from ottla.spark.streams.cores.aggregates import AggregateStep
from ottla.spark.streams.cores.windows import ClosingStep, SlidingStep
from ottla.spark.streams.frames import KEY, TIMESTAMP, VALUE, WINDOW, StreamError, check_frame
from ottla.spark.streams.results import results_of, types_of
from ottla.spark.streams.timed_buckets import LATE, run_timed
from ottla.spark.streams.values import unpacked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Emit = Literal["updates", "final"]

START: Final = "start"
END: Final = "end"

_WATERMARK: Final = re.compile(r"^\W*EventTimeWatermark\b", re.MULTILINE)
"""The operator in a plan, behind the lines of a tree and marks."""

_METRIC: Final = "ottla.windows"
_SKIPPED: Final = "skipped"
_DROPPED: Final = "dropped_late"


@dataclass(frozen=True)
class SlidingWindows:
    """Windows of a fixed size that slide along the records of a key: one ends at each record, and one begins after it
    if there are records in it (KIP-450). A window includes its start and its end, which are `difference` apart.

    `grace` is how much older than the newest record of the stream a window may be to accept late records. It sets the
    watermark of the stream; leave it out if the stream has one (`withWatermark("timestamp", …)`).

    `emit="updates"` emits each window that a micro-batch has changed, `"final"` each window once, when it has closed.
    `name` tells the windowed aggregations of a query apart in its metrics.
    """

    difference: timedelta
    grace: timedelta | None = None
    emit: Emit = "updates"
    name: str = "sliding"

    def __post_init__(self) -> None:
        _check_duration(self.difference, "difference")
        if self.grace is not None:
            _check_duration(self.grace, "grace")
        if self.emit not in get_args(Emit):
            raise StreamError(f"emit must be 'updates' or 'final', not {self.emit!r}")
        if not self.name or not isinstance(self.name, str):
            raise StreamError(f"the name of windows must be a non-empty string, not {self.name!r}")

    @property
    def difference_ms(self) -> int:
        return self.difference // timedelta(milliseconds=1)


def run_windows(
    windows: SlidingWindows, step: AggregateStep, streams: Sequence[tuple[str, DataFrame]], total_type: DataType
) -> DataFrame:
    """The aggregation of a step in each window, as a table. Streams have names for errors, and the same type of key."""
    if not isinstance(windows, SlidingWindows):
        raise StreamError(f"windows must be SlidingWindows, not {windows!r}: use Spark's own functions for other kinds")
    functions = (step.zero, step.adds, step.keys, step.values, step.totals)
    sliding = SlidingStep(windows.difference_ms, *functions, is_final=windows.emit == "final")
    frames = [(what, _with_watermark(frame, what, windows.grace)) for what, frame in streams]
    key_type = types_of(frames[0][1])[0]
    inputs = [Input(_counted(frame, windows.name, side), side, what) for side, (what, frame) in enumerate(frames)]
    about = ", ".join(types_of(frame)[1].simpleString() for _, frame in frames)
    words = f"aggregate({about} to {total_type.simpleString()}) by {key_type.simpleString()}"
    about = f"{words}, sliding windows of {windows.difference_ms} ms, {windows.emit}"
    results = _on_time(run_timed(sliding, [packed_rows(one) for one in inputs], about), windows.name)
    start_ms = F.col("start").cast("string").cast("bigint")
    ends = (F.timestamp_millis(start_ms).alias(START), F.timestamp_millis(start_ms + windows.difference_ms).alias(END))
    return results_of(results, key_type, unpacked(F.col("value"), total_type), F.struct(*ends))


def until_window_closes(table: DataFrame, grace: timedelta | None = None, *, name: str = "closing") -> DataFrame:
    """The last value of each row of a table of windows, once, when its window has closed; rows that were deleted before
    have none.

    The key must have a struct `window` with the fields `start` and `end`, as those of sliding windows and as
    `struct(…, window)` with Spark's `window`. A window is closed when the watermark is later than its end. `grace` sets
    the watermark to that much before the newest timestamp in the table; leave it out if the table has a watermark, or
    comes from an aggregation over windows in the same query. Rows of windows that have closed are dropped and counted.
    """
    if grace is not None:
        _check_duration(grace, "grace")
    frame = _with_watermark(table, "table", grace)
    key_type, value_type = types_of(frame)
    if not _has_window(key_type):
        words = f"the key of table is {key_type.simpleString()}, and has no field window: struct<start: timestamp, …>"
        raise StreamError(f"{words}: put one into it, for example with struct(key, window)")
    end = F.col(KEY).getField(WINDOW).getField(END)
    rows = frame.where(F.col(KEY).isNotNull() & end.isNotNull())
    changes = Input(rows, 0, "table", F.unix_millis(end).cast("string").cast("binary"))
    about = f"until_window_closes({value_type.simpleString()}) by {key_type.simpleString()}"
    results = _on_time(run_timed(ClosingStep(), [packed_rows(changes)], about), name)
    return results_of(results, key_type, unpacked(F.col("value"), value_type))


def _with_watermark(frame: DataFrame, what: str, grace: timedelta | None) -> DataFrame:
    check_frame(frame, what)
    if not frame.isStreaming:
        raise StreamError(f"{what} must be a streaming DataFrame: a batch has no time at which windows close")
    if grace is None:
        if not _has_watermark(frame):
            words = f"{what} has no watermark, so its windows would never close"
            raise StreamError(f"{words}: pass grace=…, or use withWatermark('{TIMESTAMP}', …)")
        return frame
    if _has_watermark(frame):
        raise StreamError(f"{what} has a watermark, and Spark does not allow two: leave out grace=…, or the watermark")
    return frame.withWatermark(TIMESTAMP, f"{grace // timedelta(milliseconds=1)} milliseconds")


def _has_watermark(frame: DataFrame) -> bool:
    """Asks the plan: a watermark passes through operators, but the columns of their results do not say so."""
    internal: Any = frame
    plan: str = internal._jdf.queryExecution().analyzed().toString()
    return _WATERMARK.search(plan) is not None


def _counted(frame: DataFrame, name: str, side: int) -> DataFrame:
    """Without the records that belong to no window, and with their number as a metric."""
    is_usable = F.col(KEY).isNotNull() & F.col(VALUE).isNotNull() & F.col(TIMESTAMP).isNotNull()
    metric = f"{_METRIC}.{name}.{_SKIPPED}" + (f".{side + 1}" if side else "")
    return frame.observe(metric, F.count_if(~is_usable).alias(_SKIPPED)).where(is_usable)


def _on_time(results: DataFrame, name: str) -> DataFrame:
    """The results, with the number of late records as a metric."""
    dropped = F.coalesce(F.sum(LATE), F.lit(0)).alias(_DROPPED)
    return results.observe(f"{_METRIC}.{name}", dropped).where(F.col(LATE).isNull())


def _has_window(kind: DataType) -> bool:
    if not isinstance(kind, StructType) or WINDOW not in kind.names:
        return False
    window = kind[WINDOW].dataType
    if not isinstance(window, StructType) or not {START, END} <= set(window.names):
        return False
    return all(isinstance(window[field].dataType, TimestampType) for field in (START, END))


def _check_duration(given: timedelta, what: str) -> None:
    if not isinstance(given, timedelta):
        raise StreamError(f"{what} must be a timedelta, not {given!r}")
    if given < timedelta():
        raise StreamError(f"{what} must not be negative, but is {given}")
    if given % timedelta(milliseconds=1):
        raise StreamError(f"{what} must be a whole number of milliseconds, but is {given}")
