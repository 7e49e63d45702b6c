"""Operators that also act when event time moves on, without rows of a key: what closes, and what can be forgotten.

Time is the watermark of the query when the micro-batch began, in milliseconds. It is the same for all rows of a
micro-batch, part of the checkpoint, and never goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from ottla.spark.streams.cores.agenda import SLOT_BYTES, Agenda, Slot
from ottla.spark.streams.cores.changes import Change, Result, joined, parted
from ottla.spark.streams.cores.steps import State

_AGENDA: Final = b"a"
_ENTRY: Final = b"k"
_SLOT: Final = b"s"


class Outcome(NamedTuple):
    """What became of a key."""

    data: bytes | None
    """Its new state; None removes it."""
    due_ms: int = 0
    """The step wants to see the key again once time has passed this."""
    is_exact: bool = False
    """Whether that must happen in the first micro-batch after `due_ms`."""
    results: Sequence[Result] = ()
    late: int = 0
    """Rows that came too late."""


class TimedStep(Protocol):
    """An operator on the rows of a key, whose state is one entry for each key. Sent from the driver to the tasks."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields of its results."""

    def apply(self, key: bytes, changes: Sequence[Change], data: bytes | None, now_ms: int) -> Outcome:
        """Processes all rows of a key in a micro-batch; they are in order."""

    def expire(self, key: bytes, data: bytes, now_ms: int) -> Outcome:
        """Called after the rows of a micro-batch for a key that may be due."""


class TimedBucket:
    """The keys of a bucket in one call of Spark: with their rows, or because a timer has fired.

    Read `results`, and then store `changes` and set the timer.
    """

    def __init__(self, step: TimedStep, now_ms: int, read: Callable[[list[bytes]], Sequence[bytes | None]]) -> None:
        self._step = step
        self._now_ms = now_ms
        self._read = read
        self._state = State()
        self._agenda = Agenda()
        self._new: dict[Slot, list[bytes]] = {}
        self.late = 0
        self.timer_ms: int | None = None
        """The timer that must be set."""

    def rows(self, by_key: Mapping[bytes, Sequence[Change]]) -> Iterator[Result]:
        """The results for rows of a micro-batch, which are in order for each key."""
        self._open([_ENTRY + key for key in by_key])
        for key, changes in by_key.items():
            entry = self._state.get(_ENTRY + key)
            slot, data = (None, None) if entry is None else (Slot.of(entry[:SLOT_BYTES]), entry[SLOT_BYTES:])
            outcome = self._step.apply(key, changes, data, self._now_ms)
            self._keep(key, outcome, slot)
            yield from outcome.results
        self._close()

    def due(self) -> Iterator[Result]:
        """The results because time has moved on; after those of `rows`."""
        self._open([])
        slots = self._agenda.take_due(self._now_ms)
        self._state.load([_SLOT + slot.data() for slot in slots], self._read)
        listed = {slot: self._keys_of(slot) for slot in slots}
        self._state.load([_ENTRY + key for keys in listed.values() for key in keys], self._read)
        for slot, keys in listed.items():
            self._state.put(_SLOT + slot.data(), None)
            for key in keys:
                entry = self._state.get(_ENTRY + key)
                if entry is None or entry[:SLOT_BYTES] != slot.data():
                    continue
                outcome = self._step.expire(key, entry[SLOT_BYTES:], self._now_ms)
                self._keep(key, outcome, None)
                yield from outcome.results
        self._close()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left of the state of the bucket."""
        return self._agenda.is_empty

    def changes(self) -> Mapping[bytes, bytes | None]:
        return self._state.changes()

    def _open(self, keys: list[bytes]) -> None:
        self._state.load([_AGENDA, *keys], self._read)
        self._agenda = Agenda.of(self._state.get(_AGENDA))

    def _keep(self, key: bytes, outcome: Outcome, slot: Slot | None) -> None:
        """Stores the entry of a key. It stays in its slot if that is early enough."""
        self.late += outcome.late
        if outcome.data is None:
            self._state.put(_ENTRY + key, None)
            return
        if slot is None or outcome.due_ms < slot.begin_ms:
            slot = Slot.at(outcome.due_ms, self._now_ms, is_exact=outcome.is_exact)
            self._new.setdefault(slot, []).append(key)
        self._state.put(_ENTRY + key, slot.data() + outcome.data)

    def _keys_of(self, slot: Slot) -> list[bytes]:
        found = parted(self._state.get(_SLOT + slot.data()) or b"")
        return [key for key in dict.fromkeys(found) if key is not None]

    def _close(self) -> None:
        self._state.load([_SLOT + slot.data() for slot in self._new], self._read)
        for slot, keys in self._new.items():
            place = _SLOT + slot.data()
            self._state.put(place, (self._state.get(place) or b"") + joined(keys))
            self._agenda.add(slot)
        self.timer_ms = self._agenda.next_timer_ms(self._now_ms)
        self._state.put(_AGENDA, self._agenda.data())
