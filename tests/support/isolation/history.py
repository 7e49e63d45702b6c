"""What happened in a run: transactions with their writes, reads, and what was stored at the end.

| outcome | the transaction | afterwards its writes |
| --- | --- | --- |
| committed | the client was told so | are all visible |
| aborted | the client aborted it, or never asked to commit it | are never visible |
| unknown | it asked to commit, and was told nothing certain | are all visible, or none |

A transaction that was prepared (two-phase commit) ends as its application decided, whoever completes it; without a
decision it is aborted. A write to a compacted partition has a key; it may be gone once the key has a later one.

Values are unique integers: whoever reads one knows which transaction wrote it. Times are nanoseconds of one monotonic
clock that all clients share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from support.cluster.checker import Place


class Outcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


TOMBSTONE: Final = 0
"""Stands for the value of a record without one, where it is not known who wrote it."""


class Write(NamedTuple):
    """A value that was appended; with its offset, if the client was told. `source` is the input that a processor made
    it from. `key` is set in a compacted partition, where a tombstone is known by its offset alone."""

    place: Place
    value: int
    offset: int | None = None
    source: int | None = None
    key: int | None = None
    is_tombstone: bool = False


class Read(NamedTuple):
    """A record that a consumer was handed."""

    place: Place
    offset: int
    value: int
    at_ns: int = 0


class Restart(NamedTuple):
    """The consumer sought: the next record of the partition may be anywhere from this offset on."""

    place: Place
    offset: int


@dataclass(slots=True)
class Transaction:
    """The transaction of one producer. A number identifies it in the whole run."""

    number: int
    producer: str
    outcome: Outcome = Outcome.ABORTED
    writes: list[Write] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    """What a processor consumed in it."""
    offsets: dict[Place, int] = field(default_factory=dict)
    """The offsets that it committed for the processors' group."""
    began_ns: int = 0
    asked_ns: int | None = None
    """When the client asked to commit."""
    ended_ns: int | None = None
    """When the client was told the outcome."""
    is_prepared: bool = False
    """Whether it was prepared: it is committed only if that was decided."""
    ended_by_other: bool = False
    """Whether it was completed by another process than the one that prepared it."""

    def precedes(self, other: Transaction) -> bool:
        """Whether it was over before the other began."""
        return self.ended_ns is not None and self.ended_ns < other.began_ns

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.producer} ({self.outcome.value})"


@dataclass(slots=True)
class Reader:
    """A consumer with read_committed, and what it was handed, in order."""

    name: str
    events: list[Read | Restart] = field(default_factory=list)


class Observation(NamedTuple):
    """A committed offset of the processors' group, as it was fetched. Asked for after `asked_ns`."""

    place: Place
    offset: int
    asked_ns: int
    told_ns: int


@dataclass(slots=True)
class History:
    """`stored` is everything that the logs have at the end (read_uncommitted), by offset; `visible` is what a new
    consumer with read_committed finds. `markers` are the offsets of control records, if they are known."""

    transactions: Sequence[Transaction]
    readers: Sequence[Reader]
    stored: Mapping[Place, Mapping[int, int]]
    visible: Mapping[Place, Sequence[tuple[int, int]]]
    markers: Mapping[Place, frozenset[int]] | None = None
    group_offsets: Mapping[Place, int] = field(default_factory=dict)
    """Of the processors' group, at the end."""
    observations: Sequence[Observation] = ()
    decisions: Mapping[int, bool] = field(default_factory=dict)
    """Of prepared transactions, by number: whether to commit."""
    compacted: frozenset[Place] = frozenset()
    """Partitions in which a later value of a key replaces an earlier one."""
    replicas: Mapping[str, Mapping[Place, Sequence[tuple[int, int]]]] = field(default_factory=dict)
    """What each broker has of the compacted partitions, and other readers found: offsets and values. Those of aborted
    transactions may be among them."""

    def writers(self) -> dict[int, tuple[Transaction, Write]]:
        """Who wrote a value."""
        return {write.value: (one, write) for one in self.transactions for write in one.writes}

    def committed(self) -> list[Transaction]:
        """Those that were committed: what is unknown shows by its writes, or was decided."""
        visible = {value for records in self.visible.values() for _, value in records}
        return [
            one
            for one in self.transactions
            if one.outcome is Outcome.COMMITTED
            or self.decisions.get(one.number, False)
            or (one.outcome is Outcome.UNKNOWN and any(write.value in visible for write in one.writes))
        ]

    def all_reads(self) -> Iterable[tuple[str, Read]]:
        """Every record that was handed to a consumer with read_committed, and who that was."""
        for reader in self.readers:
            for event in reader.events:
                if isinstance(event, Read):
                    yield reader.name, event
        for one in self.transactions:
            for read in one.reads:
                yield one.producer, read
        for place, records in self.visible.items():
            for offset, value in records:
                yield "the final reader", Read(place, offset, value, _LATEST_NS)


_LATEST_NS = 2**63 - 1
