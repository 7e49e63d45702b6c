"""Interrupts code as Ctrl-C and signal handlers do, at every place where that can happen.

CPython looks for signals when a function begins or a generator goes on, after a call, and when a loop jumps back
(`looks_for_signals`, which a test compares with where real signals are seen). `Interruption(n)` raises
KeyboardInterrupt, or calls a handler that does not raise, at the n-th of these places within the client's own code:

    for number in count():
        interruption = Interruption(number)
        with interruption: …          # the code under test; raises KeyboardInterrupt
        if not interruption.happened: break

A place that is passed over and over, for each record of many, counts `_OFTEN` times only. A debugger may let other
threads run before each line; `lines_of` adds those of some modules to the places. Where there are thousands,
`every_third()` instead of `count()` takes a third of them, others in each run of the suite.
"""

from __future__ import annotations

import dis
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any, Final, Self

import ottla.client

_WATCHED: Final = str(Path(str(ottla.client.__file__)).parent)
_OFTEN: Final = 2
_STRIDE: Final = 3


def every_third() -> Iterator[int]:
    return count(random.randrange(_STRIDE), _STRIDE)


def _raise() -> None:
    raise KeyboardInterrupt


class Interruption:
    """Can be entered several times: places are counted on."""

    def __init__(
        self, number: int, handler: Callable[[], object] = _raise, lines_of: tuple[ModuleType, ...] = ()
    ) -> None:
        self._handler = handler
        self._left = number
        self.happened = False
        self.where = ""
        self._lines_of = {module.__file__ for module in lines_of}
        self._passed: Counter[tuple[CodeType, int]] = Counter()

    def __enter__(self) -> Self:
        sys.settrace(None if self.happened else self._trace)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        code = frame.f_code
        if event == "call":
            if not code.co_filename.startswith(_WATCHED):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, code.co_filename in self._lines_of
            self._pass(frame)
        elif event == "line" or (event == "opcode" and frame.f_lasti in _places(code)):
            self._pass(frame)
        return self._trace

    def _pass(self, frame: FrameType) -> None:
        place = frame.f_code, frame.f_lasti
        self._passed[place] += 1
        if self.happened or self._passed[place] > _OFTEN:
            return
        if self._left:
            self._left -= 1
        else:
            self.happened = True
            self.where = f"{frame.f_code.co_qualname}, line {frame.f_lineno}"
            self._handler()


_CALLS: Final = ("CALL", "PRECALL")
"""In 3.11 a PRECALL can be the whole call."""
_JUMPS: Final = ("JUMP_BACKWARD", "POP_JUMP_BACKWARD")
"""Loops of 3.11 can jump back on a condition, and then one instruction compares and jumps."""


@cache
def _instructions(code: CodeType) -> dict[int, dis.Instruction]:
    return {one.offset: one for one in dis.get_instructions(code)}


def looks_for_signals(code: CodeType, offset: int) -> bool:
    """Whether CPython looks for signals when it has done the instruction there."""
    name = _instructions(code)[offset].opname
    if name == "COMPARE_OP":
        following = [each.opname for at, each in _instructions(code).items() if at > offset]
        return following[:1] != [] and following[0].startswith("POP_JUMP_BACKWARD")
    return name == "RESUME" or (name.startswith((*_CALLS, *_JUMPS)) and not name.endswith("NO_INTERRUPT"))


@cache
def _places(code: CodeType) -> frozenset[int]:
    """The instructions before which an interruption is as good as a signal. Where a handler begins or ends right after
    a call, that call is left out: the exception would come from within the call."""
    handlers = {
        offset: entry.target
        for entry in dis._parse_exception_table(code)  # type: ignore[attr-defined]
        for offset in range(entry.start, entry.end, 2)
    }
    places: set[int] = set()
    last: dis.Instruction | None = None
    for instruction in _instructions(code).values():
        if last is not None and last.opname.startswith("CALL"):
            if handlers.get(last.offset) == handlers.get(instruction.offset):
                places.add(instruction.offset)
        elif instruction.opname.startswith(_JUMPS) and looks_for_signals(code, instruction.offset):
            places.add(instruction.offset)
        last = instruction
    return frozenset(places)
