"""A clock that stands still until it is turned."""

from __future__ import annotations


class ManualClock:
    """Both times move only by `advance_ms`; `set_now_ms` moves the wall clock alone, also back, as a correction of a
    machine's time does."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return self._monotonic_ms / 1000

    def advance_ms(self, duration_ms: int) -> None:
        if duration_ms < 0:
            raise ValueError(f"time does not run back by {-duration_ms} ms; set_now_ms corrects the wall clock")
        self._now_ms += duration_ms
        self._monotonic_ms += duration_ms

    def set_now_ms(self, now_ms: int) -> None:
        self._now_ms = now_ms
