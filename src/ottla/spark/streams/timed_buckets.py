"""Runs a timed step of `streams.cores` on a streaming DataFrame that has a watermark, with Spark's state and timers.

As `buckets`, and each bucket has a timer of event time for the first of its keys that must be looked at again. So
windows close when the watermark passes them, whether or not their keys, or any others of the bucket, have further rows.

Rows get here without the column that has the watermark, so Spark drops none of them: the step decides which are late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import LongType, StructField

from ottla.spark.streams.bucket_state import STATE_KEY, STATE_VALUE, BucketMap, bucket_map
from ottla.spark.streams.buckets import (
    ABOUT_KEY,
    AT,
    OWN_PREFIX,
    POSITION,
    STATE_NAME,
    CheckpointError,
    bucketed,
    check_description,
    result_schema,
)
from ottla.spark.streams.cores.changes import Change, Result, in_order, result_position
from ottla.spark.streams.cores.timed import TimedBucket, TimedStep
from ottla.spark.streams.packing import BUCKET
from ottla.spark.streams.stateful import transform_with_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LATE: Final = "late"
"""The column that has the number of rows that came too late, in rows of their own."""


def run_timed(step: TimedStep, rows: Sequence[DataFrame], about: str) -> DataFrame:
    """The results of a step on packed rows (see `buckets`), which all have keys; and rows that count late ones."""
    schema = result_schema(step.fields).add(StructField(LATE, LongType()))
    groups = bucketed(rows).groupBy(BUCKET)
    return transform_with_state(groups, TimedBucketProcessor(step, about), schema, time_mode="EventTime")


class TimedBucketProcessor(StatefulProcessor):
    """Calls a step for the keys of a bucket: for those with rows, and later for those that are due."""

    def __init__(self, step: TimedStep, about: str) -> None:
        self._step = step
        self._about = about.encode()
        self._make_row = Row("key", AT, POSITION, *step.fields, LATE)
        self._handle: StatefulProcessorHandle | None = None
        self._map: BucketMap | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._map = bucket_map(handle.getMapState(STATE_NAME, STATE_KEY, STATE_VALUE))

    def close(self) -> None:
        self._handle = self._map = None

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        by_key: dict[bytes, list[Change]] = {}
        for _, row_key, side, lane, position, at_us, value, extra in rows:
            by_key.setdefault(row_key, []).append(Change(side, lane, position, at_us, value, extra))
        bucket, about = self._bucket(timerValues)
        yield from self._rows(bucket, bucket.rows({key: in_order(changes) for key, changes in by_key.items()}))
        self._store(bucket, about)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,  # noqa: ARG002
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        bucket, about = self._bucket(timerValues)
        yield from self._rows(bucket, bucket.due())
        self._store(bucket, about)

    def _bucket(self, times: TimerValues) -> tuple[TimedBucket, bytes | None]:
        stored = self._opened_map()

        def read(keys: list[bytes]) -> list[bytes | None]:
            return stored.read([OWN_PREFIX + key for key in keys])

        about = stored.read([ABOUT_KEY])[0]
        check_description(about, self._about)
        return TimedBucket(self._step, times.getCurrentWatermarkInMs(), read), about

    def _rows(self, bucket: TimedBucket, results: Iterator[Result]) -> Iterator[Row]:
        position = 0
        for result in results:
            yield self._make_row(result.key, result.at_us, result_position(result.key, position), *result.fields, None)
            position += 1
        if bucket.late:
            yield self._make_row(None, 0, position, *[None] * len(self._step.fields), bucket.late)

    def _store(self, bucket: TimedBucket, about: bytes | None) -> None:
        changed: dict[bytes, bytes | None] = {OWN_PREFIX + key: data for key, data in bucket.changes().items()}
        described = None if bucket.is_empty else self._about
        if described != about:
            changed[ABOUT_KEY] = described
        self._opened_map().write(changed)
        if bucket.timer_ms is not None and self._handle is not None:
            self._handle.registerTimer(bucket.timer_ms)

    def _opened_map(self) -> BucketMap:
        if self._map is None:
            raise CheckpointError("rows came before the state was opened")
        return self._map
