"""Sliding windows against a model in plain Python: random records, out of order and late, in any micro-batches.

`Query` runs a step as Spark does: rows first, then timers that time has passed; and nothing lives but bytes of state.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.spark.streams.cores.agenda import SLOT_BYTES, Agenda, Slot
from ottla.spark.streams.cores.changes import Change, Result, in_order, joined, parted
from ottla.spark.streams.cores.timed import TimedBucket, TimedStep
from ottla.spark.streams.cores.windows import ClosingStep, SlidingStep
from support.examples import examples


class Event(NamedTuple):
    key: bytes
    at_ms: int
    value: str


class Json:
    """Values as JSON, so that totals are lists."""

    def loads(self, data: bytes | None) -> Any:
        return None if data is None else json.loads(data)

    def dumps(self, value: Any) -> bytes | None:
        return None if value is None else json.dumps(value).encode()


class Texts:
    def loads(self, data: bytes | None) -> str | None:
        return None if data is None else data.decode()

    def dumps(self, value: str | None) -> bytes | None:
        return None if value is None else value.encode()


def appended(key: str, value: str, total: list[str]) -> list[str]:  # noqa: ARG001
    """Changes its argument: windows must not share totals."""
    total.append(value)
    return total


def sliding(difference_ms: int, *, is_final: bool = False) -> SlidingStep:
    return SlidingStep(difference_ms, list, (appended,), Texts(), (Texts(),), Json(), is_final=is_final)


class Query:
    """A step with its state and its timers, in one bucket."""

    def __init__(self, step: TimedStep) -> None:
        self.step = step
        self.stored: dict[bytes, bytes] = {}
        self.timers: set[int] = set()
        self.late = 0

    def run(self, now_ms: int, rows: Sequence[tuple[bytes, Change]] = ()) -> list[Result]:
        results: list[Result] = []
        if rows:
            by_key: dict[bytes, list[Change]] = {}
            for key, change in rows:
                by_key.setdefault(key, []).append(change)
            ordered = {key: in_order(changes) for key, changes in by_key.items()}
            results += self._called(now_ms, lambda bucket: bucket.rows(ordered))
        for timer in sorted(one for one in self.timers if one < now_ms):
            results += self._called(now_ms, lambda bucket: bucket.due())
            self.timers.discard(timer)
        return results

    def _called(self, now_ms: int, call: Callable[[TimedBucket], Any]) -> list[Result]:
        bucket = TimedBucket(self.step, now_ms, lambda keys: [self.stored.get(key) for key in keys])
        results = list(call(bucket))
        self.late += bucket.late
        for key, data in bucket.changes().items():
            if data is None:
                del self.stored[key]  # nothing is removed that is not there
            else:
                self.stored[key] = data
        if bucket.timer_ms is not None:
            assert bucket.timer_ms > now_ms
            assert bucket.timer_ms not in self.timers
            self.timers.add(bucket.timer_ms)
        return results


def rows_of(batch: Sequence[Event]) -> list[tuple[bytes, Change]]:
    """The shuffle keeps no order: the last is first."""
    rows = [(one.key, Change(0, 0, at, one.at_ms * 1000, one.value.encode())) for at, one in enumerate(batch)]
    return rows[::-1]


def tables(results: Sequence[Result]) -> dict[tuple[bytes, int], list[str]]:
    found: dict[tuple[bytes, int], list[str]] = {}
    for key, _, (start, value) in results:
        assert key is not None
        assert start is not None
        if value is None:
            del found[key, int(start)]
        else:
            found[key, int(start)] = json.loads(value)
    return found


def expected(history: Sequence[Event], difference_ms: int) -> dict[tuple[bytes, int], list[str]]:
    """The definition: which windows there are, and which records each one includes, in the order of their arrival."""
    found = {}
    for one in history:
        for start in (max(one.at_ms - difference_ms, 0), one.at_ms + 1):
            content = [
                other.value
                for other in history
                if other.key == one.key and start <= other.at_ms <= start + difference_ms
            ]
            if content:
                found[one.key, start] = content
    return found


differences = st.sampled_from([0, 1, 3, 10, 1000])


@st.composite
def histories(draw: st.DrawFn, longest_ms: int = 40) -> list[list[Event]]:
    """Micro-batches of records, whose values tell them apart."""
    times = draw(st.lists(st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.integers(0, longest_ms)), max_size=8), max_size=6))  # fmt: skip  # noqa: E501
    return [
        [Event(key, at, f"{number}.{n}") for n, (key, at) in enumerate(batch)] for number, batch in enumerate(times)
    ]


@settings(max_examples=examples(120))
@given(differences, histories())
def test_windows_of_records_in_any_order(difference_ms: int, history: list[list[Event]]) -> None:
    """With so much grace that nothing is late."""
    query, results = Query(sliding(difference_ms)), list[Result]()
    for batch in history:
        results += query.run(0, rows_of(batch))
    events = [one for batch in history for one in batch]
    assert tables(results) == expected(events, difference_ms)
    latest = {(key, int(start or b"")): at_us for key, at_us, (start, _) in results if key}
    for (key, start), at_us in latest.items():
        inside = [one.at_ms for one in events if one.key == key and start <= one.at_ms <= start + difference_ms]
        assert at_us == max(inside) * 1000
    assert query.late == 0


class Watermark:
    """Of the query when a micro-batch begins: what came before it decides."""

    def __init__(self, grace_ms: int) -> None:
        self.grace_ms = grace_ms
        self.now_ms = 0

    def see(self, batch: Sequence[Event]) -> None:
        self.now_ms = max([self.now_ms, *(one.at_ms - self.grace_ms for one in batch)])


@settings(max_examples=examples(120))
@given(differences, st.integers(0, 20), histories(), st.booleans())
def test_records_that_are_too_late(
    difference_ms: int, grace_ms: int, history: list[list[Event]], is_final: bool
) -> None:
    """Records either come before any of their windows close, or after all have closed: then they leave no trace."""
    query, watermark = Query(sliding(difference_ms, is_final=is_final)), Watermark(grace_ms)
    results: list[Result] = []
    taken: list[Event] = []
    late = 0
    for batch in history:
        now = watermark.now_ms
        kept = [one for one in batch if one.at_ms >= now or one.at_ms + difference_ms < now]
        on_time = [one for one in kept if one.at_ms >= now]
        taken += on_time
        late += len(kept) - len(on_time)
        results += query.run(now, rows_of(kept))
        watermark.see(kept)
        results += query.run(watermark.now_ms)
    results += query.run(10**9)
    if is_final:
        assert len({(key, fields[0]) for key, _, fields in results}) == len(results)
    assert tables(results) == expected(taken, difference_ms)
    assert query.late == late
    assert query.stored == {}
    assert query.timers == set()


@settings(max_examples=examples(120))
@given(differences, st.integers(0, 20), histories())
def test_final_results_are_the_last_updates(difference_ms: int, grace_ms: int, history: list[list[Event]]) -> None:
    """Also for records that come when some of their windows have closed. A window is emitted as soon as it has closed,
    and neither it nor an update comes after that."""
    updating, closing, watermark = Query(sliding(difference_ms)), Query(sliding(difference_ms, is_final=True)), Watermark(grace_ms)  # fmt: skip  # noqa: E501
    suppressing = Query(ClosingStep())
    table: dict[tuple[bytes, int], list[str]] = {}
    emitted: dict[tuple[bytes, int], list[str]] = {}
    for batch in [*history, []]:
        now = watermark.now_ms
        updates = updating.run(now, rows_of(batch))
        assert emitted.keys().isdisjoint(tables(updates))
        table |= tables(updates)
        finals = tables(closing.run(now, rows_of(batch)))
        assert emitted.keys().isdisjoint(finals)
        emitted |= finals
        suppressed = suppressing.run(now, [closing_row(one, difference_ms) for one in updates])
        assert {unpaired(one): json.loads(one.fields[0] or b"") for one in suppressed} == finals
        closed = {where: total for where, total in table.items() if where[1] + difference_ms < now}
        at_the_edge = {where for where in closed if where[1] + difference_ms == now - 1}
        assert {where: closed[where] for where in closed.keys() - at_the_edge} == {
            where: total for where, total in emitted.items() if where not in at_the_edge
        }
        watermark.see(batch)
        if not batch:
            watermark.now_ms += 10**6
    for query in (updating, closing, suppressing):
        rest = query.run(watermark.now_ms)
        if query is closing:
            assert emitted | tables(rest) == table
            assert emitted.keys().isdisjoint(tables(rest))
        assert query.stored == {}
    assert updating.late == closing.late
    assert suppressing.late == 0


def closing_row(one: Result, difference_ms: int) -> tuple[bytes, Change]:
    start, value = one.fields
    assert one.key is not None
    assert start is not None
    return one.key + b"@" + start, Change(0, 0, 0, one.at_us, value, b"%d" % (int(start) + difference_ms))


def unpaired(one: Result) -> tuple[bytes, int]:
    key, _, start = (one.key or b"").partition(b"@")
    return key, int(start)


@settings(max_examples=examples(60))
@given(differences, histories(), st.data())
def test_any_micro_batches_give_the_same_table(
    difference_ms: int, history: list[list[Event]], data: st.DataObject
) -> None:
    """At the same watermark, however records are divided."""
    events = [one for batch in history for one in batch]
    at_once, divided = Query(sliding(difference_ms)), Query(sliding(difference_ms))
    results, begin = list[Result](), 0
    while begin < len(events):
        end = data.draw(st.integers(begin + 1, len(events)))
        results += divided.run(5, rows_of(events[begin:end]))
        begin = end
    assert tables(at_once.run(5, rows_of(events))) == tables(results)
    # The slots may differ: a key stays in the one that is early enough.
    assert windows_in(at_once) == windows_in(divided)


def windows_in(query: Query) -> dict[bytes, bytes]:
    return {key: data[SLOT_BYTES:] for key, data in query.stored.items() if key[:1] == b"k"}


def test_the_example_of_the_proposal() -> None:
    """Records at 8, 9.2 and 12.4 seconds, windows of 10 seconds: those of KIP-450's picture, and a late one at 9."""
    query = Query(sliding(10_000))
    events = [Event(b"k", 18_000, "a"), Event(b"k", 19_200, "b"), Event(b"k", 22_400, "c")]
    assert tables(query.run(0, rows_of(events))) == {
        (b"k", 8_000): ["a"],
        (b"k", 9_200): ["a", "b"],
        (b"k", 12_400): ["a", "b", "c"],
        (b"k", 18_001): ["b", "c"],
        (b"k", 19_201): ["c"],
    }
    assert tables(query.run(0, rows_of([Event(b"k", 19_000, "d")]))) == {
        (b"k", 9_000): ["a", "d"],
        (b"k", 9_200): ["a", "b", "d"],
        (b"k", 12_400): ["a", "b", "c", "d"],
        (b"k", 18_001): ["b", "c", "d"],
        (b"k", 19_001): ["b", "c"],
    }


