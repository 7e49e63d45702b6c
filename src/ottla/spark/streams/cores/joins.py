"""Latest values, and joins of sides that have the same key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ottla.spark.streams.cores.changes import Change, Result, Versioned, joined, parted, versioned_bytes, versioned_of
from ottla.spark.streams.cores.steps import KeyStep, State

How = Literal["inner", "left", "outer"]

TABLE_SIDE: Final = 0
STREAM_SIDE: Final = 1
"""At the same timestamp, the table is first."""

LEFT_SIDE: Final = 0
RIGHT_SIDE: Final = 1


@dataclass(frozen=True)
class LatestStep(KeyStep):
    """The last value of each key, once per micro-batch; a tombstone only for keys that there were."""

    fields: tuple[str, ...] = ("value",)

    def apply(self, key: bytes | None, changes: Sequence[Change], state: State) -> Iterator[Result]:
        if key is None:
            return
        before, last = state.get(key), changes[-1]
        if last.value is None and before is None:
            return
        state.put(key, None if last.value is None else b"")
        yield Result(key, last.at_us, (last.value,))


@dataclass(frozen=True)
class StreamTableStep(KeyStep):
    """Each stream record with the table's value at that moment. As in Kafka Streams, stream records without a value are
    skipped, and changes of the table alone give no results. A record without a key matches no row."""

    how: How
    fields: tuple[str, ...] = ("left", "right")

    def apply(self, key: bytes | None, changes: Sequence[Change], state: State) -> Iterator[Result]:
        value = before = None if key is None else state.get(key)
        for change in changes:
            if change.side == TABLE_SIDE:
                value = change.value
            elif change.value is not None and (value is not None or self.how == "left"):
                yield Result(key, change.at_us, (change.value, value))
        if key is not None and value != before:
            state.put(key, value)


@dataclass(frozen=True)
class TablesStep(KeyStep):
    """Two tables with the same key. One result per key and micro-batch; it has the later timestamp of both sides."""

    how: How
    fields: tuple[str, ...] = ("left", "right")

    def apply(self, key: bytes | None, changes: Sequence[Change], state: State) -> Iterator[Result]:
        if key is None:
            return
        stored = state.get(key)
        left, right = map(versioned_of, (None, None) if stored is None else parted(stored))
        was_there = self._is_row(left, right)
        for change in changes:
            new = None if change.value is None else Versioned(change.value, change.at_us)
            if change.side == LEFT_SIDE:
                left = new
            else:
                right = new
        is_gone = left is None and right is None
        state.put(key, None if is_gone else joined((versioned_bytes(left), versioned_bytes(right))))
        if self._is_row(left, right):
            sides = [side for side in (left, right) if side is not None]
            yield Result(key, max(side.at_us for side in sides), (left and left.value, right and right.value))
        elif was_there:
            yield Result(key, changes[-1].at_us, (None, None))

    def _is_row(self, left: Versioned | None, right: Versioned | None) -> bool:
        if self.how == "inner":
            return left is not None and right is not None
        return left is not None or (self.how == "outer" and right is not None)
