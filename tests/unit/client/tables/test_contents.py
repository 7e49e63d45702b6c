"""The contents of a table against a dict, and the size that they report against what Python allocates."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.errors import ArgumentTypeError, TableTooLargeError
from ottla.client.tables import ordered_keys
from ottla.client.tables.contents import TableContents
from support.examples import examples

BIG = 1 << 30
KEYS = st.integers(0, 30)
BATCHES = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=3)), max_size=40)
LIMITS = st.none() | KEYS


@pytest.fixture(autouse=True)
def _early_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_keys, "MERGED_AT_LEAST", 5)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(BATCHES, LIMITS, LIMITS, st.booleans()), max_size=8))
def test_a_table_is_a_dict_whose_ranges_are_sorted(
    steps: list[tuple[list[tuple[int, bytes | None]], int, int, bool]],
) -> None:
    table, model = TableContents("t", BIG), dict[int, bytes]()
    for batch, start, stop, reverse in steps:
        table.apply([key for key, _ in batch], [value for _, value in batch])
        for key, value in batch:
            if value is None:
                model.pop(key, None)
            else:
                model[key] = value
        assert table.values == model == table.copy()
        expected = [
            (key, model[key])
            for key in sorted(model, reverse=reverse)
            if (start is None or key >= start) and (stop is None or key < stop)
        ]
        assert list(table.between(start, stop, reverse=reverse)) == expected


def test_the_size_is_what_python_allocates() -> None:
    keys = [b"key %d" % number for number in range(20_000)]
    values: list[bytes | None] = [b"value of some length %d" % number for number in range(20_000)]
    for count in (14_000, 20_000):  # a hash table that is nearly full, and one that has just grown
        tracemalloc.start()
        try:
            table = TableContents("t", BIG)
            table.apply(
                [bytes(bytearray(key)) for key in keys[:count]],
                [bytes(bytearray(one or b"")) for one in values[:count]],
            )
            allocated, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert 0.6 * table.size_in_bytes < allocated <= table.size_in_bytes


def test_replaced_and_deleted_values_give_their_memory_back() -> None:
    table = TableContents("t", BIG)
    table.apply(["a", "b"], [b"1", b"22"])
    table.apply(["a", "b", "b"], [b"longer", b"", None])
    only = TableContents("t", BIG)
    only.apply(["a"], [b"longer"])
    assert table.size_in_bytes == only.size_in_bytes
    table.apply(["a"], [None])
    assert table.size_in_bytes == 0


def test_a_table_that_is_too_large_says_so() -> None:
    table = TableContents("orders", 1000)
    for number in range(4):
        table.apply([number], [b"x" * 80])
    with pytest.raises(TableTooLargeError, match="topic 'orders' needs more than max_bytes=1000: 5 keys take"):
        table.apply([4], [b"x" * 80])


def test_records_without_a_key_are_counted() -> None:
    table = TableContents("t", BIG)
    assert table.apply([None, b"a", None], [b"1", b"2", None]) == 2
    assert table.values == {b"a": b"2"}


def test_a_range_sees_changes_behind_it_and_no_key_twice() -> None:
    table = TableContents("t", BIG)
    table.apply([1, 2, 3, 4], [b"1", b"2", b"3", b"4"])
    running = table.between(None, None, reverse=False)
    assert next(running) == (1, b"1")
    table.apply([3, 4, 2, 2], [b"new", None, None, b"back"])
    assert list(running) == [(2, b"back"), (3, b"new")]
    assert [key for key, _ in table.between(None, None, reverse=False)] == [1, 2, 3]


def test_keys_that_cannot_be_ordered() -> None:
    table = TableContents("t", BIG)
    table.apply([1, "a"], [b"", b""])
    with pytest.raises(ArgumentTypeError, match="the keys of topic 't' cannot be ordered"):
        table.between(None, None, reverse=False)
    assert table.values == {1: b"", "a": b""}
    table.apply(["a"], [None])
    assert list(table.between(None, None, reverse=False)) == [(1, b"")]
    with pytest.raises(ArgumentTypeError, match="not with the limits of this range"):
        table.between("a", None, reverse=False)