def test_state_is_bounded() -> None:
    """Ever new keys, and one that never ends: state holds what the last few windows need, and in the end nothing."""
    query, most = Query(sliding(50, is_final=True)), 0
    emitted = 0
    for number in range(400):
        at_ms = 1000 + number * 10
        rows = rows_of([Event(b"always", at_ms, "x"), Event(b"%d" % number, at_ms, "y")])
        emitted += len(query.run(max(0, at_ms - 30), rows))
        most = max(most, sum(map(len, query.stored.values())))
        assert len(query.timers) <= 3
    assert most < 4_000
    emitted += len(query.run(10**6))
    # One of each key; and of the one with many records, two for each but the last.
    assert emitted == 400 + 400 + 399
    assert (query.stored, query.timers) == ({}, set())


def test_only_keys_that_are_due_are_read() -> None:
    query = Query(sliding(1000, is_final=True))
    for number in range(200):
        query.run(number * 10, rows_of([Event(b"%d" % number, number * 10, "x")]))
    reads: list[bytes] = []

    def read(keys: list[bytes]) -> list[bytes | None]:
        reads.extend(keys)
        return [query.stored.get(key) for key in keys]

    due = [one for one in query.stored if one[:1] == b"k"]
    bucket = TimedBucket(query.step, 1991, read)
    assert [one.key for one in bucket.due()] == [b"199"]
    assert len(due) > 90
    assert len(reads) < 10


