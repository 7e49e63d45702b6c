"""Limits the rate of bytes that compaction reads and writes, by waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from ottla.base.clock import Clock

_WINDOW_S: Final = 1.0
"""Unused bytes expire after this time: a pause does not allow a burst."""
_SLICE_S: Final = 0.2
"""The longest wait before checking whether the rate has changed or the work was cancelled."""


def _never() -> bool:
    return False


class Throttle:
    """Can be shared by threads: the rate is that of all together. `wait` sleeps; if it always returns early, such as
    for an event that is set, `is_cancelled` of `spend` must return True."""

    def __init__(self, bytes_per_second: float | None, clock: Clock, wait: Callable[[float], object]) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._wait = wait
        self._guard = threading.Lock()
        self._spent = 0.0
        self._allowed = 0.0
        """The number of bytes that may have been spent by now."""
        self._settled_s = clock.monotonic_s()

    def change_rate(self, bytes_per_second: float | None) -> None:
        """Applies at once, also to waiting threads. None means no limit."""
        with self._guard:
            self._settle()
            self._bytes_per_second = bytes_per_second

    def spend(self, size: int, is_cancelled: Callable[[], bool] = _never) -> None:
        """Returns when that many bytes, which were just moved, are within the rate; soon, if it is cancelled."""
        if size <= 0:
            return
        with self._guard:
            self._settle()
            self._spent += size
            due = self._spent
        while (ahead_s := self._ahead_s(due)) > 0 and not is_cancelled():
            self._wait(min(ahead_s, _SLICE_S))

    def _ahead_s(self, due: float) -> float:
        with self._guard:
            self._settle()
            rate = self._bytes_per_second
            return 0.0 if rate is None else (due - self._allowed) / rate

    def _settle(self) -> None:
        now_s = self._clock.monotonic_s()
        elapsed_s, self._settled_s = now_s - self._settled_s, now_s
        rate = self._bytes_per_second
        if rate is None:
            self._allowed = self._spent
        else:
            self._allowed = min(self._allowed + elapsed_s * rate, self._spent + _WINDOW_S * rate)
