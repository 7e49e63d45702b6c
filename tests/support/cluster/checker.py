"""What must be true of a cluster's records after any faults: judges without I/O, over what clients and disks told.

A record is a number that a producer counts up, whatever partition it goes to. What became of it is one of:

| outcome | meaning | afterwards the record |
| --- | --- | --- |
| acknowledged | a broker told partition, offset (or, for a repeated batch, no offset) | is there once, at that place |
| failed | the producer refused it, or the broker before it appended anything | is not there |
| unknown | anything else: a timeout, a lost connection, no answer yet | is there once, or not |

Each judge returns what is wrong, in sentences; an empty list is a pass. Producers are idempotent, so a record that is
there twice is wrong, and so is one that comes before another that its producer sent earlier.

Histories keep numbers in arrays: an hour of load is millions of records.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

NO_OFFSET: Final = -1
_UNKNOWN: Final = -1
_FAILED: Final = -2
_PRODUCER_SHIFT: Final = 40
SHOWN_MAX: Final = 5
"""Of many like findings, so many are shown."""


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def mark_of(producer: int, number: int) -> int:
    """A record in one integer."""
    return producer << _PRODUCER_SHIFT | number


def producer_of(mark: int) -> int:
    return mark >> _PRODUCER_SHIFT


def number_of(mark: int) -> int:
    return mark & ((1 << _PRODUCER_SHIFT) - 1)


def shown(mark: int) -> str:
    return f"record {number_of(mark)} of producer {producer_of(mark)}"


class Sent:
    """What one producer sent, and what became of it. Numbers count from 0. One thread sends; any may tell outcomes."""

    def __init__(self, producer: int) -> None:
        self.producer = producer
        self._places: list[Place] = []
        self._place_numbers: dict[Place, int] = {}
        self._outcomes = array("i")
        """By number: the index of the place, unknown or failed."""
        self._offsets = array("q")
        self._sent_s = array("d")
        self._waits_s = array("f")

    def __len__(self) -> int:
        return len(self._outcomes)

    def send(self, now_s: float = 0.0) -> int:
        """The number of the next record. It is unknown until it is told otherwise."""
        self._outcomes.append(_UNKNOWN)
        self._offsets.append(NO_OFFSET)
        self._sent_s.append(now_s)
        self._waits_s.append(-1.0)
        return len(self._outcomes) - 1

    def acknowledge(self, number: int, place: Place, offset: int, now_s: float = 0.0) -> None:
        index = self._place_numbers.get(place)
        if index is None:
            index = self._place_numbers[place] = len(self._places)
            self._places.append(place)
        self._offsets[number] = offset
        self._waits_s[number] = now_s - self._sent_s[number]
        self._outcomes[number] = index

    def fail(self, number: int) -> None:
        self._outcomes[number] = _FAILED

    def acknowledged(self) -> Iterable[tuple[int, Place, int]]:
        """Number, place and offset (or -1) of each."""
        for number, outcome in enumerate(self._outcomes):
            if outcome >= 0:
                yield number, self._places[outcome], self._offsets[number]

    def is_failed(self, number: int) -> bool:
        return self._outcomes[number] == _FAILED

    def counts(self) -> tuple[int, int, int]:
        """How many are acknowledged, failed and unknown."""
        failed, unknown = self._outcomes.count(_FAILED), self._outcomes.count(_UNKNOWN)
        return len(self._outcomes) - failed - unknown, failed, unknown

    def longest_wait_s(self, from_s: float, until_s: float) -> float:
        """The longest wait for the acknowledgement of a record that was sent in that time."""
        waits = (wait for sent, wait in zip(self._sent_s, self._waits_s, strict=True) if from_s <= sent <= until_s)
        return max(waits, default=0.0)


@dataclass(slots=True)
class Run:
    """Records that were read without a gap: the first offset, and what was there from it on."""

    start: int
    marks: array[int] = field(default_factory=lambda: array("q"))

    @property
    def end(self) -> int:
        """The offset after the last."""
        return self.start + len(self.marks)

    def at(self, offset: int) -> int | None:
        return self.marks[offset - self.start] if self.start <= offset < self.end else None


class Seen:
    """What one consumer saw, by partition, in runs. A consumer that keeps its position has one run a partition; a
    member of a group begins another whenever a partition is assigned to it (`restart`)."""

    def __init__(self, consumer: str) -> None:
        self.consumer = consumer
        self.runs: dict[Place, list[Run]] = {}
        self.jumps: list[str] = []
        self._may_jump: dict[Place, int] = {}
        """Where the next record may be anywhere from that offset on."""

    def see(self, place: Place, offset: int, mark: int) -> None:
        runs = self.runs.get(place)
        if runs is None:
            runs = self.runs[place] = [Run(offset)]
        last = runs[-1]
        floor = self._may_jump.pop(place, None)
        if floor is not None and offset < floor:
            self.jumps.append(f"{self.consumer}: {place}: began at {offset}, although {floor} had been committed")
        if offset != last.end:
            if floor is None:
                self.jumps.append(f"{self.consumer}: {place}: offset {offset} came where {last.end} was due")
            last = Run(offset)
            runs.append(last)
        last.marks.append(mark)

    def restart(self, place: Place, committed: int = 0) -> None:
        """The next record may be anywhere, but not before what the group had committed."""
        self._may_jump[place] = committed

    def positions(self) -> dict[Place, int]:
        """Of the partitions that were seen since they were last assigned."""
        return {place: runs[-1].end for place, runs in self.runs.items() if place not in self._may_jump}

    def position(self, place: Place) -> int:
        runs = self.runs.get(place)
        return runs[-1].end if runs else 0


# --- judges -----------------------------------------------------------------------------------------------------------


Spot = tuple[Place, int]
"""A partition and an offset."""


def judge_records(
    sent: Sequence[Sent],
    stored: Mapping[Place, Run],
    is_excused: Callable[[int, Spot, Spot], bool] = lambda *_: False,
) -> list[str]:
    """`stored` is everything that there is at the end. Producer n is at index n of `sent`. `is_excused` says of a
    producer, and of the two spots of a record that is there twice, whether this is the producer's own fault."""
    wrong: list[str] = []
    where: list[dict[int, tuple[Spot, ...]]] = [{} for _ in sent]
    for place, run in stored.items():
        last = [-1] * len(sent)
        for offset, mark in enumerate(run.marks, run.start):
            producer, number = producer_of(mark), number_of(mark)
            if producer >= len(sent) or number >= len(sent[producer]):
                wrong.append(f"{place}: offset {offset} has {shown(mark)}, which nobody sent")
                continue
            if sent[producer].is_failed(number):
                wrong.append(f"{place}: offset {offset} has {shown(mark)}, which had failed")
            before = where[producer].get(number, ())
            if before:
                if not is_excused(producer, before[-1], (place, offset)):
                    spots = f"{before[-1][0]} at {before[-1][1]}, {place} at {offset}"
                    wrong.append(f"{shown(mark)} is stored twice: {spots}")
            elif number < last[producer]:
                wrong.append(f"{place}: offset {offset} has {shown(mark)}, behind record {last[producer]}")
            last[producer] = max(last[producer], number)
            where[producer][number] = (*before, (place, offset))
    for history in sent:
        wrong += _judge_acknowledged(history, where[history.producer])
    return wrong


