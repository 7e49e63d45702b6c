"""Sliding windows (KIP-450), and the last value of each window once it has closed.

A window [start, start + difference] includes both ends. The windows of a key are those that records make:

- each record ends one: [t - difference, t]. Where that would begin before 0, it is [0, difference];
- each record begins one just after it, [t + 1, t + 1 + difference], if that has records.

So whenever the set of records within `difference` changes along the time axis, there is a window with that set. A
window has a total, and not its records. A new one therefore starts from the total of a neighbour that has the same
records, or from zero. State also has windows that closed less than twice `difference` ago, because new ones may start
from their totals.

A window is closed once time has passed its end. Records change only windows that are open; one whose windows are all
closed is late.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.spark.streams.cores.aggregates import Add, Values
from ottla.spark.streams.cores.changes import (
    Change,
    Result,
    Versioned,
    time_bytes,
    time_of,
    versioned_bytes,
    versioned_of,
)
from ottla.spark.streams.cores.timed import Outcome

_WINDOW: Final = struct.Struct(">qq?i")
_END_BYTES: Final = 8
_UNREAD: Final = object()


class _Window:
    """A window of a key. Its total is bytes, or a Python object as soon as it is used."""

    __slots__ = ("data", "is_emitted", "latest_ms", "start_ms", "total")

    def __init__(
        self, start_ms: int, latest_ms: int, data: bytes = b"", total: Any = _UNREAD, *, is_emitted: bool = False
    ) -> None:
        self.start_ms = start_ms
        self.latest_ms = latest_ms
        """The timestamp of the latest record in it."""
        self.data = data
        self.total = total
        self.is_emitted = is_emitted


@dataclass(frozen=True)
class SlidingStep:
    """Adds each value to the totals of all windows that include it.

    Results are totals of windows, with the latest timestamp in the window: after each micro-batch for all windows that
    it changed, or with `is_final` once for each window when it closes. A total of None deletes the window.
    """

    difference_ms: int
    zero: Callable[[], Any]
    adds: tuple[Add, ...]
    keys: Values
    values: tuple[Values, ...]
    totals: Values
    is_final: bool = False
    fields: tuple[str, ...] = ("start", "value")

    def apply(self, key: bytes, changes: Sequence[Change], data: bytes | None, now_ms: int) -> Outcome:
        windows = self._open_at(now_ms, data)
        known = {window.start_ms for window in windows}
        touched: dict[int, int] = {}
        own_key = self.keys.loads(key)
        late = 0
        for change in changes:
            if change.value is None:
                continue
            at_ms = change.at_us // 1000
            if at_ms < 0 or at_ms + self.difference_ms < now_ms:
                late += 1
                continue
            for start_ms in self._add(windows, own_key, change, at_ms, now_ms):
                touched[start_ms] = at_ms
        results = [] if self.is_final else self._updates(key, windows, known, touched)
        return self._outcome(windows, results, late)

    def expire(self, key: bytes, data: bytes, now_ms: int) -> Outcome:
        windows = self._read(data)
        results = []
        for window in windows:
            if self.is_final and not window.is_emitted and window.start_ms + self.difference_ms < now_ms:
                window.is_emitted = True
                results.append(self._result(key, window))
        return self._outcome(self._needed(windows, now_ms), results, 0)

    # One record.

    def _add(self, windows: list[_Window], key: Any, change: Change, at_ms: int, now_ms: int) -> list[int]:
        """Adds a record to the windows that there are, and makes new ones. Returns the starts of what changed."""
        first_ms = max(at_ms - self.difference_ms, 0)
        first = bisect_left(windows, first_ms, key=_start)
        after = bisect_right(windows, at_ms, key=_start)
        covering = windows[first:after]
        has_first = bool(covering) and covering[0].start_ms == first_ms
        before = windows[first - 1] if first else None
        if before is not None and before.start_ms < at_ms - 2 * self.difference_ms:
            before = None
        # The last window that ends before the record knows the previous one; only if there is none, the one that ends
        # at it. They differ only if some records came late, and then it is as in Kafka Streams.
        nearest = before or (covering[0] if has_first else None)
        previous_ms = nearest.latest_ms if nearest is not None and nearest.latest_ms < at_ms else None
        if previous_ms is not None and previous_ms < first_ms:
            previous_ms = None  # too long ago to be in a window with this record

        new: list[_Window] = []
        joining = [window for window in covering if window.start_ms + self.difference_ms >= now_ms]
        if not has_first and first_ms + self.difference_ms >= now_ms:
            is_continuing = before is not None and previous_ms is not None
            window = self._copy(before, first_ms) if is_continuing and before else self._empty(first_ms, at_ms)
            new.append(window)
            joining.append(window)
        if previous_ms is not None and previous_ms + 1 + self.difference_ms >= now_ms:
            # The window that begins after the previous record: now there is a record in it.
            place = bisect_left(covering, previous_ms + 1, key=_start)
            if place == len(covering) or covering[place].start_ms != previous_ms + 1:
                window = self._empty(previous_ms + 1, at_ms)
                new.append(window)
                joining.append(window)
        has_next = after < len(windows) and windows[after].start_ms == at_ms + 1
        if not has_next and covering and covering[-1].latest_ms > at_ms:
            new.append(self._copy(covering[-1], at_ms + 1))

        changed = {window.start_ms for window in (*new, *joining)}
        for window in new:
            windows.insert(bisect_left(windows, window.start_ms, key=_start), window)
        self._join(windows, joining, key, change, at_ms)
        return sorted(changed)

    def _join(self, windows: list[_Window], joining: Sequence[_Window], key: Any, change: Change, at_ms: int) -> None:
        add, values = self.adds[change.side], self.values[change.side]
        value: Any = _UNREAD
        for window in joining:
            # A function may change its arguments, or return them: each window needs objects of its own.
            if value is _UNREAD or isinstance(value, dict | list):
                value = values.loads(change.value)
            total = add(key, value, self._total(window))
            if total is None:
                del windows[bisect_left(windows, window.start_ms, key=_start)]
                continue
            window.total = total
            window.latest_ms = max(window.latest_ms, at_ms)

    # Totals.

    def _empty(self, start_ms: int, at_ms: int) -> _Window:
        return _Window(start_ms, at_ms, total=self.zero())

    def _copy(self, window: _Window, start_ms: int) -> _Window:
        if isinstance(window.total, int | float | str | bytes):
            return _Window(start_ms, window.latest_ms, total=window.total)
        return _Window(start_ms, window.latest_ms, self._bytes(window))  # it may change its total in place

    def _total(self, window: _Window) -> Any:
        return self.totals.loads(window.data) if window.total is _UNREAD else window.total

    def _bytes(self, window: _Window) -> bytes:
        return window.data if window.total is _UNREAD else self.totals.dumps(window.total) or b""

    # Results and state.

    def _updates(
        self, key: bytes, windows: Sequence[_Window], known: set[int], touched: dict[int, int]
    ) -> list[Result]:
        present = {window.start_ms: window for window in windows if window.start_ms in touched}
        results = []
        for start_ms in sorted(touched):
            window = present.get(start_ms)
            if window is not None:
                results.append(self._result(key, window))
            elif start_ms in known:
                results.append(Result(key, touched[start_ms] * 1000, (b"%d" % start_ms, None)))
        return results

    def _result(self, key: bytes, window: _Window) -> Result:
        return Result(key, window.latest_ms * 1000, (b"%d" % window.start_ms, self._bytes(window)))

    def _outcome(self, windows: Sequence[_Window], results: Sequence[Result], late: int) -> Outcome:
        if not windows:
            return Outcome(None, results=results, late=late)
        pieces: list[bytes] = []
        for window in windows:
            total = self._bytes(window)
            pieces += (_WINDOW.pack(window.start_ms, window.latest_ms, window.is_emitted, len(total)), total)
        data = b"".join(pieces)
        if self.is_final:
            waiting = next((window for window in windows if not window.is_emitted), None)
            if waiting is not None:
                return Outcome(data, waiting.start_ms + self.difference_ms, is_exact=True, results=results, late=late)
        return Outcome(data, windows[-1].start_ms + self._kept_ms, results=results, late=late)

    @property
    def _kept_ms(self) -> int:
        """How long after its start a window may be needed for new ones: a record that is nearly late looks at windows
        that began up to twice the difference before it."""
        return 3 * self.difference_ms + 1

    def _needed(self, windows: Sequence[_Window], now_ms: int) -> list[_Window]:
        return [
            window
            for window in windows
            if window.start_ms + self._kept_ms >= now_ms or (self.is_final and not window.is_emitted)
        ]

    def _open_at(self, now_ms: int, data: bytes | None) -> list[_Window]:
        return [] if data is None else self._needed(self._read(data), now_ms)

    def _read(self, data: bytes) -> list[_Window]:
        windows, place = [], 0
        while place < len(data):
            start_ms, latest_ms, is_emitted, length = _WINDOW.unpack_from(data, place)
            place += _WINDOW.size
            windows.append(_Window(start_ms, latest_ms, data[place : place + length], is_emitted=is_emitted))
            place += length
        return windows


def _start(window: _Window) -> int:
    return window.start_ms


@dataclass(frozen=True)
class ClosingStep:
    """The last value of each row of a table whose key has a window, once that has closed. Rows that are deleted before
    have no result. `extra` of a change is the end of the window in milliseconds."""

    fields: tuple[str, ...] = ("value",)

    def apply(self, key: bytes, changes: Sequence[Change], data: bytes | None, now_ms: int) -> Outcome:  # noqa: ARG002
        last = changes[-1]
        end_ms = int(last.extra or b"0")
        if end_ms < now_ms:  # if there is a value, it will be emitted in this micro-batch
            return Outcome(data, end_ms, is_exact=True, late=len(changes))
        if last.value is None:
            return Outcome(None)
        row = versioned_bytes(Versioned(last.value, last.at_us)) or b""
        return Outcome(time_bytes(end_ms) + row, end_ms, is_exact=True)

    def expire(self, key: bytes, data: bytes, now_ms: int) -> Outcome:
        end_ms, row = time_of(data[:_END_BYTES]), versioned_of(data[_END_BYTES:])
        if end_ms >= now_ms or row is None:
            return Outcome(data, end_ms, is_exact=True)
        return Outcome(None, results=[Result(key, row.at_us, (row.value,))])
