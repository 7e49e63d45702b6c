"""What happened to a job from topic to topic; and, of any such history, what must be true.

The job is Spark's, and its sink writes at least once. Every record that was sent is in the output, in the partition it
came from; nothing else is. Records come first in the order in which they were sent. They come again only where a
micro-batch, or one of its tasks, was interrupted, and then from the beginning of its range on. And nobody said that
more was done than had been written by then: neither the checkpoint nor the group that shows progress.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

_SLACK_S = 0.1
"""Files are dated by a clock that ticks less often than ours."""

Offsets = Mapping[int, int]
"""By partition."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch, as the checkpoint has it."""

    number: int
    starts: Offsets
    ends: Offsets
    planned_s: float
    committed_s: float | None
    """None: it was not, or not yet."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """Something that had work done again: of one task, or of all that was under way."""

    since_s: float
    until_s: float
    is_of_all: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """That the input up to these offsets was done with, when the output's partitions had ended there or before."""

    who: str
    done: Offsets
    written: Offsets


@dataclass(frozen=True, slots=True)
class Place:
    """Where the sink says that rows of a batch are in the output."""

    partition: int
    base_offset: int
    records: int


@dataclass(frozen=True, slots=True)
class History:
    sent: Mapping[int, Sequence[bytes]]
    """By partition: what was sent, offset by offset."""
    output: Mapping[int, Sequence[tuple[int, bytes]]]
    """By partition: what was written, and at which offset it had been sent."""
    batches: Sequence[Batch]
    interruptions: Sequence[Interruption] = ()
    claims: Sequence[Claim] = ()
    places: Mapping[int, Sequence[Place]] = field(default_factory=dict)
    """By the number of the batch, of those that are known."""


def check(history: History) -> None:
    """Raises an AssertionError that says what is wrong."""
    _check_batches(history)
    for partition, written in history.output.items():
        _check_content(partition, history.sent[partition], written)
    reached = {partition: _reached(written) for partition, written in history.output.items()}
    for claim in history.claims:
        _check_claim(claim, reached)
    again: dict[int, list[int]] = {}
    for partition, written in history.output.items():
        for number, runs in _count_runs(partition, written, history.batches).items():
            again.setdefault(number, []).append(runs - 1)
    for batch in history.batches:
        _check_repeats(batch, again.get(batch.number, []), history.interruptions)
        if batch.number in history.places:
            _check_places(batch, history.places[batch.number], history.output)


def repeated(history: History) -> int:
    """How many records of the output had been there before."""
    return sum(len(written) - len({offset for offset, _ in written}) for written in history.output.values())


def _check_batches(history: History) -> None:
    """They follow each other without gaps, from the first record to the last, and each was committed."""
    position: Offsets = dict.fromkeys(history.sent, 0)
    for number, batch in enumerate(history.batches):
        assert batch.number == number, f"behind batch {number - 1} of the checkpoint comes {batch.number}"
        assert batch.starts == position, f"batch {number} begins at {batch.starts}, not at {position}"
        assert batch.committed_s is not None, f"batch {number} was not committed"
        position = batch.ends
    ends = {partition: len(records) for partition, records in history.sent.items()}
    assert position == ends, f"the checkpoint ends at {position}, what was sent at {ends}"


def _check_content(partition: int, sent: Sequence[bytes], written: Sequence[tuple[int, bytes]]) -> None:
    reached = 0
    for place, (offset, value) in enumerate(written):
        where = f"offset {place} of output partition {partition}"
        assert 0 <= offset < len(sent), f"{where} is said to be from offset {offset}, which was never sent"
        assert value == sent[offset], f"{where} is {value!r}, and offset {offset} was {sent[offset]!r}"
        assert offset <= reached, f"{where} is from offset {offset}, and {reached} has not been written before it"
        reached = max(reached, offset + 1)
    assert reached == len(sent), f"partition {partition}: from offset {reached} of {len(sent)} on nothing was written"


def _reached(written: Sequence[tuple[int, bytes]]) -> list[int]:
    """Up to which offset all were written, before each place of the output and behind the last. First occurrences are
    in order, so that the highest tells of all before it."""
    return list(accumulate((offset + 1 for offset, _ in written), max, initial=0))


def _check_claim(claim: Claim, reached: Mapping[int, Sequence[int]]) -> None:
    for partition, done in claim.done.items():
        by_then = reached[partition][claim.written[partition]]
        assert done <= by_then, (
            f"{claim.who} said that partition {partition} was done up to offset {done}, when {by_then} was reached"
        )


def _count_runs(partition: int, written: Sequence[tuple[int, bytes]], batches: Sequence[Batch]) -> dict[int, int]:
    """How often each batch's range was begun. Each time goes on from its beginning, in order, as far as it comes; what
    was sent by a task that was given up may arrive among what the next one sends."""
    ends = [batch.ends[partition] for batch in batches]
    begun: dict[int, int] = {}
    under_way: dict[int, int] = {}
    """How many runs have this offset next."""
    for place, (offset, _) in enumerate(written):
        batch = batches[bisect_right(ends, offset)]
        if under_way.get(offset):
            under_way[offset] -= 1
        else:
            assert offset == batch.starts[partition], (
                f"offset {place} of output partition {partition} is from offset {offset}, in the midst of batch"
                f" {batch.number}, and follows on nothing"
            )
            begun[batch.number] = begun.get(batch.number, 0) + 1
        if offset + 1 < ends[batch.number]:
            under_way[offset + 1] = under_way.get(offset + 1, 0) + 1
    return begun


def _check_repeats(batch: Batch, again: Sequence[int], interruptions: Sequence[Interruption]) -> None:
    assert batch.committed_s is not None
    since_s, until_s = batch.planned_s - _SLACK_S, batch.committed_s + _SLACK_S
    during = [one for one in interruptions if one.since_s <= until_s and one.until_s >= since_s]
    of_all = sum(one.is_of_all for one in during)
    of_one = len(during) - of_all
    beyond = sum(max(0, times - of_all) for times in again)
    assert beyond <= of_one, (
        f"tasks of batch {batch.number} wrote again {sum(again)} times, by partition {list(again)}: it was interrupted"
        f" {of_all} times as a whole, and one of its tasks {of_one} times"
    )


def _check_places(batch: Batch, places: Sequence[Place], output: Mapping[int, Sequence[tuple[int, bytes]]]) -> None:
    """Where the sink says what it says, there is the batch: each record once, in order."""
    for partition, end in batch.ends.items():
        told = [
            offset
            for one in places
            if one.partition == partition
            for offset, _ in output[partition][one.base_offset : one.base_offset + one.records]
        ]
        assert told == list(range(batch.starts[partition], end)), (
            f"batch {batch.number} is said to be elsewhere in partition {partition} than it is: there is {told[:5]}"
        )
