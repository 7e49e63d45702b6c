"""`process`: a class of yours is called for each record, with state, expiry and timers; and what becomes of records
that it cannot process.

Built on Spark's transformWithState, by key: each key with records costs a call between Java and Python (about 0.3 ms),
so use the other functions of `ottla.spark.streams` where they do. Records of a key come in the order of the module
`ottla.spark.streams` (docs/decisions/0018-streams.md).
"""

from __future__ import annotations

import heapq
import json
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
from pyspark.errors import ParseException
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import DataType, StructField, StructType

from ottla.base.errors import OttlaError
from ottla.spark.failed_records import error_headers
from ottla.spark.streams.cores.changes import LANE_SHIFT, result_position
from ottla.spark.streams.frames import COLUMNS, KEY, VALUE, StreamError, check_frame
from ottla.spark.streams.stateful import printable, transform_with_state
from ottla.spark.streams.states import List, Map, Value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Time = Literal["none", "event", "processing"]
OnError = Literal["fail", "dead_letter"]

FAILURE: Final = "failure"
"""The column of rows that could not be processed; null in results."""

_FAILURE_TYPE: Final = (
    "exception STRING, message STRING, stack STRING, topic STRING, partition INT, offset BIGINT, key BINARY, "
    "value BINARY"
)
_MODES: Final = {"none": "None", "event": "EventTime", "processing": "ProcessingTime"}
_STATES: Final = (Value, List, Map)
_HEADERS: Final = {
    "exception": "exception",
    "message": "message",
    "stacktrace": "stack",
    "topic": "topic",
    "partition": "partition",
    "offset": "offset",
}
"""The fields of a failure by the names of their headers."""


class ProcessError(OttlaError):
    """A processor failed; the message names the record."""


class Context:
    """The time, and the timers of the current key."""

    def __init__(self, handle: StatefulProcessorHandle, times: TimerValues, mode: str) -> None:
        self._handle = handle
        self._times = times
        self._mode = mode
        self._wanted: dict[int, bool] = {}

    @property
    def now(self) -> datetime:
        """The watermark with `time="event"`; the time when the micro-batch began with `time="processing"`."""
        self._check_time()
        at_ms = (
            self._times.getCurrentWatermarkInMs()
            if self._mode == "event"
            else self._times.getCurrentProcessingTimeInMs()
        )
        return datetime.fromtimestamp(max(0, at_ms) / 1000, UTC)

    def set_timer(self, at: datetime) -> None:
        """Calls `on_timer` once `now` has passed this time."""
        self._wanted[self._checked(at)] = True

    def delete_timer(self, at: datetime) -> None:
        self._wanted[self._checked(at)] = False

    def _check_time(self) -> None:
        if self._mode == "none":
            raise StreamError("timers and the time need process(…, time='event') or time='processing'")

    def _checked(self, at: datetime) -> int:
        self._check_time()
        if at.tzinfo is None:
            raise StreamError(f"the time of a timer needs a time zone: {at!r}")
        return round(at.timestamp() * 1000)

    def forget(self) -> None:
        """Drops what the current record asked for."""
        self._wanted.clear()

    def flush(self) -> None:
        for at_ms, is_set in self._wanted.items():
            if is_set:
                self._handle.registerTimer(at_ms)
            else:
                self._handle.deleteTimer(at_ms)
        self._wanted.clear()


class Processor:
    """The base class of processors. Declare state as class attributes, which belong to the key of the current record:

    class Totals(Processor):
        total = Value[int]("BIGINT")

        def process(self, record: Row, context: Context) -> Iterator[int]:
            self.total.set((self.total.get() or 0) + record.value)
            yield self.total.get()

    Must depend on nothing but records, state and `context`: a micro-batch can be processed again.
    """

    def process(self, record: Row, context: Context) -> Iterable[Any] | None:
        """Called for each record, with the columns of the stream as attributes; yields values of results, which have
        the record's key and timestamp. None as a value is a tombstone; None instead of an iterator means no results. If
        it raises, or a value does not have the type of results, what it changed is undone."""
        raise NotImplementedError

    def on_timer(self, key: Any, at: datetime, context: Context) -> Iterable[Any] | None:  # noqa: ARG002
        """Called when a timer has expired; yields values as `process` does."""
        return ()


