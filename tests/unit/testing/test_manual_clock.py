from __future__ import annotations

import pytest

from ottla.base.clock import Clock
from ottla.testing.manual_clock import ManualClock


def test_both_times_move_by_hand_only() -> None:
    manual = ManualClock(now_ms=5_000)
    clock: Clock = manual
    start_s = clock.monotonic_s()
    assert (clock.now_ms(), clock.now_ms()) == (5_000, 5_000)
    manual.advance_ms(1_500)
    assert clock.now_ms() == 6_500
    assert clock.monotonic_s() - start_s == 1.5


def test_a_correction_moves_the_wall_clock_alone() -> None:
    clock = ManualClock()
    clock.advance_ms(250)
    before_s = clock.monotonic_s()
    clock.set_now_ms(1_000)
    assert clock.now_ms() == 1_000
    assert clock.monotonic_s() == before_s
    with pytest.raises(ValueError, match="cannot go back by 1 ms"):
        clock.advance_ms(-1)
