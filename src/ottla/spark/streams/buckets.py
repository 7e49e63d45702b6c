"""Runs a step of `streams.cores` on a streaming DataFrame, with Spark's state.

Rows are grouped by a bucket of keys. For each bucket with rows in a micro-batch, Spark calls `BucketProcessor`, which
loads the state of all its keys at once, runs the step for each key, and stores what changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from ottla.base.errors import OttlaError
from ottla.spark.streams.bucket_state import STATE_KEY, STATE_VALUE, BucketMap, bucket_map
from ottla.spark.streams.cores.changes import LANE_SHIFT, Change, in_order, result_position
from ottla.spark.streams.cores.steps import State, Step
from ottla.spark.streams.frames import KEY, OFFSET, PARTITION, TIMESTAMP, TOPIC, VALUE
from ottla.spark.streams.packing import (
    BUCKET,
    RESULTS,
    ROWS,
    arrow_schema,
    lists_of,
    packed_frame,
    result_packages,
    unpacked_frame,
)
from ottla.spark.streams.stateful import transform_with_state
from ottla.spark.streams.values import packed, packed_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKETS: Final = 256
"""Part of the state format."""

AT: Final = "at_us"
POSITION: Final = "position"

_INPUT: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("side", IntegerType()),
        StructField("lane", LongType()),
        StructField(POSITION, LongType()),
        StructField(AT, LongType()),
        StructField("value", BinaryType()),
        StructField("extra", BinaryType()),
    ]
)
_PackedRow: Final = Row(ROWS)
STATE_NAME: Final = "ottla"
ABOUT_KEY: Final = b"\0"
"""The key of the description of the operator. Those of its own state begin with another byte."""
OWN_PREFIX: Final = b"\1"


class CheckpointError(OttlaError):
    """A checkpoint holds the state of another query."""


@dataclass(frozen=True)
class Input:
    """One side of an operator: which columns are the key and what else a step needs."""

    frame: DataFrame
    side: int
    what: str
    """Names the argument in errors."""
    extra: Column | None = None
    """A column of bytes."""


def run(step: Step, inputs: Sequence[Input], about: str) -> DataFrame:
    """The results of a step: the key and the fields as bytes, the timestamp in microseconds, and a position.

    `about` describes the operator and the types of its inputs: a query that continues from a checkpoint with another
    description fails.
    """
    return run_packed(step, [packed_rows(one) for one in inputs], about)


def packed_rows(one: Input) -> DataFrame:
    """The rows of an input as a step gets them, and the bucket of each."""
    frame = one.frame
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    lane = F.xxhash64(F.lit(one.what), F.col(TOPIC), F.col(PARTITION), lane_of_result(OFFSET))
    return frame.select(
        packed_key(F.col(KEY), kinds[KEY], f"the key of {one.what}").alias("key"),
        F.lit(one.side).alias("side"),
        lane.alias("lane"),
        F.col(OFFSET).alias(POSITION),
        F.coalesce(F.unix_micros(TIMESTAMP), F.lit(0)).alias(AT),
        packed(F.col(VALUE), kinds[VALUE], f"the value of {one.what}").alias("value"),
        (F.lit(None).cast("binary") if one.extra is None else one.extra).alias("extra"),
    )


def lane_of_result(position: str) -> Column:
    """The lane of a result, from the column with its position; 0 for offsets of a topic."""
    return F.shiftright(F.col(position), LANE_SHIFT)


def run_packed(step: Step, rows: Sequence[DataFrame], about: str) -> DataFrame:
    """As `run`, for rows that are already packed."""
    groups = packed_frame(bucketed(rows)).groupBy(BUCKET)
    results = transform_with_state(groups, BucketProcessor(step, about), RESULTS)
    return unpacked_frame(results, result_schema(step.fields))


def bucketed(rows: Sequence[DataFrame]) -> DataFrame:
    """Packed rows with the bucket of their key."""
    united = reduce(lambda left, right: left.unionByName(right), rows)
    bucket = F.pmod(F.xxhash64(F.coalesce("key", "extra")), F.lit(BUCKETS)).cast("int")
    return united.select(bucket.alias(BUCKET), *_INPUT.fieldNames())


def result_schema(fields: Sequence[str]) -> StructType:
    """The columns of the results of a step with these fields."""
    columns = [StructField("key", BinaryType()), StructField(AT, LongType()), StructField(POSITION, LongType())]
    return StructType([*columns, *(StructField(name, BinaryType()) for name in fields)])


def check_description(found: bytes | None, own: bytes) -> None:
    """Raises `CheckpointError` if the state of a bucket was written by another operator; None if there is none yet."""
    if found is not None and found != own:
        raise CheckpointError(
            f"the checkpoint holds the state of {found.decode()!r}, but the query has {own.decode()!r} in "
            "its place. Use another checkpointLocation, or the query and the types with which it was written"
        )


class BucketProcessor(StatefulProcessor):
    """Calls a step for each key of a bucket."""

    def __init__(self, step: Step, about: str) -> None:
        self._step = step
        self._about = about.encode()
        self._schemas = arrow_schema(_INPUT), arrow_schema(result_schema(step.fields))
        self._map: BucketMap | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._map = bucket_map(handle.getMapState(STATE_NAME, STATE_KEY, STATE_VALUE))

    def close(self) -> None:
        self._map = None

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        by_key: dict[bytes | None, list[Change]] = {}
        schema, results = self._schemas
        for _, package in rows:
            keys, *others = lists_of(schema, package)
            for row_key, change in zip(keys, map(Change._make, zip(*others, strict=True)), strict=True):
                by_key.setdefault(row_key, []).append(change)
        return map(_PackedRow, result_packages(results, self._run(by_key)))

    def _run(self, by_key: dict[bytes | None, list[Change]]) -> Iterator[tuple[Any, ...]]:
        step, stored = self._step, self._map
        if stored is None:
            raise CheckpointError("rows came before the state was opened")
        for key, changes in by_key.items():
            by_key[key] = in_order(changes)

        def read(keys: list[bytes]) -> list[bytes | None]:
            return stored.read([OWN_PREFIX + key for key in keys])

        state = State()
        wanted = dict.fromkeys(one for key, changes in by_key.items() for one in step.state_keys(key, changes))
        about, *values = stored.read([ABOUT_KEY, *(OWN_PREFIX + key for key in wanted)])
        check_description(about, self._about)
        state.load(wanted, lambda _: values)
        state.load((one for key, changes in by_key.items() for one in step.more_state_keys(key, changes, state)), read)
        position = 0
        for key, changes in by_key.items():
            for result in step.apply(key, changes, state):
                yield (result.key, result.at_us, result_position(key, position), *result.fields)
                position += 1
        changed = {OWN_PREFIX + key: data for key, data in state.changes().items()}
        if about is None and changed:
            changed[ABOUT_KEY] = self._about
        stored.write(changed)
