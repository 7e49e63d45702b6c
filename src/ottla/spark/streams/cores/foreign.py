"""The join of a table with another one by a foreign key, in two steps.

    left changes ─▶ LeftStep (by left key) ─▶ subscribe, unsubscribe ─┐
                                                                      ├─▶ RightStep (by foreign key) ─▶ results
    right changes ────────────────────────────────────────────────────┘

`LeftStep` remembers the foreign key of each left row. `RightStep` remembers, for each foreign key, the right value and
the left rows that refer to it. As in KIP-213, a left row that gets another foreign key leaves the subscribers of the
old one, and a change on the right goes to all subscribers.

In KIP-213, every answer goes back to the left row, which drops it if its hash shows that the row has changed since.
Here, both steps belong to the same micro-batch, and only one foreign key answers for a left row in it: the new one, or
the old one if there is no new one. So a left row has one result per micro-batch, and nothing is under way at its end.

Subscribers are kept in chunks, by a hash of the left key. There are twice as many chunks whenever they have more than
64 rows on average, so that a subscription costs the same for a foreign key with a million of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.spark.streams.cores.changes import (
    Change,
    Result,
    Versioned,
    joined,
    parted,
    versioned_bytes,
    versioned_of,
)
from ottla.spark.streams.cores.joins import RIGHT_SIDE, How
from ottla.spark.streams.cores.steps import KeyStep, State

SUBSCRIPTIONS: Final = 0
"""The side of `RightStep` that gets the results of `LeftStep`; right changes are `RIGHT_SIDE`."""

_SUBSCRIBE: Final = b"+"
"""And answer."""
_LEAVE: Final = b"-"
_LEAVE_AND_ANSWER: Final = b"!"
_NO_FOREIGN_KEY: Final = b"0"
_SOME_FOREIGN_KEY: Final = b"1"
_ROWS_PER_CHUNK: Final = 64
_HEAD: Final = b"h"
_CHUNK: Final = b"c"


@dataclass(frozen=True)
class LeftStep(KeyStep):
    """Turns changes of left rows into messages to foreign keys. `extra` of a change is its foreign key.

    A result's key is the foreign key. Its fields are the left key and a message: what to do, and the left row. If `how`
    is left, rows without a foreign key have results too, with the key None and the left value as message.
    """

    how: How
    fields: tuple[str, ...] = ("left_key", "message")

    def apply(self, key: bytes | None, changes: Sequence[Change], state: State) -> Iterator[Result]:
        if key is None:
            return
        stored, last = state.get(key), changes[-1]
        old = None if stored is None else stored[1:]
        had_foreign_key = stored is not None and stored[:1] == _SOME_FOREIGN_KEY
        at_us = last.at_us
        if last.value is None:
            if stored is None:
                return
            state.put(key, None)
            if had_foreign_key:
                yield Result(old, at_us, (key, _LEAVE_AND_ANSWER))
            elif self.how == "left":
                yield Result(None, at_us, (key, None))
            return
        new = last.extra
        state.put(key, _NO_FOREIGN_KEY if new is None else _SOME_FOREIGN_KEY + new)
        if had_foreign_key and new != old:
            is_answering = new is None and self.how == "inner"
            yield Result(old, at_us, (key, _LEAVE_AND_ANSWER if is_answering else _LEAVE))
        if new is not None:
            yield Result(new, at_us, (key, _SUBSCRIBE + last.value))
        elif self.how == "left":
            yield Result(None, at_us, (key, last.value))


@dataclass(frozen=True)
class RightStep:
    """Joins the subscribers of a foreign key with its right value. A result's key is the left key."""

    how: How
    fields: tuple[str, ...] = ("left", "right")

    def state_keys(self, key: bytes | None, changes: Sequence[Change]) -> Iterable[bytes]:  # noqa: ARG002
        return () if key is None else (_HEAD + key,)

    def more_state_keys(self, key: bytes | None, changes: Sequence[Change], state: State) -> Iterable[bytes]:
        if key is None:
            return ()
        head = _Head.of(state.get(_HEAD + key))
        chunks = head.chunks
        subscribing = [change for change in changes if change.side == SUBSCRIPTIONS]
        if len(subscribing) < len(changes):
            return (_chunk_key(key, number) for number in range(chunks))
        numbers = {_number(change.extra, chunks) for change in subscribing}
        # More chunks may become necessary, and their rows come from all chunks.
        if head.rows + len(subscribing) > chunks * _ROWS_PER_CHUNK:
            return (_chunk_key(key, number) for number in range(chunks))
        return (_chunk_key(key, number) for number in numbers)

    def apply(self, key: bytes | None, changes: Sequence[Change], state: State) -> Iterator[Result]:
        if key is None:  # left rows without a foreign key, which `LeftStep` has joined with nothing
            for change in changes:
                yield Result(change.extra, change.at_us, (change.value, None))
            return
        head = _Head.of(state.get(_HEAD + key))
        before = head.right
        answers: dict[bytes, int] = {}
        rows = _Rows(key, head, state)
        for change in changes:
            if change.side == RIGHT_SIDE:
                head.right = None if change.value is None else Versioned(change.value, change.at_us)
                continue
            left_key, message = change.extra or b"", change.value or b""
            if message[:1] == _SUBSCRIBE:
                rows.put(left_key, Versioned(message[1:], change.at_us))
                answers[left_key] = change.at_us
            else:
                rows.remove(left_key)
                if message == _LEAVE_AND_ANSWER:
                    answers[left_key] = change.at_us
        if head.right != before:
            at_us = max(change.at_us for change in changes if change.side == RIGHT_SIDE)
            for left_key in rows.all():
                answers.setdefault(left_key, at_us)
        for left_key, at_us in answers.items():
            yield self._answer(left_key, rows.get(left_key), head.right, at_us)
        rows.store()

    def _answer(self, left_key: bytes, left: Versioned | None, right: Versioned | None, at_us: int) -> Result:
        if left is None or (right is None and self.how == "inner"):
            return Result(left_key, at_us, (None, None))
        if right is None:
            return Result(left_key, at_us, (left.value, None))
        return Result(left_key, max(left.at_us, right.at_us), (left.value, right.value))


