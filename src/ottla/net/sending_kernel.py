"""Sends the answers of many connections, one after the other, without the interpreter.

To send a small answer costs the system more than the interpreter takes to make it, and nothing of that needs the
interpreter: a thread that runs this holds no lock of it, so the loop goes on meanwhile. Importing it loads numba, and
compiles where nobody ran `python -m ottla.net.warm`.
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

from ottla.net.sender import BYTES_MAX, COUNT, DESCRIPTORS, NUMBERS, SENT, SIZES, SLOTS

_WORD = ir.IntType(64)
_WORD_BYTES: Final = 8
_FLAGS: Final = socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0)


def _call(_typing: Any, _function: Any, _first: Any, _second: Any, _third: Any, _fourth: Any) -> Any:
    """A function of C's library by its address. All arguments are words; one that takes fewer looks at no more."""

    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        function = builder.inttoptr(arguments[0], ir.FunctionType(_WORD, [_WORD] * 4).as_pointer())
        return builder.call(function, arguments[1:])

    return types.int64(*[types.int64] * 5), emit


_called = cast("Callable[..., int]", intrinsic(_call))


# How batches are laid out is an argument, and not compiled in: numba would not see that another file has changed.
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
    """What the loop and the thread share: see `sender` for the numbers of a batch."""

    def __init__(self) -> None:
        self.numbers: NDArray[np.int64] = np.zeros((SLOTS, NUMBERS), np.int64)
        self._data: NDArray[np.uint8] = np.zeros((SLOTS, BYTES_MAX), np.uint8)
        self.data = [memoryview(row) for row in self._data]
        """Of each batch, the answers one behind the other."""
        self._functions = np.array([_address(name) for name in ("read", "write", "send")], np.int64)

    def send_until_the_end(self, wake: int, done: int) -> None:
        """Sends a batch after the other, as often as `wake` is written to, and writes to `done` behind each: both are
        descriptors that count events."""
        layout = np.array([COUNT, DESCRIPTORS, SIZES, SENT, BYTES_MAX], np.int64)
        words = np.array([0, 1], np.int64)  # where to read the count of events, and one to write
        _send_batches(
            self._functions, layout, self.numbers, self._data.ctypes.data, wake, done, words, words.ctypes.data
        )
