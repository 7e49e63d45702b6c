"""Where `Interruption` interrupts is where this Python lets signals interrupt."""

from __future__ import annotations

import dis
import signal
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

import pytest

import ottla
from ottla.client.consume.kernels import KERNELS
from unit.client.consume.test_interruptions import LoopLess, poll, poll_arrow
from unit.client.interruptions import looks_for_signals

SIGNALS = 150
PERIOD_S = 0.0003
_CLIENT = str(Path(ottla.__file__).parent)


@pytest.fixture
def seen() -> Iterator[list[tuple[CodeType, int]]]:
    """Where in our code the process is when signals are handled that come all the time while it computes."""
    places: list[tuple[CodeType, int]] = []

    def handle(_number: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code.co_filename.startswith(_CLIENT):
            places.append((frame.f_code, frame.f_lasti))

    before = signal.signal(signal.SIGVTALRM, handle)
    signal.setitimer(signal.ITIMER_VIRTUAL, PERIOD_S, PERIOD_S)
    yield places
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


def test_signals_are_seen_only_where_interruptions_happen(seen: list[tuple[CodeType, int]]) -> None:
    KERNELS.load()
    while len(seen) < SIGNALS:
        consumer = LoopLess(max_poll_records=3)
        for _ in range(4):
            poll(consumer)
        poll_arrow(consumer)
        next(iter(LoopLess()))
    kinds = {_name(code, offset) for code, offset in seen}
    elsewhere = {_name(code, offset) for code, offset in seen if not looks_for_signals(code, offset)}
    assert not elsewhere
    assert {"RESUME", "CALL", "JUMP_BACKWARD"} <= kinds


def _name(code: CodeType, offset: int) -> str:
    return next(one.opname for one in dis.get_instructions(code) if one.offset == offset)
