"""Removes records from the garbage collector's list.

A record is a tuple, and the collector scans every tuple of a subclass, again and again while it is young: a third of
the cost to create and drop one. The collector exists for cycles, and a record of strings, numbers and bytes cannot be
in one, because it never changes. So records are untracked, as CPython itself does with plain tuples of that kind.

This is a kernel, because one Python call per record would cost as much as it gains. It calls two functions of Python's
C API per record while it holds the GIL. Importing it loads numba, and compiles if the cache is cold.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any, Final, cast

from llvmlite import ir  # type: ignore[import-untyped]  # It ships no types.
from numba import njit, types
from numba.extending import intrinsic

_WORD = ir.IntType(64)


def _primitive(function: Callable[..., Any]) -> Callable[..., Any]:
    return cast("Callable[..., Any]", intrinsic(function))


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


IS_POSSIBLE: Final = sys.implementation.name == "cpython"
_GET_ITEM: Final = _address(ctypes.pythonapi.PyList_GetItem) if IS_POSSIBLE else 0
_UNTRACK: Final = _address(ctypes.pythonapi.PyObject_GC_UnTrack) if IS_POSSIBLE else 0


@_primitive
def _call_get_item(_typing: Any, _function: Any, _list: Any, _index: Any) -> Any:
    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        function = builder.inttoptr(arguments[0], ir.FunctionType(_WORD, [_WORD, _WORD]).as_pointer())
        return builder.call(function, arguments[1:])

    return types.int64(types.int64, types.int64, types.int64), emit


@_primitive
def _call_untrack(_typing: Any, _function: Any, _object: Any) -> Any:
    def emit(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        function = builder.inttoptr(arguments[0], ir.FunctionType(ir.VoidType(), [_WORD]).as_pointer())
        builder.call(function, arguments[1:])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@njit("void(int64, int64, int64, int64)", cache=True)
def _untrack(records: int, size: int, get_item: int, untrack: int) -> None:
    for index in range(size):
        _call_untrack(untrack, _call_get_item(get_item, records, index))


def untrack(records: list[Any]) -> None:
    """Untracks the objects in the list. They must be of a kind that cannot be part of a cycle."""
    if IS_POSSIBLE:
        _untrack(id(records), len(records), _GET_ITEM, _UNTRACK)
