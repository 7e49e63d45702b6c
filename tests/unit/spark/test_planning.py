from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.ids import TopicPartition
from ottla.spark.offsets import EARLIEST_OFFSET, LATEST_OFFSET
from ottla.spark.planning import admit, bound_late, is_enough, ranges_between, split
from ottla.spark.ranges import OffsetRange

PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 5))
SIZES = st.one_of(st.integers(0, 20), st.integers(0, 10**6), st.integers(0, 2**62))
A0, A1, A2 = (TopicPartition("a", index) for index in range(3))


@st.composite
def spans(draw: st.DrawFn) -> dict[TopicPartition, tuple[int, int]]:
    """A start and a size for some partitions."""
    return draw(st.dictionaries(PARTITIONS, st.tuples(st.integers(0, 10**6), SIZES), min_size=1, max_size=8))


def ranges_of(given_spans: dict[TopicPartition, tuple[int, int]]) -> list[OffsetRange]:
    starts = {partition: start for partition, (start, _) in given_spans.items()}
    return ranges_between(starts, {partition: start + size for partition, (start, size) in given_spans.items()})


# Ranges.


def test_partitions_without_news_are_left_out() -> None:
    starts = {A0: 5, A1: 5, A2: 5}
    assert ranges_between(starts, {A0: 5, A1: 9, A2: 3}) == [OffsetRange("a", 1, 5, 9)]


def test_partitions_that_only_one_side_names_are_left_out() -> None:
    assert ranges_between({A0: 0, A1: 0}, {A1: 1, A2: 1}) == [OffsetRange("a", 1, 0, 1)]


# Pieces.


