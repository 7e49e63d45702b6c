"""The checker itself: it lets pass what is right, and nothing else."""

from __future__ import annotations

import pytest

from faults.client.traffic import check_partition

SENT: list[tuple[int, int | None]] = [(3, 0), (5, 1), (6, None), (9, -1)]
"""Two whose offsets are known, one that failed, and one acknowledged without its offset."""


def stored(*numbers: int) -> list[tuple[int, bytes]]:
    return [(offset, b"%d   " % number) for offset, number in enumerate(numbers)]


@pytest.mark.parametrize("numbers", [(3, 5, 9), (3, 5, 6, 9)])
def test_correct_histories_pass(numbers: tuple[int, ...]) -> None:
    """What failed may be there, or not."""
    check_partition(SENT, stored(*numbers), "here")


@pytest.mark.parametrize(
    ("numbers", "complaint"),
    [
        ((3, 5), "9 was acknowledged"),
        ((3, 5, 5, 9), "the same again"),
        ((3, 5, 9, 6), "comes what was sent before"),
        ((5, 9), "3 was acknowledged"),
        ((3, 4, 5, 9), "said to be at 1"),
        ((3, 5, 9, 10), "nobody sent"),
    ],
)
def test_what_is_wrong(numbers: tuple[int, ...], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_partition(SENT, stored(*numbers), "here")


def test_a_gap() -> None:
    with pytest.raises(AssertionError, match="gaps"):
        check_partition(SENT, [(0, b"3"), (1, b"5"), (3, b"9")], "here")
