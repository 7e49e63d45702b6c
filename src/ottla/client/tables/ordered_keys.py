"""The keys of a table in order, for ranges. Nothing is kept until the first range.

Two sorted lists, never changed once they are made, so that a range iterates over them without a lock: the keys of the
last merge, and the fewer ones that were added since. A removed key stays in its list until the next merge; readers look
each key up anyway. No I/O. The caller serializes `added` and `parts`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

MERGED_AT_LEAST: Final = 1000
"""Recent keys are merged into the others once they are this many, and an eighth of them."""


class KeyRange:
    """The keys of one range, as of its creation: some may have been removed, and a few are listed twice."""

    __slots__ = ("_lists", "_start", "_stop")

    def __init__(self, lists: tuple[list[Any], ...], start: Any, stop: Any) -> None:
        self._lists = lists
        self._start = start
        self._stop = stop

    def _bounds(self, keys: list[Any]) -> tuple[int, int]:
        first = 0 if self._start is None else bisect_left(keys, self._start)
        last = len(keys) if self._stop is None else bisect_left(keys, self._stop)
        return first, last

    def forward(self) -> Iterator[Any]:
        return heapq.merge(*(map(keys.__getitem__, range(*self._bounds(keys))) for keys in self._lists))

    def backward(self) -> Iterator[Any]:
        places = (map(keys.__getitem__, reversed(range(*self._bounds(keys)))) for keys in self._lists)
        return heapq.merge(*places, reverse=True)


class OrderedKeys:
    """See the module docstring."""

    def __init__(self) -> None:
        self.is_used = False
        """Whether keys have to be added; before the first range they need not."""
        self._merged: list[Any] = []
        self._recent: list[Any] = []
        self._added: list[Any] = []

    def add(self, keys: Iterable[Any]) -> None:
        """Adds keys that the table did not have."""
        self._added.extend(keys)

    def between(self, start: Any, stop: Any, present: Collection[Any]) -> KeyRange:
        """The keys from `start` (inclusive) to `stop` (exclusive), of a table with the keys `present`. None means no
        limit. Raises TypeError if the keys cannot be ordered."""
        if not self.is_used:
            self._merged = sorted(present)
            self.is_used = True
        elif self._added:
            recent = self._recent + self._added
            if len(recent) >= max(MERGED_AT_LEAST, len(self._merged) // 8):
                self._merged, recent = sorted(present), []
            recent.sort()
            self._recent, self._added = recent, []
        found = KeyRange((self._merged, self._recent), start, stop)
        next(found.forward(), None)  # compares, so that an unfit limit raises here
        return found
