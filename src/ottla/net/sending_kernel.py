"""Sends the answers of many connections in compiled code, without the interpreter's lock.

Sending a small answer takes the system longer than Python takes to make it. A thread that runs this code does not hold
the interpreter's lock, so the loop continues meanwhile. Importing this module loads numba, and compiles unless
`python -m ottla.net.warm` did so before.
"""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]  # It ships no types.
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from ottla.net.sending_layout import BYTES_MAX, COUNT, DESCRIPTORS, NUMBERS, SENT, SIZES, SLOTS

_WORD = ir.IntType(64)
_WORD_BYTES: Final = 8
_FLAGS: Final = socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0)


def _call(_typing: Any, _function: Any, _first: Any, _second: Any, _third: Any, _fourth: Any) -> Any:
    """Calls a C function by its address. All arguments are 64-bit words; a function with fewer ignores the rest."""

    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        function = builder.inttoptr(arguments[0], ir.FunctionType(_WORD, [_WORD] * 4).as_pointer())
        return builder.call(function, arguments[1:])

    return types.int64(*[types.int64] * 5), emit


_called = cast("Callable[..., int]", intrinsic(_call))


# The layout of batches is an argument, not compiled in: numba does not notice changes in other files.
@njit("void(int64[:], int64[:], int64[:, :], int64, int64, int64, int64[:], int64)", cache=True, nogil=True)
def _send_batches(
    functions: NDArray[np.int64],
    layout: NDArray[np.int64],
    batches: NDArray[np.int64],
    data: int,
    wake: int,
    done: int,
    words: NDArray[np.int64],
    words_at: int,
) -> None:
    read, write, send = functions
    count_at, descriptors_at, sizes_at, sent_at, bytes_max = layout
    number = 0
    while True:
        if _called(read, wake, words_at, _WORD_BYTES, 0) != _WORD_BYTES:
            continue  # interrupted
        for _ in range(words[0]):
            batch = batches[number]
            if batch[count_at] < 0:
                return
            at = data + number * bytes_max
            for answer in range(batch[count_at]):
                size = batch[sizes_at + answer]
                batch[sent_at + answer] = _called(send, batch[descriptors_at + answer], at, size, _FLAGS)
                at += size
            _called(write, done, words_at + _WORD_BYTES, _WORD_BYTES, 0)
            number = (number + 1) % len(batches)


def _address(name: str) -> int:
    function = getattr(ctypes.CDLL(None), name)
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class BatchTable:
    """The memory that the loop and the thread share. `sending_layout` defines the numbers of a batch."""

    def __init__(self) -> None:
        self.numbers: NDArray[np.int64] = np.zeros((SLOTS, NUMBERS), np.int64)
        self._data: NDArray[np.uint8] = np.zeros((SLOTS, BYTES_MAX), np.uint8)
        self.data = [memoryview(row) for row in self._data]
        """The answers of each batch, concatenated."""
        self._functions = np.array([_address(name) for name in ("read", "write", "send")], np.int64)

    def send_until_the_end(self, wake: int, done: int) -> None:
        """Sends one batch for each event of `wake`, and adds an event to `done` after each. Both are eventfds."""
        layout = np.array([COUNT, DESCRIPTORS, SIZES, SENT, BYTES_MAX], np.int64)
        words = np.array([0, 1], np.int64)  # the first receives the count of events, the second is the 1 to write
        _send_batches(
            self._functions, layout, self.numbers, self._data.ctypes.data, wake, done, words, words.ctypes.data
        )
