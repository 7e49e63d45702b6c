"""Lists of `bytes` as the kernels read them: where they lie, without a copy, and without the interpreter's lock.

That takes knowing how CPython lays out a list and a `bytes` object, which is the same from 3.8 on in all builds with a
global lock. Where sizes say otherwise nothing here is used, and lists become Arrow arrays first.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any, Final

from ottla.records import kernels

_REFERENCES_AT: Final = 24
"""In a list: where the address of its references is."""
_AS_KNOWN: Final = (
    sys.implementation.name == "cpython"
    and (object.__basicsize__, list.__basicsize__, bytes.__basicsize__) == (16, 40, kernels.OBJECT_BYTES_AT + 1)
    and getattr(sys, "_is_gil_enabled", lambda: True)()
)


@dataclass(frozen=True, slots=True)
class ByteList:
    """A list of `bytes` and None, and the address of its references: good for as long as nobody changes the list."""

    column: list[bytes | None]
    references: int

    def __len__(self) -> int:
        return len(self.column)


def byte_list(column: Any) -> ByteList | None:
    """The list, if it holds nothing else; None of anything else."""
    if not _AS_KNOWN or type(column) is not list:
        return None
    address = ctypes.c_void_p.from_address(id(column) + _REFERENCES_AT).value or 0
    return ByteList(column, address) if kernels.are_bytes(address, len(column), id(bytes), id(None)) else None
