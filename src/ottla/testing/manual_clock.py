"""A clock that tests advance by hand."""

from __future__ import annotations


class ManualClock:
    """Both times move only by `advance_ms`; `set_now_ms` changes only the wall clock, also backwards, like a time
    correction."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return self._monotonic_ms / 1000

    def advance_ms(self, duration_ms: int) -> None:
        if duration_ms < 0:
            raise ValueError(f"time cannot go back by {-duration_ms} ms; use set_now_ms to change the wall clock")
        self._now_ms += duration_ms
        self._monotonic_ms += duration_ms

    def set_now_ms(self, now_ms: int) -> None:
        self._now_ms = now_ms
