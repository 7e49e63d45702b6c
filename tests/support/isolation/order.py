"""Offsets: everyone sees one order, consumers go forward, and what they leave out is aborted or a marker."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence

from support.cluster.checker import Place
from support.isolation.anomalies import Anomaly, Finding
from support.isolation.history import History, Outcome, Read, Reader, Restart


def judge_places(history: History) -> Iterator[Finding]:
    """One value at an offset: for all readers, for the producer, and in the log."""
    known: dict[tuple[Place, int], tuple[str, int]] = {}
    for place, records in history.stored.items():
        for offset, value in records.items():
            known[place, offset] = ("the log", value)
    for one in history.transactions:
        for write in one.writes:
            if write.offset is not None and one.outcome is Outcome.COMMITTED:
                stored = history.stored.get(write.place, {}).get(write.offset)
                if stored is None and write.place in history.compacted:
                    continue
                if stored != write.value:
                    spot = f"{write.value} was acknowledged at {write.place}, offset {write.offset}"
                    yield Finding(Anomaly.MOVED, f"{spot}; there is {stored}")
    for who, read in history.all_reads():
        whose, value = known.setdefault((read.place, read.offset), (who, read.value))
        if value != read.value:
            what = f"{read.place}, offset {read.offset}: {who} saw {read.value}, {whose} has {value}"
            yield Finding(Anomaly.DISAGREEMENT, what)


def judge_producers(history: History) -> Iterator[Finding]:
    """A producer's writes to a partition are stored in the order in which it sent them, from one transaction to the
    next. What was aborted counts too, as far as it was stored."""
    at = {value: (place, offset) for place, records in history.stored.items() for offset, value in records.items()}
    last: dict[tuple[str, Place], tuple[int, int]] = {}
    for one in sorted(history.transactions, key=lambda one: one.began_ns):
        for write in one.writes:
            spot = at.get(write.value)
            if spot is None:
                continue
            before = last.get((one.producer, write.place))
            if before is not None and spot[1] < before[0]:
                what = f"{write.value} is at {write.place}, offset {spot[1]}, before {before[1]} at {before[0]}"
                yield Finding(Anomaly.REORDERED, f"{one.producer}: {what}, which was sent first")
            last[one.producer, write.place] = (spot[1], write.value)


def judge_holes(history: History) -> Iterator[Finding]:
    """Where nothing is deleted or compacted, each offset has a record or a marker."""
    if history.markers is None:
        return
    for place, records in history.stored.items():
        if place in history.compacted:
            continue
        markers = history.markers.get(place, frozenset())
        end = max((*records, *markers), default=-1) + 1
        for offset in range(end):
            if (offset in records) == (offset in markers):
                what = "nothing" if offset not in records else "a record and a marker"
                yield Finding(Anomaly.HOLE, f"{place}, offset {offset} has {what}")


def judge_readers(history: History) -> Iterator[Finding]:
    """Consumers go forward, and skip nothing that is visible."""
    visible = {place: [offset for offset, _ in records] for place, records in history.visible.items()}
    for reader in history.readers:
        yield from _judge_reader(reader, visible)
    for producer, events in _processors(history).items():
        yield from _judge_reader(Reader(producer, list(events)), visible)


def _processors(history: History) -> Mapping[str, Sequence[Read | Restart]]:
    """Within a transaction. Where the next one goes on is judged by its offsets. One that was aborted may have lost its
    partitions to another processor while it consumed."""
    found: dict[str, list[Read | Restart]] = {}
    for one in history.transactions:
        if one.outcome is Outcome.ABORTED:
            continue
        started: set[Place] = set()
        for read in one.reads:
            events = found.setdefault(one.producer, [])
            if read.place not in started:
                started.add(read.place)
                events.append(Restart(read.place, read.offset))
            events.append(read)
    return found


def _judge_reader(reader: Reader, visible: Mapping[Place, Sequence[int]]) -> Iterator[Finding]:
    positions: dict[Place, int] = {}
    for event in reader.events:
        position = positions.get(event.place, 0)
        positions[event.place] = event.offset
        if isinstance(event, Restart):
            continue
        positions[event.place] += 1
        if event.offset < position:
            what = f"{reader.name}: {event.place}: offset {event.offset} came at position {position}"
            yield Finding(Anomaly.BACKWARDS, what)
            continue
        offsets = visible.get(event.place, ())
        first, last = bisect_left(offsets, position), bisect_left(offsets, event.offset)
        if last > first:
            what = f"{last - first} records from offset {offsets[first]} on, before {event.offset}"
            yield Finding(Anomaly.SKIPPED, f"{reader.name}: {event.place}: {what}")


def visible_between(history: History, place: Place, start: int, end: int) -> list[tuple[int, int]]:
    """The visible records from an offset to another."""
    records = history.visible.get(place, ())
    first = bisect_left(records, start, key=lambda record: record[0])
    last = bisect_right(records, end - 1, key=lambda record: record[0])
    return list(records[first:last])
