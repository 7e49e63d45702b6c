"""The operators against models in plain Python: random changes, late ones, and any division into micro-batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import permutations
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.spark.streams.cores.aggregates import ADD_SIDE, SUBTRACT_SIDE, AggregateStep, RegroupStep
from ottla.spark.streams.cores.changes import LANE_SHIFT, Change, Result, in_order, joined, parted, result_position
from ottla.spark.streams.cores.foreign import SUBSCRIPTIONS, LeftStep, RightStep
from ottla.spark.streams.cores.joins import LEFT_SIDE, RIGHT_SIDE, How, LatestStep, StreamTableStep, TablesStep
from ottla.spark.streams.cores.steps import State, Step
from support.examples import examples

LEFT, RIGHT = "left", "right"


class Event(NamedTuple):
    """A record of one of two topics, in the order in which they are written."""

    topic: str
    key: bytes
    value: bytes | None
    at_us: int


keys = st.sampled_from([b"a", b"b", b"c"])
values = st.one_of(st.none(), st.sampled_from([b"", b"v", b"w", b"x" * 300]))
events = st.builds(Event, st.sampled_from([LEFT, RIGHT]), keys, values, st.integers(0, 9))
batches = st.lists(st.lists(events, max_size=12), max_size=6)


class Runner:
    """A step with its state, as a query runs it."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.stored: dict[bytes, bytes] = {}

    def run(self, rows: Iterable[tuple[bytes | None, Change]]) -> list[Result]:
        by_key: dict[bytes | None, list[Change]] = {}
        for key, change in rows:
            by_key.setdefault(key, []).append(change)
        ordered = {key: in_order(changes) for key, changes in by_key.items()}
        state = State()
        state.load((one for pair in ordered.items() for one in self.step.state_keys(*pair)), self._read)
        more = [one for key, changes in ordered.items() for one in self.step.more_state_keys(key, changes, state)]
        state.load(more, self._read)
        results = [result for key, changes in ordered.items() for result in self.step.apply(key, changes, state)]
        for key, data in state.changes().items():
            if data is None:
                del self.stored[key]  # nothing is removed that is not there
            else:
                self.stored[key] = data
        return results

    def _read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.stored.get(key) for key in keys]


def rows_of(batch: Sequence[Event], left_side: int, right_side: int) -> list[tuple[bytes | None, Change]]:
    """Positions grow within a topic. The shuffle keeps no order: the last is first."""
    rows: list[tuple[bytes | None, Change]] = [
        (one.key, Change(left_side if one.topic == LEFT else right_side, 0, position, one.at_us, one.value))
        for position, one in enumerate(batch)
    ]
    return rows[::-1]


def updated(table: dict[bytes, object], results: Iterable[Result]) -> None:
    for key, _, fields in results:
        assert key is not None
        if all(field is None for field in fields):
            del table[key]  # no tombstone without a row
        else:
            table[key] = fields


def tables_of(history: Iterable[Event]) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    sides: dict[str, dict[bytes, bytes]] = {LEFT: {}, RIGHT: {}}
    for one in history:
        if one.value is None:
            sides[one.topic].pop(one.key, None)
        else:
            sides[one.topic][one.key] = one.value
    return sides[LEFT], sides[RIGHT]


@settings(max_examples=examples(40))
@given(batches)
def test_latest(history: list[list[Event]]) -> None:
    runner, table = Runner(LatestStep()), dict[bytes, object]()
    for number, batch in enumerate(history):
        one_topic = [one._replace(topic=LEFT) for one in batch]
        updated(table, runner.run(rows_of(one_topic, 0, 1)))
        left, _ = tables_of(one._replace(topic=LEFT) for some in history[: number + 1] for one in some)
        assert table == {key: (value,) for key, value in left.items()}
        assert runner.stored.keys() == left.keys()


@pytest.mark.parametrize("how", ["inner", "left", "outer"])
@settings(max_examples=examples(40))
@given(batches)
def test_two_tables(how: How, history: list[list[Event]]) -> None:
    runner, table = Runner(TablesStep(how)), dict[bytes, object]()
    for number, batch in enumerate(history):
        updated(table, runner.run(rows_of(batch, LEFT_SIDE, RIGHT_SIDE)))
        left, right = tables_of(one for some in history[: number + 1] for one in some)
        wanted = {"inner": left.keys() & right.keys(), "left": left.keys(), "outer": left.keys() | right.keys()}[how]
        assert table == {key: (left.get(key), right.get(key)) for key in wanted}
        assert runner.stored.keys() == left.keys() | right.keys()


def in_time(batch: Sequence[Event]) -> list[Event]:
    """Two sequences, merged by the timestamps of their heads; the table (right) first."""
    stream = [one for one in batch if one.topic == LEFT]
    table = [one for one in batch if one.topic == RIGHT]
    merged = []
    while stream or table:
        is_table = bool(table) and (not stream or table[0].at_us <= stream[0].at_us)
        merged.append((table if is_table else stream).pop(0))
    return merged