def _judge_acknowledged(history: Sent, where: Mapping[int, Sequence[Spot]]) -> list[str]:
    wrong = []
    for number, place, offset in history.acknowledged():
        found = where.get(number, ())
        mark = mark_of(history.producer, number)
        if not found:
            wrong.append(f"{shown(mark)} is LOST: acknowledged at {place}, offset {offset}")
        elif not any(at == place and offset in (NO_OFFSET, there) for at, there in found):
            spots = ", ".join(f"{at}, offset {there}" for at, there in found)
            wrong.append(f"{shown(mark)} is at {spots}; acknowledged was {place}, offset {offset}")
    return wrong


def judge_offsets(sent: Iterable[Sent]) -> list[str]:
    """No two records were acknowledged at one offset, whatever is stored there now."""
    wrong = []
    taken: dict[tuple[Place, int], int] = {}
    for history in sent:
        for number, place, offset in history.acknowledged():
            if offset == NO_OFFSET:
                continue
            mark = mark_of(history.producer, number)
            first = taken.setdefault((place, offset), mark)
            if first != mark:
                wrong.append(f"{place}: offset {offset} was acknowledged for {shown(first)} and {shown(mark)}")
    return wrong


def judge_seen(seen: Iterable[Seen], stored: Mapping[Place, Run]) -> list[str]:
    """What a consumer saw is still there: it saw nothing that was not committed. And it saw no gap."""
    wrong = []
    for reader in seen:
        wrong += reader.jumps
        for place, runs in reader.runs.items():
            kept = stored[place]
            for run in runs:
                for offset, mark in enumerate(run.marks, run.start):
                    if offset < kept.start:
                        continue  # deleted since
                    now = kept.at(offset)
                    if now is None:
                        wrong.append(f"{reader.consumer} saw {shown(mark)} at {place}, offset {offset}: it is gone")
                    elif now != mark:
                        what = f"saw {shown(mark)} at {place}, offset {offset}: now there is {shown(now)}"
                        wrong.append(f"{reader.consumer} {what}")
    return wrong


