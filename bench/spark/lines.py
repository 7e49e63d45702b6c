"""What is measured, and against which target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from bench.broker.control import Control
from bench.broker.lines import Contender, Contenders, Figures, Line, Metric
from bench.broker.session import Effort, Session
from bench.spark.latency import through_a_query
from bench.spark.session import KEY_BYTES, PARTITIONS, VALUE_BYTES, Connector, SparkSession, SparkSide

OURS: Final = Connector("ottla", "ottla", is_newest=True)
OURS_ON_THEIRS: Final = Connector("ottla", "ottla")
SPARKS: Final = Connector("Spark's own", "kafka")
TASKS: Final = 2
"""Of a write, with two cores."""
BATCHES: Final = 8
"""That a stream over the whole topic is cut into."""

Measure = Callable[[SparkSession, SparkSide], Figures]


@dataclass(frozen=True, slots=True)
class Amounts:
    read: int = 4_000_000
    aggregated: int = 2_000_000
    written: int = 1_000_000
    latency_s: int = 20
    cold_s: int = 5
    """Of those, the first ones do not count."""


QUICK: Final = Amounts(read=200_000, aggregated=100_000, written=100_000, latency_s=4, cold_s=1)


def rates(found: Mapping[str, float], records: int) -> Figures:
    """Of a query that must have seen so many records."""
    seen = found.get("records", records)
    if seen != records:
        raise RuntimeError(f"the query saw {seen:,.0f} records, and there are {records:,}")
    return {**found, "records_per_s": records / found["seconds"], "cpu_us": found["cpu_s"] / records * 1e6}


def _line(
    key: str,
    title: str,
    measure: Measure,
    metrics: tuple[Metric, ...],
    ours: Connector = OURS,
    theirs: Connector = SPARKS,
    beside: Measure | None = None,
) -> Line:
    """`beside`: what is measured of the second one, if it is not the same."""

    def contender(session: SparkSession, connector: Connector, name: str, measure: Measure) -> Contender:
        side = session.side(connector)
        return Contender(name, lambda _: measure(session, side))

    @contextmanager
    def contenders(session: Session, _: Effort) -> Iterator[Contenders]:
        if not isinstance(session, SparkSession):
            raise TypeError(f"{key} needs a session with Sparks")
        name = ours.name if beside is None else f"{ours.name}, exactly once"
        yield contender(session, ours, name, measure), contender(session, theirs, theirs.name, beside or measure)

    return Line(key, title, metrics, contenders)


def _rate(target: float | None = None) -> tuple[Metric, ...]:
    return (Metric("records_per_s", "records/s", True, target), Metric("cpu_us", "CPU µs/record", False))


def _once() -> Metric:
    return Metric("once_s", "s to start and end", False)


def lines_of(amounts: Amounts) -> tuple[Line, ...]:
    def reading(request: str) -> Measure:
        def measure(session: SparkSession, side: SparkSide) -> Figures:
            return rates(side.ask(request, {"subscribe": session.filled_topic(amounts.read)}), amounts.read)

        return measure

    def streaming(request: str, records: int) -> Measure:
        def measure(session: SparkSession, side: SparkSide) -> Figures:
            options = {
                "subscribe": session.filled_topic(records),
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(records // BATCHES),
            }
            return rates(side.ask(request, options, checkpoint=str(session.new_place())), records)

        return measure

    def writing(session: SparkSession, side: SparkSide) -> Figures:
        return written(session, side, {})

    def writing_exactly_once(session: SparkSession, side: SparkSide) -> Figures:
        return written(session, side, {"exactlyOnce": "true"}, markers=TASKS)

    def written(session: SparkSession, side: SparkSide, options: Mapping[str, str], markers: int = 0) -> Figures:
        """`markers`: transactions, of which each partition has a marker."""
        side.tell("make_rows", count=amounts.written, key_bytes=KEY_BYTES, value_bytes=VALUE_BYTES)
        with session.topic(session.running, PARTITIONS) as topic:
            found = side.ask("write", {"topic": topic, **options})
            with Control(session.running.address) as control:
                arrived = sum(control.end_offset(topic, partition) for partition in range(PARTITIONS))
            return rates({**found, "records": arrived - markers * PARTITIONS}, amounts.written)

    def copying(options: Mapping[str, str]) -> Measure:
        def measure(session: SparkSession, side: SparkSide) -> Figures:
            source = {
                "subscribe": session.filled_topic(amounts.aggregated),
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(amounts.aggregated // BATCHES),
            }
            with session.topic(session.running, PARTITIONS) as topic:
                place = str(session.new_place())
                sink = {**side.addressed(options), "topic": topic}
                return rates(side.ask("copy", source, sink=sink, checkpoint=place), amounts.aggregated)

        return measure

    def latency(session: SparkSession, side: SparkSide) -> Figures:
        return through_a_query(side, session, amounts.latency_s, amounts.cold_s)

    def with_cores(cores: int) -> tuple[Connector, Connector]:
        ours = Connector(OURS.name, OURS.format, cores, OURS.is_newest)
        return ours, Connector(SPARKS.name, SPARKS.format, cores)

    read, stream = reading("read"), streaming("stream", amounts.read)
    return (
        _line("batch-count", "batch: count", reading("count"), _rate(5.0)),
        _line("batch-read", "batch: keys and values", read, _rate(5.0)),
        _line("batch-one-core", "batch: keys and values, one core", read, _rate(), *with_cores(1)),
        _line("batch-same-spark", "batch: keys and values, both on Spark 4.2.0", read, _rate(), OURS_ON_THEIRS),
        _line("stream-read", "stream: keys and values", stream, (*_rate(3.0), _once())),
        _line("stream-one-core", "stream: keys and values, one core", stream, (*_rate(), _once()), *with_cores(1)),
        _line("stream-same-spark", "stream: keys and values, both on Spark 4.2.0", stream, _rate(), OURS_ON_THEIRS),
        _line(
            "stream-windows",
            "stream: counts by window and key",
            streaming("aggregate", amounts.aggregated),
            (*_rate(), _once()),
        ),
        _line("sink", "batch: write keys and values", writing, _rate(2.0)),
        _line(
            "sink-exactly-once",
            "batch: write, exactly once beside at least once",
            writing_exactly_once,
            _rate(0.8),
            theirs=OURS,
            beside=writing,
        ),
        _line(
            "sink-exactly-once-spark",
            "batch: write, ours exactly once, Spark's own at least once",
            writing_exactly_once,
            _rate(1.5),
            beside=writing,
        ),
        _line(
            "copy-exactly-once",
            "stream: topic to topic, exactly once beside at least once",
            copying({"exactlyOnce": "true"}),
            (*_rate(0.8), _once()),
            theirs=OURS,
            beside=copying({}),
        ),
        _line(
            "latency",
            "stream: from topic to topic, end to end",
            latency,
            (Metric("p50_ms", "ms p50", False), Metric("p99_ms", "ms p99", False)),
        ),
    )
