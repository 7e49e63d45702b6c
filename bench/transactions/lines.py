"""What is measured of transactions, each line with its targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from bench.broker.lines import CONNECTIONS, KIB, Contender, Contenders, Figures, Line, Metric
from bench.broker.session import Effort, Session
from bench.broker.sides import Running, Side
from bench.transactions import batches, driver
from bench.transactions.session import HASTY, NEW, OLD, OURS

VALUE_BYTES: Final = 100
PAUSE_S: Final = 0.02
"""Between two tries of what is answered with CONCURRENT_TRANSACTIONS: that of Kafka's own producer."""
_TWICE: Final = 2.0
_HALF: Final = 0.5
_NEARLY: Final = 0.9
_LATENCY_RATE: Final = 50
_SKIPPED: Final = 20
_TURNS_EACH: Final = 7
"""Of each mode of big batches."""
_PARTS: Final = 5
"""A turn writes so much less than lines with one turn do."""


@dataclass(frozen=True, slots=True)
class Amounts:
    records: tuple[int, ...] = (1, 10, 100)
    producers: tuple[int, ...] = (1, 10, 50)


QUICK: Final = Amounts(records=(1, 100), producers=(1, 50))


@dataclass(frozen=True, slots=True)
class Peer:
    """A Kafka, and the newest version of the transaction protocol that it has."""

    key: str
    side: Side
    protocol: int


PEERS: Final = (Peer("4.3", NEW, 2), Peer("3.9", OLD, 1))
_HASTY_PEER: Final = Peer("4.3", HASTY, 2)


def rates(peer: Peer, producers: int, amounts: Amounts) -> Line:
    is_hasty = peer is _HASTY_PEER

    def turn(session: Session, running: Running, effort: Effort) -> Figures:
        found: dict[str, float] = {}
        for records in amounts.records:
            with session.topic(running, producers) as topic:
                figures = driver.run(
                    "transactions",
                    address=running.address,
                    pid=running.pid,
                    topic=topic,
                    producers=producers,
                    records=records,
                    value_bytes=VALUE_BYTES,
                    protocol=peer.protocol,
                    pause_s=PAUSE_S,
                    seconds=effort.seconds / 2,
                )
            found |= {f"{name}_{records}": value for name, value in figures.items()}
        return found

    def metrics(records: int) -> Iterator[Metric]:
        target = None if is_hasty else _TWICE
        yield Metric(f"transactions_per_s_{records}", f"transactions/s of {_records(records)}", True, target)
        yield Metric(f"cpu_us_per_transaction_{records}", f"CPU µs each, {_records(records)}", False)

    hasty = ", Kafka set to short pauses" if is_hasty else ""
    who = "1 producer" if producers == 1 else f"{producers} producers"
    return Line(
        f"{'hasty' if is_hasty else 'rate'}-{peer.key}-{producers}",
        f"{who}, transaction protocol {peer.protocol}{hasty}",
        tuple(metric for records in amounts.records for metric in metrics(records)),
        _beside(peer, turn),
        warms_up=False,  # the session does
    )


def latency(peer: Peer) -> Line:
    def turn(session: Session, running: Running, effort: Effort) -> Figures:
        count = effort.latency_s * _LATENCY_RATE + _SKIPPED
        with session.topic(running) as topic:
            which = {"address": running.address, "topic": topic, "value_bytes": VALUE_BYTES, "count": count}
            reader = driver.TransactionLoad("follow_committed", **which, skip=_SKIPPED)
            sent = driver.run("commit_steadily", **which, protocol=peer.protocol, rate=_LATENCY_RATE)
            return {**reader.result(), **sent}

    return Line(
        f"latency-{peer.key}",
        f"from send to a read_committed consumer, {_LATENCY_RATE} transactions/s, protocol {peer.protocol}",
        (Metric("p50_ms", "ms, p50", False, _HALF), Metric("p99_ms", "ms, p99", False, _HALF)),
        _beside(peer, turn),
    )


def _beside(
    peer: Peer, turn: Callable[[Session, Running, Effort], Figures]
) -> Callable[[Session, Effort], AbstractContextManager[Contenders]]:
    @contextmanager
    def contenders(session: Session, _: Effort) -> Iterator[Contenders]:
        ours, kafka = (Contender(side.name, partial(turn, session, session.broker(side))) for side in (OURS, peer.side))
        yield ours, kafka

    return contenders


class _InTurns:
    """Writes big batches in two modes on our broker, in short turns, of which the fastest counts. A virtual machine
    gives memory that it does not use back to its host; a turn that has to get it again for the page cache takes three
    to six times as long and as much CPU time, in whichever mode. Sometimes that is most turns, so a median says
    nothing about the modes. The contender that is asked first measures for both."""

    def __init__(self, session: Session, running: Running, mode: str) -> None:
        self._session = session
        self._running = running
        self._modes = (mode, batches.PLAIN)
        self._found: dict[str, Figures] = {}

    def turn(self, mode: str, effort: Effort) -> Figures:
        if mode not in self._found:
            parts: dict[str, list[Figures]] = {mode: [] for mode in self._modes}
            for number in range(_TURNS_EACH):
                for each in self._modes if number % 2 else self._modes[::-1]:
                    parts[each].append(self._part(each, effort.raw_mb // _PARTS))
            self._found = {mode: max(figures, key=_speed) for mode, figures in parts.items()}
        return self._found.pop(mode)

    def _part(self, mode: str, total_mb: int) -> Figures:
        with self._session.topic(self._running, CONNECTIONS) as topic:
            return driver.run(
                "big_batches",
                address=self._running.address,
                pid=self._running.pid,
                topic=topic,
                mode=mode,
                value_bytes=KIB,
                connections=CONNECTIONS,
                total_mb=total_mb,
            )


def _speed(figures: Figures) -> float:
    return figures["mb_per_s"]


def big(mode: str) -> Line:
    """Ours in that way beside ours without."""

    @contextmanager
    def contenders(session: Session, _: Effort) -> Iterator[Contenders]:
        both = _InTurns(session, session.broker(OURS), mode)
        yield (
            Contender(OURS.name, partial(both.turn, mode)),
            Contender("ottla, plain", partial(both.turn, batches.PLAIN)),
        )

    metrics = (Metric("mb_per_s", "MB/s", True, _NEARLY), Metric("cpu_s_per_gb", "CPU s/GB", False))
    title = f"big batches, {mode}, acks=all"
    if mode == batches.TRANSACTIONAL:
        title = f"{title}, {batches.BATCHES_A_TRANSACTION} batches a transaction"
    return Line(f"big-{mode}", title, metrics, contenders, warms_up=False)  # the session does


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"


def lines_of(amounts: Amounts) -> tuple[Line, ...]:
    return (
        *(rates(peer, producers, amounts) for peer in PEERS for producers in amounts.producers),
        *(rates(_HASTY_PEER, producers, Amounts(records=(1,))) for producers in (1, 50)),
        *(latency(peer) for peer in PEERS),
        big(batches.IDEMPOTENT),
        big(batches.TRANSACTIONAL),
    )