@dataclass
class _Head:
    """What a foreign key has once: the right value, and how many subscribers are in how many chunks."""

    right: Versioned | None
    rows: int
    chunks: int

    @classmethod
    def of(cls, data: bytes | None) -> _Head:
        if data is None:
            return cls(None, 0, 1)
        right, rows, chunks = parted(data)
        return cls(versioned_of(right), int(rows or b"0"), int(chunks or b"1"))

    def data(self) -> bytes | None:
        if self.right is None and not self.rows:
            return None
        return joined((versioned_bytes(self.right), b"%d" % self.rows, b"%d" % self.chunks))


class _Rows:
    """The subscribers of a foreign key: only the chunks that were loaded."""

    def __init__(self, key: bytes, head: _Head, state: State) -> None:
        self._key = key
        self._head = head
        self._state = state
        self._open: dict[int, dict[bytes, bytes | None]] = {}
        self._touched: set[int] = set()

    def get(self, left_key: bytes) -> Versioned | None:
        return versioned_of(self._chunk(self._number(left_key)).get(left_key))

    def put(self, left_key: bytes, row: Versioned) -> None:
        chunk = self._for_writing(left_key)
        self._head.rows += left_key not in chunk
        chunk[left_key] = versioned_bytes(row)
        if self._head.rows > self._head.chunks * _ROWS_PER_CHUNK:
            self._double()

    def remove(self, left_key: bytes) -> None:
        self._head.rows -= self._for_writing(left_key).pop(left_key, None) is not None

    def all(self) -> Iterator[bytes]:
        for number in range(self._head.chunks):
            yield from self._chunk(number)

    def store(self) -> None:
        for number in self._touched:
            fields = [part for row in self._open[number].items() for part in row]
            self._state.put(_chunk_key(self._key, number), joined(fields) if fields else None)
        self._state.put(_HEAD + self._key, self._head.data())

    def _number(self, left_key: bytes) -> int:
        return _number(left_key, self._head.chunks)

    def _chunk(self, number: int) -> dict[bytes, bytes | None]:
        if number not in self._open:
            fields = parted(self._state.get(_chunk_key(self._key, number)) or b"")
            self._open[number] = {key or b"": row for key, row in zip(fields[::2], fields[1::2], strict=True)}
        return self._open[number]

    def _for_writing(self, left_key: bytes) -> dict[bytes, bytes | None]:
        number = self._number(left_key)
        self._touched.add(number)
        return self._chunk(number)

    def _double(self) -> None:
        rows = {left_key: row for number in range(self._head.chunks) for left_key, row in self._chunk(number).items()}
        self._head.chunks *= 2
        self._open = {number: {} for number in range(self._head.chunks)}
        for left_key, row in rows.items():
            self._open[self._number(left_key)][left_key] = row
        self._touched = set(self._open)


def _chunk_key(key: bytes, number: int) -> bytes:
    return _CHUNK + number.to_bytes(4, "big") + key


def _number(left_key: bytes | None, chunks: int) -> int:
    return zlib.crc32(left_key or b"") % chunks