def process(
    stream: DataFrame, processor: Processor, schema: DataType | str, *, time: Time = "none", on_error: OnError = "fail"
) -> DataFrame:
    """Calls the processor for each record of a stream; `schema` is the type of the values that it yields.

    `time` chooses what timers and `context.now` follow: `"event"`, which needs a watermark on column `timestamp`, or
    `"processing"`, which expiry (`ttl`) needs.

    `on_error` is what happens with a record for which the processor raises: `"fail"` stops the query, and the error
    names the record; `"dead_letter"` undoes what it changed, and adds a row whose column `failure` says why:
    `to_topics` writes these to a topic of their own. Let the processor decode its records, so that it gets those, too,
    that cannot be decoded.
    """
    check_frame(stream, "stream")
    if time not in _MODES:
        raise StreamError(f"time must be one of {', '.join(map(repr, _MODES))}, not {time!r}")
    if on_error not in ("fail", "dead_letter"):
        raise StreamError(f"on_error must be 'fail' or 'dead_letter', not {on_error!r}")
    if not isinstance(processor, Processor):
        hint = "an instance" if isinstance(processor, type) else "an instance of a class derived from Processor"
        raise StreamError(f"processor must be {hint}, not {processor!r}")
    states = _declared(processor)
    expiring = [name for name, state in states.items() if state.ttl is not None]
    if expiring and time != "processing":
        raise StreamError(f"the ttl of {expiring[0]!r} needs process(…, time='processing')")
    kind = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    types = {field.name: field for field in stream.schema.fields}
    fields = [types[KEY], StructField(VALUE, kind), *(StructField(name, types[name].dataType) for name in COLUMNS[2:])]
    if on_error == "dead_letter":
        fields.append(StructField(FAILURE, StructType.fromDDL(_FAILURE_TYPE)))
    kinds = {name: [_kind_of_state(name, text) for text in state.types()] for name, state in states.items()}
    adapter = _Adapter(processor, type(processor).__name__, kind, kinds, time, is_failing=on_error == "fail")
    names = [KEY, *[name for name in stream.columns if name != KEY]]
    return transform_with_state(
        stream.select(*names).groupBy(KEY),
        adapter,
        StructType(fields),
        time_mode=_MODES[time],
        event_time_column="timestamp" if time == "event" else "",
    )


def to_topics(processed: DataFrame, results: str, dead_letters: str) -> DataFrame:
    """What `process(…, on_error="dead_letter")` returns, as rows for `format("ottla")`: results for one topic, and for
    another one failed records, with their original key and value, and the reason in headers. Key and value of results
    must be strings or bytes: encode them first. Do not set the option `topic` of the sink."""
    types = {field.name: field.dataType.simpleString() for field in processed.schema.fields}
    if FAILURE not in types:
        raise StreamError("to_topics needs the column 'failure': use process(…, on_error='dead_letter')")
    for name in (KEY, VALUE):
        if types[name] not in ("string", "binary"):
            raise StreamError(f"column {name} must be string or binary, not {types[name]}: encode it first")
    failed = F.col(FAILURE).isNotNull()

    def original(name: str) -> Any:
        return F.when(failed, F.col(f"{FAILURE}.{name}")).otherwise(F.col(name).cast("binary")).alias(name)

    headers = error_headers({name: F.col(f"{FAILURE}.{field}") for name, field in _HEADERS.items()})
    return processed.select(
        original(KEY),
        original(VALUE),
        "timestamp",
        F.when(failed, F.lit(dead_letters)).otherwise(F.lit(results)).alias("topic"),
        F.when(failed, headers).alias("headers"),
    )