def judge_complete(seen: Sequence[Seen], stored: Mapping[Place, Run], who: str) -> list[str]:
    """Together, these consumers saw everything."""
    wrong = []
    for place, kept in stored.items():
        covered = bytearray(len(kept.marks))
        for reader in seen:
            for run in reader.runs.get(place, ()):
                first, last = max(run.start, kept.start) - kept.start, min(run.end, kept.end) - kept.start
                if last > first:
                    covered[first:last] = b"\1" * (last - first)
        missing = covered.count(0)
        if missing:
            first = kept.start + covered.index(0)
            wrong.append(f"{who} never saw {missing} records of {place}, the first at offset {first}")
    return wrong


# --- replicas ---------------------------------------------------------------------------------------------------------


class BatchMark(NamedTuple):
    """A batch as a replica keeps it."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    is_whole: bool
    """Whether the CRC is that of the bytes."""
    producer: tuple[int, int] = (-1, -1)
    """Its id and epoch."""


@dataclass(frozen=True, slots=True)
class Replica:
    """What a broker's disk has of a partition."""

    broker: int
    log_start: int
    batches: Sequence[BatchMark]
    high_watermark: int = 0
    """The last one that was written down."""

    @property
    def log_end(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else self.log_start

    def producer_at(self, offset: int) -> tuple[int, int] | None:
        at = bisect_right(self.batches, offset, key=lambda batch: batch.base_offset) - 1
        return self.batches[at].producer if at >= 0 and offset <= self.batches[at].last_offset else None


def judge_replicas(place: Place, replicas: Sequence[Replica], high_watermark: int) -> list[str]:
    """All replicas have the same batches from the highest log start to the high watermark."""
    wrong = []
    for replica in replicas:
        wrong += _judge_log(place, replica)
        if replica.log_end < high_watermark:
            end = f"ends at {replica.log_end}, below the high watermark {high_watermark}"
            wrong.append(f"{place}: broker {replica.broker} {end}")
    if len(replicas) < 2:
        return wrong
    start = max(replica.log_start for replica in replicas)
    first, *others = replicas
    expected = _between(first, start, high_watermark)
    for other in others:
        found = _between(other, start, high_watermark)
        differing = next((pair for pair in zip(expected, found, strict=False) if pair[0] != pair[1]), None)
        if differing is not None:
            pair = f"broker {first.broker} has {differing[0]}, broker {other.broker} {differing[1]}"
            wrong.append(f"{place}: replicas differ: {pair}")
        elif len(expected) != len(found):
            counts = f"broker {first.broker} has {len(expected)}, broker {other.broker} {len(found)}"
            wrong.append(f"{place}: replicas differ in the number of batches: {counts}")
    return wrong


def _judge_log(place: Place, replica: Replica) -> list[str]:
    """Within one log, offsets follow each other, epochs do not fall, and bytes match their CRC."""
    wrong = []
    where = f"{place}: broker {replica.broker}"
    for before, after in pairwise(replica.batches):
        if after.base_offset != before.last_offset + 1:
            wrong.append(f"{where}: offset {after.base_offset} follows {before.last_offset}")
        if after.leader_epoch < before.leader_epoch:
            fall = f"epoch {after.leader_epoch} follows {before.leader_epoch}"
            wrong.append(f"{where}: {fall} at offset {after.base_offset}")
    wrong += [f"{where}: the batch at {each.base_offset} is damaged" for each in replica.batches if not each.is_whole]
    return wrong


def _between(replica: Replica, start: int, end: int) -> list[BatchMark]:
    return [batch for batch in replica.batches if batch.last_offset >= start and batch.base_offset < end]


def in_brief(wrong: Sequence[str], most: int = 40) -> str:
    """The findings for people: the first ones, and how many more there are."""
    lines = list(wrong[:most])
    if len(wrong) > most:
        lines.append(f"... and {len(wrong) - most} more")
    return "\n".join(lines)