def test_a_key_is_in_one_slot_though_others_list_it() -> None:
    """A late record brings the key forward; the slot that it was in lists it for nothing."""
    query = Query(sliding(1000, is_final=True))
    query.run(0, rows_of([Event(b"k", 50_000, "x")]))
    query.run(0, rows_of([Event(b"k", 2_000, "y")]))
    listed = [parted(data) for key, data in query.stored.items() if key[:1] == b"s"]
    assert listed == [[b"k"], [b"k"]]
    query.run(49_999)
    assert [data for key, data in query.stored.items() if key[:1] == b"s"] == [joined([b"k"])]
    assert len(query.run(50_001)) == 1


def test_a_total_of_none_deletes_the_window() -> None:
    def until_stop(key: str, value: str, total: str) -> str | None:  # noqa: ARG001
        return None if value == "stop" else total + value

    step = SlidingStep(10, str, (until_stop,), Texts(), (Texts(),), Texts())
    query = Query(step)
    query.run(0, rows_of([Event(b"k", 20, "a"), Event(b"k", 25, "b")]))
    results = query.run(0, rows_of([Event(b"k", 24, "stop")]))
    assert [(fields, at_us) for _, at_us, fields in results] == [
        ((b"15", None), 24_000),
        ((b"21", None), 24_000),
        ((b"25", b"b"), 25_000),
    ]


