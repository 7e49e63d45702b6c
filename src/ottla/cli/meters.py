"""Rates for display."""

from __future__ import annotations

from collections import deque


class Meter:
    """Counts events and computes the recent rate per second."""

    def __init__(self, window_s: float = 2.0) -> None:
        self.total = 0
        self._window_s = window_s
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, count: int) -> None:
        self.total += count

    def sample(self, now_s: float) -> None:
        """Records the current count; call it regularly."""
        self._samples.append((now_s, self.total))
        while now_s - self._samples[0][0] > self._window_s:
            self._samples.popleft()

    @property
    def rate(self) -> float:
        if len(self._samples) < 2:
            return 0.0
        (first_s, first), (last_s, last) = self._samples[0], self._samples[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0
