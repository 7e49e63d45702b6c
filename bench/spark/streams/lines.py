"""What is measured beside Kafka Streams. Both write topics, and what they have written is compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from bench.broker.lines import Contender, Contenders, Figures, Line, Metric
from bench.broker.session import Effort, Session
from bench.spark.lines import BATCHES, OURS
from bench.spark.session import MEMORY, PARTITIONS, SparkSession, SparkSide, tree_cpu_s
from bench.spark.streams.inputs import (
    Input,
    Output,
    clicks_and_users,
    orders_and_customers,
    output_of,
    total_of_counts,
)
from bench.spark.streams.kafka_streams import NAME, KafkaStreamsSide, kafka_streams

_METRICS: Final = (
    Metric("records_per_s", "records/s", True, 1.0),
    Metric("cpu_us", "CPU µs/record", False),
    Metric("broker_cpu_us", "broker's CPU µs/record", False),
    Metric("once_s", "s to start and end", False),
)


@dataclass(frozen=True, slots=True)
class StreamAmounts:
    counted: int = 1_000_000
    clicks: int = 500_000
    users: int = 50_000
    orders: int = 100_000
    customers: int = 10_000


QUICK: Final = StreamAmounts(counted=80_000, clicks=80_000, users=8_000, orders=16_000, customers=1_600)


@dataclass(frozen=True, slots=True)
class Work:
    """What both sides do with the same topics."""

    name: str
    inputs: Callable[[SparkSession], Sequence[Input]]
    until: int
    """How many records or rows `KafkaStreamsWork` looks out for."""
    is_table: bool = False
    """Whether only the last record of each key counts."""
    rows: int | None = None
    """That the result has, if it is known."""
    total: int | None = None
    """Of its values, if they are counts."""
    exactly_once: bool = False
    whole_at_once: frozenset[int] = frozenset()
    """Inputs that are not cut into micro-batches."""

    @property
    def title(self) -> str:
        return self.name


def stream_lines_of(amounts: StreamAmounts) -> tuple[Line, ...]:
    def counted(session: SparkSession) -> Sequence[Input]:
        return (Input(session.filled_topic(amounts.counted), amounts.counted),)

    def clicked(session: SparkSession) -> Sequence[Input]:
        return clicks_and_users(session, amounts.clicks, amounts.users)

    def ordered(session: SparkSession) -> Sequence[Input]:
        return orders_and_customers(session, amounts.orders, amounts.customers)

    def join(*, exactly_once: bool) -> Work:
        return Work(
            "stream-table",
            clicked,
            until=amounts.clicks,
            rows=amounts.clicks,
            exactly_once=exactly_once,
            whole_at_once=frozenset([1]),
        )

    windows = Work("windowed-count", counted, until=amounts.counted, is_table=True, total=amounts.counted)
    foreign = Work("foreign-key", ordered, until=amounts.orders // 2, is_table=True, rows=amounts.orders // 2)
    return (
        _line("streams-windowed-count", "streams: counts by window and key, to a topic", windows),
        _line("streams-stream-table", "streams: stream-table join", join(exactly_once=False)),
        _line("streams-exactly-once", "streams: stream-table join, exactly once", join(exactly_once=True)),
        _line("streams-foreign-key", "streams: foreign-key join of tables", foreign),
    )


def _line(key: str, title: str, work: Work) -> Line:
    @contextmanager
    def contenders(session: Session, _: Effort) -> Iterator[Contenders]:
        if not isinstance(session, SparkSession):
            raise TypeError(f"{key} needs a session with Sparks")
        side = session.side(OURS)
        seen: set[Output] = set()
        with _peer(session) as peer:
            yield (
                Contender(OURS.name, lambda _: _turn(session, work, seen, _ours(side, work))),
                Contender(NAME, lambda _: _turn(session, work, seen, _theirs(peer, work))),
            )

    return Line(key, title, _METRICS, contenders)


@contextmanager
def _peer(session: SparkSession) -> Iterator[KafkaStreamsSide]:
    place = session.new_place()
    place.mkdir()
    with kafka_streams(place, session.running.address, OURS.cores, MEMORY) as peer:
        yield peer


Ask = Callable[[SparkSession, Sequence[Input], str], Figures]


def _ours(side: SparkSide, work: Work) -> Ask:
    def ask(session: SparkSession, inputs: Sequence[Input], output: str) -> Figures:
        limits = [
            {} if number in work.whole_at_once else {"maxOffsetsPerTrigger": str(one.records // BATCHES)}
            for number, one in enumerate(inputs)
        ]
        sink = side.addressed({"topic": output, "exactlyOnce": str(work.exactly_once).lower()})
        return side.ask(
            "operate",
            {},
            work=work.name,
            topics=[one.topic for one in inputs],
            limits=limits,
            sink=sink,
            checkpoint=str(session.new_place()),
        )

    return ask


def _theirs(peer: KafkaStreamsSide, work: Work) -> Ask:
    def ask(_: SparkSession, inputs: Sequence[Input], output: str) -> Figures:
        return peer.ask(work.name, inputs, output, work.until, exactly_once=work.exactly_once)

    return ask


def _turn(session: SparkSession, work: Work, seen: set[Output], ask: Ask) -> Figures:
    inputs, running = work.inputs(session), session.running
    records = sum(one.records for one in inputs)
    with session.topic(running, PARTITIONS) as topic:
        before_s = tree_cpu_s(running.pid)
        found = ask(session, inputs, topic)
        broker_cpu_s = tree_cpu_s(running.pid) - before_s
        written = _checked(running.address, topic, work, seen)
    return {
        **found,
        "records": records,
        "written": written,
        "records_per_s": records / found["seconds"],
        "cpu_us": found["cpu_s"] / records * 1e6,
        "broker_cpu_us": broker_cpu_s / records * 1e6,
    }


def _checked(address: str, topic: str, work: Work, seen: set[Output]) -> int:
    """The number of records that were written. Raises if they are not what every other turn has written."""
    output = output_of(address, topic)
    result = Output(0, output.rows, 0, output.rows_sum) if work.is_table else output
    found = output.rows if work.is_table else output.records
    if work.rows is not None and found != work.rows:
        raise RuntimeError(f"{work.name} wrote {found:,} rows instead of {work.rows:,}")
    if work.total is not None and (total := total_of_counts(address, topic)) != work.total:
        raise RuntimeError(f"{work.name} counted {total:,} of {work.total:,} records")
    seen.add(result)
    if len(seen) > 1:
        raise RuntimeError(f"{work.name}: results differ between turns: {seen}")
    return output.records
