"""The checker itself: it lets pass what is right, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from faults.spark.history import Batch, Claim, History, Interruption, Place, check, repeated

SENT = {0: [b"a", b"b", b"c", b"d", b"e", b"f"], 1: [b"u", b"v", b"w", b"x"]}
BATCHES = [
    Batch(0, {0: 0, 1: 0}, {0: 3, 1: 2}, 10.0, 20.0),
    Batch(1, {0: 3, 1: 2}, {0: 6, 1: 4}, 21.0, 30.0),
]
OF_A_TASK = Interruption(15.0, 15.0, is_of_all=False)
OF_ALL = Interruption(14.0, 16.0, is_of_all=True)


def history(first: str = "abcdef", second: str = "uvwx", *interruptions: Interruption) -> History:
    """Letters stand for records, in the order in which they were written."""
    written = {0: first.encode(), 1: second.encode()}
    output = {
        index: [(max(0, b"".join(SENT[index]).find(letter)), bytes([letter])) for letter in text]
        for index, text in written.items()
    }
    return History(SENT, output, BATCHES, interruptions)


def complaint(wrong: History) -> str:
    with pytest.raises(AssertionError) as caught:
        check(wrong)
    return str(caught.value)


def test_each_once() -> None:
    check(history())
    assert repeated(history()) == 0


@pytest.mark.parametrize(
    ("first", "second", "interruptions"),
    [
        ("ababcdef", "uvwx", [OF_A_TASK]),
        ("abcabcdef", "uvwx", [OF_A_TASK]),
        ("ababcdef", "uuvwx", [OF_A_TASK, OF_A_TASK]),
        ("abaabcdef", "uvwx", [OF_A_TASK, OF_A_TASK]),
        ("ababcdef", "uuvwx", [OF_ALL]),
        ("abaabcdef", "uuvwx", [OF_ALL, OF_A_TASK]),
        # What the task that was given up had sent comes in between, and late.
        ("aabbccdef", "uvwx", [OF_A_TASK]),
        ("aabcdbef", "uvwx", [OF_A_TASK]),
    ],
)
def test_again_what_was_interrupted(first: str, second: str, interruptions: list[Interruption]) -> None:
    check(history(first, second, *interruptions))
    assert repeated(history(first, second)) == len(first + second) - len("abcdefuvwx")


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ("abcde", "from offset 5 of 6 on nothing was written"),
        ("abdef", "is from offset 3, and 2 has not been written before it"),
        ("abdcef", "is from offset 3, and 2 has not been written before it"),
        ("abcdzef", "is b'z', and offset 0 was b'a'"),
        ("", "from offset 0 of 6 on nothing was written"),
    ],
)
def test_lost_changed_or_out_of_order(first: str, words: str) -> None:
    """Whatever was interrupted."""
    assert words in complaint(history(first, "uvwx", OF_ALL, OF_A_TASK))


def test_invented() -> None:
    wrong = history()
    wrong = replace(wrong, output={**wrong.output, 1: [*wrong.output[1], (4, b"y")]})
    assert "from offset 4, which was never sent" in complaint(wrong)


@pytest.mark.parametrize(
    ("first", "second", "interruptions"),
    [
        ("ababcdef", "uvwx", []),
        # Another batch was interrupted, not this one.
        ("abcdedef", "uvwx", [OF_ALL]),
        ("abcdedef", "uvwx", [OF_A_TASK]),
        # One task was, and two have written again; or one twice.
        ("ababcdef", "uuvwx", [OF_A_TASK]),
        ("abaabcdef", "uvwx", [OF_A_TASK]),
        ("abaabcdef", "uvwx", [OF_ALL]),
        ("abcdef", "uvuuvwx", [OF_ALL]),
    ],
)
def test_again_without_a_reason(first: str, second: str, interruptions: list[Interruption]) -> None:
    assert "wrote again" in complaint(history(first, second, *interruptions))


@pytest.mark.parametrize("first", ["abbcdef", "abcbcdef", "abcdefef"])
def test_again_but_not_from_the_beginning(first: str) -> None:
    long = Interruption(0.0, 100.0, is_of_all=True)
    assert "follows on nothing" in complaint(history(first, "uvwx", long, long))


@pytest.mark.parametrize(
    ("done", "written", "words"),
    [
        ({0: 0, 1: 0}, {0: 0, 1: 0}, None),
        ({0: 3, 1: 2}, {0: 3, 1: 2}, None),
        ({0: 3, 1: 2}, {0: 5, 1: 4}, None),
        ({0: 3, 1: 2}, {0: 2, 1: 2}, "partition 0 was done up to offset 3, when 2 was reached"),
        ({0: 3, 1: 4}, {0: 6, 1: 3}, "partition 1 was done up to offset 4, when 3 was reached"),
        ({1: 1}, {0: 0, 1: 0}, "partition 1 was done up to offset 1, when 0 was reached"),
    ],
)
def test_claims(done: dict[int, int], written: dict[int, int], words: str | None) -> None:
    told = replace(history(), claims=[Claim("somebody", done, written)])
    if words is None:
        check(told)
    else:
        assert f"somebody said that {words}" in complaint(told)


def test_a_claim_is_not_held_by_what_was_written_twice() -> None:
    told = replace(history("ababcdef", "uvwx", OF_A_TASK), claims=[Claim("somebody", {0: 3}, {0: 4})])
    assert "done up to offset 3, when 2 was reached" in complaint(told)


def test_a_checkpoint_with_gaps() -> None:
    right = history()
    first, second = BATCHES
    assert "behind batch -1 of the checkpoint comes 1" in complaint(replace(right, batches=[second]))
    assert "the checkpoint ends at" in complaint(replace(right, batches=[first]))
    assert "batch 1 was not committed" in complaint(replace(right, batches=[first, replace(second, committed_s=None)]))
    assert "batch 1 begins at" in complaint(replace(right, batches=[first, replace(second, starts={0: 2, 1: 2})]))


@pytest.mark.parametrize(
    ("places", "is_right"),
    [
        ([Place(0, 2, 3), Place(1, 0, 2)], True),
        ([Place(0, 2, 1), Place(0, 3, 2), Place(1, 0, 2)], True),
        ([Place(0, 0, 3), Place(1, 0, 2)], False),
        ([Place(0, 2, 2), Place(1, 0, 2)], False),
        ([Place(0, 2, 3)], False),
        ([Place(0, 2, 4), Place(1, 0, 2)], False),
    ],
)
def test_places_that_the_sink_tells(places: list[Place], *, is_right: bool) -> None:
    told = replace(history("ababcdef", "uvwx", OF_A_TASK), places={0: places})
    if is_right:
        check(told)
    else:
        assert "batch 0 is said to be elsewhere" in complaint(told)