@pytest.mark.parametrize("how", ["inner", "left"])
@settings(max_examples=examples(40))
@given(batches)
def test_a_stream_and_a_table(how: How, history: list[list[Event]]) -> None:
    runner, table = Runner(StreamTableStep(how)), dict[bytes, bytes | None]()
    for batch in history:
        expected: list[Result] = []
        for key in dict.fromkeys(one.key for one in batch):
            for one in in_time([other for other in batch if other.key == key]):
                if one.topic == RIGHT:
                    table[key] = one.value
                elif one.value is not None and (table.get(key) is not None or how == "left"):
                    expected.append(Result(key, one.at_us, (one.value, table.get(key))))
        results = runner.run(rows_of(batch, 1, 0))
        for key in (b"a", b"b", b"c"):  # in order
            assert [one for one in results if one.key == key] == [one for one in expected if one.key == key]


def test_a_stream_record_without_a_key_matches_nothing() -> None:
    rows = [(None, Change(1, 0, 0, 5, b"v"))]
    assert Runner(StreamTableStep("left")).run(rows) == [Result(None, 5, (b"v", None))]
    assert Runner(StreamTableStep("inner")).run(rows) == []


# Foreign keys.

many_keys = st.integers(0, 400).map(lambda number: b"%d" % number)
foreign_keys = st.one_of(st.none(), st.sampled_from([b"a", b"b", b"c"]))
left_rows = st.tuples(many_keys | keys, st.none() | st.sampled_from([b"", b"v", b"w"]), foreign_keys, st.integers(0, 9))
right_rows = st.tuples(keys, values, st.integers(0, 9))
crowds = st.tuples(st.integers(0, 200), foreign_keys)
"""So many left rows that refer to one right row."""


class ForeignJoin:
    """Both steps, and the model: the rows of both tables."""

    def __init__(self, how: How) -> None:
        self.how = how
        self.steps = Runner(LeftStep(how)), Runner(RightStep(how))
        self.left: dict[bytes, tuple[bytes, bytes | None]] = {}
        self.right: dict[bytes, bytes] = {}
        self.table: dict[bytes, tuple[bytes | None, bytes | None]] = {}

    def run(
        self,
        lefts: Sequence[tuple[bytes, bytes | None, bytes | None, int]],
        rights: Sequence[tuple[bytes, bytes | None, int]],
    ) -> None:
        rows: list[tuple[bytes | None, Change]] = []
        for position, (key, value, foreign_key, at_us) in enumerate(lefts):
            rows.append((key, Change(LEFT_SIDE, 0, position, at_us, value, foreign_key)))
            self.left.pop(key, None)
            if value is not None:
                self.left[key] = value, foreign_key
        messages = self.steps[0].run(rows)
        second = [
            (one.key, Change(SUBSCRIPTIONS, 0, number, one.at_us, one.fields[1], one.fields[0]))
            for number, one in enumerate(messages)
        ]
        for position, (key, value, at_us) in enumerate(rights):
            second.append((key, Change(RIGHT_SIDE, 1, position, at_us, value)))
            self.right.pop(key, None)
            if value is not None:
                self.right[key] = value
        results = self.steps[1].run(second)
        assert len({one.key for one in results}) == len(results)  # so their order does not matter
        for one in results:
            assert one.key is not None
            self.table.pop(one.key, None)
            if one.fields[0] is not None:
                self.table[one.key] = (one.fields[0], one.fields[1])

    def expected(self) -> dict[bytes, tuple[bytes | None, bytes | None]]:
        found = {key: (value, self.right.get(foreign or b"-")) for key, (value, foreign) in self.left.items()}
        return {key: row for key, row in found.items() if self.how == "left" or row[1] is not None}


@pytest.mark.parametrize("how", ["inner", "left"])
@settings(max_examples=examples(30))
@given(st.lists(st.tuples(st.lists(left_rows, max_size=8), st.lists(right_rows, max_size=4), crowds), max_size=6))
def test_a_foreign_key(how: How, history: list[tuple[list[tuple[bytes, bytes | None, bytes | None, int]], list[tuple[bytes, bytes | None, int]], tuple[int, bytes | None]]]) -> None:  # fmt: skip  # noqa: E501
    join = ForeignJoin(how)
    for lefts, rights, (count, foreign_key) in history:
        crowd = [(b"%d" % number, b"crowd", foreign_key, 3) for number in range(count)]
        join.run([*lefts, *crowd], rights)
        assert join.table == join.expected()
    join.run([(key, None, None, 9) for key in join.left], [(key, None, 9) for key in join.right])
    assert join.table == {}
    assert [runner.stored for runner in join.steps] == [{}, {}]