def test_a_row_is_replaced_and_deleted_before_its_window_closes() -> None:
    query = Query(ClosingStep())

    def row(key: bytes, value: bytes | None, at_us: int) -> tuple[bytes, Change]:
        return key, Change(0, 0, at_us, at_us, value, b"100")

    assert query.run(50, [row(b"k", b"1", 1), row(b"k", b"2", 2), row(b"gone", b"1", 3)]) == []
    assert query.run(100, [row(b"gone", None, 4)]) == []
    assert query.run(101, [row(b"k", b"3", 5)]) == [Result(b"k", 2, (b"2",))]
    assert query.run(102, [row(b"k", b"4", 6), row(b"new", b"1", 7)]) == []
    assert (query.late, query.stored) == (3, {})


# The agenda.


@given(st.integers(0, 10**13), st.integers(0, 10**13), st.booleans())
def test_slots(due_ms: int, now_ms: int, is_exact: bool) -> None:
    slot = Slot.at(due_ms, now_ms, is_exact=is_exact)
    assert Slot.of(slot.data()) == slot
    width = 1 << slot.bits
    assert width == 1 or width * 8 <= due_ms - now_ms
    if is_exact:
        assert slot.begin_ms <= due_ms < slot.begin_ms + width
        assert slot.begin_ms >= min(now_ms, due_ms)
    else:
        assert slot.begin_ms - width < due_ms <= slot.begin_ms


def test_an_agenda_as_bytes() -> None:
    agenda = Agenda([Slot(0, 5), Slot(3, 1)])
    assert [agenda.next_timer_ms(0), agenda.next_timer_ms(0)] == [5, None]
    again = Agenda.of(agenda.data())
    assert again.data() == agenda.data()
    assert again.take_due(6) == [Slot(0, 5)]
    assert again.next_timer_ms(6) == 8
    assert again.take_due(9) == [Slot(3, 1)]
    assert again.data() is None
