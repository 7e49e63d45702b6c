"""The checker lets pass what is right, and nothing else."""

from __future__ import annotations

import pytest

from faults.client.chaos.checker import check_commits, check_everything_seen, check_tenure


def test_a_tenure_without_gaps_may_begin_anywhere() -> None:
    check_tenure((0, []), "a")
    check_tenure((0, [7, 8, 9]), "a")


@pytest.mark.parametrize("offsets", [[1, 3], [1, 1], [2, 1], [1, 2, 4]])
def test_a_member_that_skips_repeats_or_goes_back(offsets: list[int]) -> None:
    with pytest.raises(AssertionError, match="partition 5: offset"):
        check_tenure((5, offsets), "a")


def test_records_may_be_seen_again_but_not_by_nobody() -> None:
    check_everything_seen([(0, [0, 1]), (0, [1, 2])], {0: 3, 1: 0})
    with pytest.raises(AssertionError, match=r"nobody saw 1 of 3 records, such as \[1\]"):
        check_everything_seen([(0, [0]), (0, [2])], {0: 3})


def test_commits_never_move_back() -> None:
    check_commits([{}, {0: 3}, {0: 3, 1: 9}, {0: 5}])
    with pytest.raises(AssertionError, match="3 was committed, and then 2"):
        check_commits([{0: 3}, {1: 4}, {0: 2}])