class _Adapter(StatefulProcessor):
    """A processor as Spark calls it."""

    def __init__(
        self,
        processor: Processor,
        name: str,
        kind: DataType,
        kinds: Mapping[str, Sequence[DataType]],
        mode: str,
        *,
        is_failing: bool,
    ) -> None:
        self._processor = processor
        self._name = name
        self._kind = kind
        self._kinds = kinds
        self._result_type: pa.DataType | None = None
        self._mode = mode
        self._is_failing = is_failing
        self._handle: StatefulProcessorHandle | None = None
        self._states: list[Value[Any] | List[Any] | Map[Any, Any]] = []
        self._position = 0
        self._make_row: Any = Row(*COLUMNS) if is_failing else Row(*COLUMNS, FAILURE)

    def init(self, handle: StatefulProcessorHandle) -> None:
        from pyspark.sql.pandas.types import to_arrow_type

        self._handle = handle
        self._result_type = to_arrow_type(self._kind, timezone="UTC")  # as Spark's worker does
        self._states = []
        for name, declared in _declared(self._processor).items():
            state = declared.bound(handle, name, self._kinds[name])
            self._states.append(state)
            setattr(self._processor, name, state)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Row]:  # noqa: N802, N803
        context = self._begin(timerValues)
        for record in in_order(rows):
            for state in self._states:
                state.begin()
            try:
                values = self._checked(self._processor.process(record, context))
            except Exception as error:
                for state in self._states:
                    state.undo()
                context.forget()
                if self._is_failing:
                    where = f"offset {record.offset} of partition {record.partition} of topic {record.topic}"
                    raise ProcessError(f"{self._name} failed at {where}: {type(error).__name__}: {error}") from error
                yield self._row(key[0], None, record.timestamp, _failure(record, error))
                continue
            context.flush()
            for value in values:
                yield self._row(key[0], value, record.timestamp, None)
        self._end()

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        context = self._begin(timerValues)
        at = datetime.fromtimestamp(expiredTimerInfo.getExpiryTimeInMs() / 1000, UTC)
        for value in self._checked(self._processor.on_timer(key[0], at, context)):
            yield self._row(key[0], value, at, None)
        context.flush()
        self._end()

    def close(self) -> None:
        self._states = []

    def _begin(self, times: TimerValues) -> Context:
        if self._handle is None:
            raise ProcessError(f"{self._name} was called before its state was opened")
        for state in self._states:
            state.forget()
        return Context(self._handle, times, self._mode)

    def _end(self) -> None:
        for state in self._states:
            state.flush()

    def _checked(self, values: Iterable[Any] | None) -> list[Any]:
        """The results, if they have the type of results: later, Spark's worker would not know the record."""
        found = [] if values is None else list(values)
        pa.array([one.asDict(True) if isinstance(one, Row) else one for one in found], self._result_type)
        return found

    def _row(self, key: Any, value: Any, at: datetime, failure: dict[str, Any] | None) -> Row:
        position = result_position(repr(key).encode(errors="replace"), self._position)
        row = (key, value, at, None, None, position)
        self._position += 1
        made: Row = self._make_row(*row) if self._is_failing else self._make_row(*row, failure)
        return made


def in_order(rows: Iterable[Any]) -> Iterator[Any]:
    """Records of a partition by offset, and results of one key by position; several of these are merged by the
    timestamps of their heads."""
    lanes: dict[tuple[str, int, int], list[Any]] = {}
    for row in rows:
        lanes.setdefault((row.topic or "", row.partition or 0, (row.offset or 0) >> LANE_SHIFT), []).append(row)
    heads = []
    for lane, records in lanes.items():
        records.sort(key=lambda row: row.offset, reverse=True)
        heads.append((records[-1].timestamp, lane))
    heapq.heapify(heads)
    while heads:
        _, lane = heads[0]
        yield lanes[lane].pop()
        if lanes[lane]:
            heapq.heapreplace(heads, (lanes[lane][-1].timestamp, lane))
        else:
            heapq.heappop(heads)


def _declared(processor: Processor) -> dict[str, Value[Any] | List[Any] | Map[Any, Any]]:
    """The states by name, those of base classes included."""
    owners = reversed(type(processor).__mro__)
    return {name: value for owner in owners for name, value in vars(owner).items() if isinstance(value, _STATES)}


def _kind_of_state(name: str, text: str) -> DataType:
    try:
        return DataType.fromDDL(text)
    except ParseException as error:
        raise StreamError(f"state {name!r} has the type {text!r}, which Spark does not know: {error}") from None


def _failure(record: Any, error: Exception) -> dict[str, Any]:
    return {
        "exception": type(error).__qualname__,
        "message": printable(str(error)),
        "stack": printable("".join(traceback.format_exception(error))),
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": _raw(record.key),
        "value": _raw(record.value),
    }


def _raw(value: Any) -> bytes | None:
    """Bytes and strings as they were; anything else as JSON."""
    if value is None:
        return None
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, Row):
        value = value.asDict(recursive=True)
    return (value if isinstance(value, str) else json.dumps(value, default=str)).encode()