def test_a_subscription_among_many_touches_one_chunk() -> None:
    join = ForeignJoin("inner")
    join.run([(b"%d" % number, b"v", b"a", 0) for number in range(1000)], [(b"a", b"r", 0)])
    assert len(join.table) == 1000
    before = dict(join.steps[1].stored)
    join.run([(b"1", b"w", b"a", 1)], [])
    changed = [key for key, data in join.steps[1].stored.items() if before[key] != data]
    assert len(changed) == 1
    assert len(join.steps[1].stored[changed[0]]) < 100 * 64


# Aggregations.


class Texts:
    """Values that are texts."""

    def loads(self, data: bytes | None) -> str | None:
        return None if data is None else data.decode()

    def dumps(self, value: str | None) -> bytes | None:
        return None if value is None else value.encode()


def with_text(key: str, value: str, total: str) -> str | None:
    """The value w deletes the total."""
    return None if value == "w" else total + key + value


def with_length(key: str, value: str, total: str) -> str:
    return f"{total}{key}{len(value)}"


def with_letters(group: str, value: str, total: str) -> str:  # noqa: ARG001
    return "".join(sorted(total + value))


def without_letters(group: str, value: str, total: str) -> str:  # noqa: ARG001
    for letter in value:
        assert letter in total
        total = total.replace(letter, "", 1)
    return total


@settings(max_examples=examples(40))
@given(batches)
def test_an_aggregation_of_two_streams(history: list[list[Event]]) -> None:
    step = AggregateStep(str, (with_length, with_text), Texts(), (Texts(), Texts()), Texts())
    runner, table, totals = Runner(step), dict[bytes, object](), dict[bytes, str]()
    for batch in history:
        for one in (one for key in (b"a", b"b", b"c") for one in in_time([some for some in batch if some.key == key])):
            if one.value is not None:
                add = with_length if one.topic == RIGHT else with_text
                total = add(one.key.decode(), one.value.decode(), totals.pop(one.key, ""))
                if total is not None:
                    totals[one.key] = total
        updated(table, runner.run(rows_of(batch, 1, 0)))
        assert table == {key: (total.encode(),) for key, total in totals.items()}
        assert runner.stored.keys() == totals.keys()


@settings(max_examples=examples(40))
@given(st.lists(st.lists(left_rows, max_size=12), max_size=6))
def test_an_aggregation_of_a_table(history: list[list[tuple[bytes, bytes | None, bytes | None, int]]]) -> None:
    totals = AggregateStep(str, (without_letters, with_letters), Texts(), (Texts(), Texts()), Texts())
    steps = Runner(RegroupStep()), Runner(totals)
    rows: dict[bytes, tuple[bytes, bytes]] = {}
    table: dict[bytes | None, bytes | None] = {}
    for batch in history:
        changes: list[tuple[bytes | None, Change]] = []
        for position, (key, value, group, at_us) in enumerate(batch):
            changes.append((key, Change(0, 0, position, at_us, value, group)))
            rows.pop(key, None)
            if value is not None and group is not None:
                rows[key] = value, group
        moved: list[tuple[bytes | None, Change]] = []
        for number, one in enumerate(steps[0].run(changes)):
            leaving, joining = one.fields
            side, value = (ADD_SIDE, joining) if leaving is None else (SUBTRACT_SIDE, leaving)
            moved.append((one.key, Change(side, 0, number, one.at_us, value)))
        table |= {result.key: result.fields[0] for result in steps[1].run(moved)}
        members: dict[bytes | None, bytes] = dict.fromkeys(table, b"")
        for value, group in rows.values():
            members[group] = bytes(sorted(members[group] + value))
        assert table == members
        assert steps[0].stored.keys() == rows.keys()


# Bytes and order.


@given(st.lists(st.none() | st.binary(max_size=9)))
def test_fields_as_bytes(fields: list[bytes | None]) -> None:
    assert parted(joined(fields)) == fields


def test_order_of_lanes() -> None:
    rows = [Change(1, 0, 5, 10, b"1"), Change(1, 0, 7, 3, b"2"), Change(1, 0, 8, 10, b"3")]
    table = [Change(0, 0, 1, 3, b"t"), Change(0, 0, 2, 10, b"u"), Change(0, 0, 3, 11, b"w")]
    merged = [one.value for one in in_order([*rows[::-1], *table[::-1]])]
    assert merged == [b"t", b"u", b"1", b"2", b"3", b"w"]


def test_results_of_one_key_are_a_lane() -> None:
    """Their timestamps may go back, but those of other keys are merged by time, in whatever order they were made."""
    made = [(b"a", 5), (b"a", 1), (b"a", 9), (b"b", 2), (b"b", 7)]
    rows = [
        Change(0, (position := result_position(key, number)) >> LANE_SHIFT, position, at, key + b"%d" % at)
        for number, (key, at) in enumerate(made)
    ]
    assert all(0 <= row.position < 1 << 63 for row in rows)
    for shuffled in permutations(rows):
        assert [one.value for one in in_order(shuffled)] == [b"b2", b"a5", b"a1", b"b7", b"a9"]