@settings(deadline=None)
@given(spans(), st.none() | st.integers(1, 40), st.none() | st.integers(1, 10**6))
def test_pieces_cover_all_offsets_once(
    given_spans: dict[TopicPartition, tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    ranges = ranges_of({p: (start, min(size, 10**7)) for p, (start, size) in given_spans.items()})
    if max_records is not None and sum(map(len, ranges)) // max_records > 2000:
        max_records = sum(map(len, ranges)) // 2000  # not millions of pieces
    pieces = split(ranges, min_partitions, max_records)
    assert all(len(piece) > 0 for piece in pieces)
    for one in ranges:
        its_own = [piece for piece in pieces if (piece.topic, piece.partition) == (one.topic, one.partition)]
        assert its_own[0].start == one.start
        assert its_own[-1].until == one.until
        assert all(before.until == after.start for before, after in pairwise(its_own))
    assert {(piece.topic, piece.partition) for piece in pieces} == {(one.topic, one.partition) for one in ranges}


@settings(deadline=None)
@given(spans(), st.integers(1, 1000))
def test_no_piece_is_larger_than_wanted(given_spans: dict[TopicPartition, tuple[int, int]], max_records: int) -> None:
    ranges = ranges_of({p: (start, min(size, 2000)) for p, (start, size) in given_spans.items()})
    assert all(len(piece) <= max_records for piece in split(ranges, None, max_records))


@settings(deadline=None)
@given(spans(), st.integers(1, 50))
def test_about_as_many_pieces_as_wanted(
    given_spans: dict[TopicPartition, tuple[int, int]], min_partitions: int
) -> None:
    ranges = ranges_of(given_spans)
    pieces = split(ranges, min_partitions)
    offsets = sum(map(len, ranges))
    assert len(pieces) >= len(ranges)
    # Rounding costs each range half a piece at most, one way or the other.
    assert len(pieces) <= max(len(ranges), min_partitions + len(ranges))
    assert len(pieces) >= min(min_partitions, offsets) - len(ranges) or offsets < 2 * min_partitions


def test_nothing_is_split_unless_wanted() -> None:
    ranges = [OffsetRange("a", 0, 0, 10**9), OffsetRange("a", 1, 0, 1)]
    assert split(ranges) == ranges
    assert split(ranges, min_partitions=2) == ranges


def test_large_ranges_are_split_and_small_ones_are_not() -> None:
    pieces = split([OffsetRange("a", 0, 100, 1000), OffsetRange("a", 1, 0, 3)], min_partitions=4)
    assert pieces == [
        OffsetRange("a", 0, 100, 400),
        OffsetRange("a", 0, 400, 700),
        OffsetRange("a", 0, 700, 1000),
        OffsetRange("a", 1, 0, 3),
    ]


def test_pieces_of_a_limit_are_split_again_for_more_tasks() -> None:
    pieces = split([OffsetRange("a", 0, 0, 100)], min_partitions=8, max_records=50)
    assert [len(piece) for piece in pieces] == [12, 13, 12, 13, 12, 13, 12, 13]


def test_a_range_of_two_offsets_makes_two_pieces_at_most() -> None:
    assert split([OffsetRange("a", 0, 7, 9)], min_partitions=10) == [
        OffsetRange("a", 0, 7, 8),
        OffsetRange("a", 0, 8, 9),
    ]


# Ends that are found out later.


def test_ends_given_by_name_are_bound_late() -> None:
    pieces = [OffsetRange("a", 0, 3, 5), OffsetRange("a", 0, 5, 9), OffsetRange("a", 1, 2, 4)]
    starts = {A0: EARLIEST_OFFSET, A1: 2}
    assert bound_late(pieces, starts, {A0: LATEST_OFFSET, A1: 4}) == [
        OffsetRange("a", 0, EARLIEST_OFFSET, 5),
        OffsetRange("a", 0, 5, LATEST_OFFSET),
        OffsetRange("a", 1, 2, 4),
    ]


def test_a_partition_that_holds_nothing_yet_may_hold_something_later() -> None:
    late = bound_late([], {A0: EARLIEST_OFFSET, A1: 4, A2: 0}, {A0: LATEST_OFFSET, A1: LATEST_OFFSET, A2: 0})
    assert late == [OffsetRange("a", 0, EARLIEST_OFFSET, LATEST_OFFSET), OffsetRange("a", 1, 4, LATEST_OFFSET)]


def test_what_begins_at_the_end_holds_nothing() -> None:
    assert bound_late([], {A0: LATEST_OFFSET}, {A0: LATEST_OFFSET}) == []


# How much at a time.


@settings(deadline=None)
@given(spans(), st.integers(1, 10**7))
def test_about_as_much_is_admitted_as_the_limit_says(
    given_spans: dict[TopicPartition, tuple[int, int]], most: int
) -> None:
    starts = {partition: start for partition, (start, _) in given_spans.items()}
    ends = {partition: start + size for partition, (start, size) in given_spans.items()}
    admitted = admit(starts, ends, most)
    total = sum(ends.values()) - sum(starts.values())
    taken = sum(admitted.values()) - sum(starts.values())
    assert admitted.keys() == ends.keys()
    if total <= most:
        assert admitted == ends
    for partition, end in admitted.items():
        size, got = ends[partition] - starts[partition], end - starts[partition]
        assert 0 <= got <= size
        if size:
            assert got >= 1  # nobody starves
        if total > most and got > 1:
            assert abs(got * total - most * size) <= total  # in proportion, but for less than one offset
    waiting = sum(1 for partition in ends if ends[partition] > starts[partition])
    assert min(total, most) - waiting <= taken <= most + waiting


@settings(deadline=None)
@given(spans(), st.integers(1, 10**6))
def test_batch_by_batch_everything_is_read(given_spans: dict[TopicPartition, tuple[int, int]], most: int) -> None:
    position = {partition: start for partition, (start, _) in given_spans.items()}
    ends = {partition: start + min(size, 20 * most) for partition, (start, size) in given_spans.items()}
    for _ in range(20 * len(ends) * 20):
        if position == ends:
            return
        position = admit(position, ends, most)
    pytest.fail("the end was not reached")


def test_a_partition_that_went_back_is_not_counted() -> None:
    assert admit({A0: 100, A1: 0}, {A0: 10, A1: 50}, 5) == {A0: 10, A1: 5}


def test_enough_counts_new_partitions_from_their_beginning() -> None:
    assert is_enough({A0: 5}, {A0: 8, A1: 2}, 5)
    assert not is_enough({A0: 5}, {A0: 8, A1: 2}, 6)
