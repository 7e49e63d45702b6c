"""Aggregations: the rows of a key become one value. Functions of the user work on Python objects, everything else on
bytes; `Values` converts.

One result per key and micro-batch, with the latest timestamp that was aggregated. A total of None deletes the key, as
in Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ottla.spark.streams.cores.changes import (
    Change,
    Result,
    Versioned,
    joined,
    parted,
    versioned_bytes,
    versioned_of,
)
from ottla.spark.streams.cores.steps import KeyStep, State

Add = Callable[[Any, Any, Any], Any]
"""(key, value, total) -> the new total."""

SUBTRACT_SIDE: Final = 0
ADD_SIDE: Final = 1
"""At the same timestamp, old values leave a group before new ones join it."""


class Values(Protocol):
    """Python objects from bytes, and back."""

    def loads(self, data: bytes | None) -> Any: ...

    def dumps(self, value: Any) -> bytes | None: ...


@dataclass(frozen=True)
class AggregateStep(KeyStep):
    """Adds the values of each side with the function of that side. Rows without a value are skipped."""

    zero: Callable[[], Any]
    adds: tuple[Add, ...]
    keys: Values
    values: tuple[Values, ...]
    totals: Values
    fields: tuple[str, ...] = ("value",)

    def apply(self, key: bytes | None, changes: Sequence[Change], state: State) -> Iterator[Result]:
        if key is None:
            return
        before = versioned_of(state.get(key))
        total = self.zero() if before is None else self.totals.loads(before.value)
        at_us = None if before is None else before.at_us
        own_key = self.keys.loads(key)
        for change in changes:
            if change.value is None:
                continue
            if total is None:  # the key was deleted by the value before
                total = self.zero()
            total = self.adds[change.side](own_key, self.values[change.side].loads(change.value), total)
            at_us = change.at_us if at_us is None else max(at_us, change.at_us)
        if at_us is None or all(change.value is None for change in changes):
            return
        data = self.totals.dumps(total)
        if data is None:
            state.put(key, None)
            if before is not None:
                yield Result(key, at_us, (None,))
            return
        state.put(key, versioned_bytes(Versioned(data, at_us)))
        yield Result(key, at_us, (data,))


@dataclass(frozen=True)
class RegroupStep(KeyStep):
    """Turns changes of a table into what leaves one group and joins another one. `extra` is the group of a row.

    A result's key is the group; rows whose group is null belong to none.
    """

    fields: tuple[str, ...] = ("left", "joined")

    def apply(self, key: bytes | None, changes: Sequence[Change], state: State) -> Iterator[Result]:
        if key is None:
            return
        stored, last = state.get(key), changes[-1]
        if stored is not None:
            group, value = parted(stored)
            yield Result(group, last.at_us, (value, None))
        is_row = last.value is not None and last.extra is not None
        state.put(key, joined((last.extra, last.value)) if is_row else None)
        if is_row:
            yield Result(last.extra, last.at_us, (None, last.value))
