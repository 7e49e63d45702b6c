"""Lists of `bytes` for the kernels, which read them in place, without a copy and without the GIL.

That requires knowledge of CPython's layout of lists and `bytes` objects, which has been the same since 3.8 in all
builds with a GIL. If sizes differ, nothing here is used, and lists become Arrow arrays first.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any, Final

from ottla.records import kernels

_REFERENCES_AT: Final = 24
"""The offset in a list object of the address of its references."""
_AS_KNOWN: Final = (
    sys.implementation.name == "cpython"
    and (object.__basicsize__, list.__basicsize__, bytes.__basicsize__) == (16, 40, kernels.OBJECT_BYTES_AT + 1)
    and getattr(sys, "_is_gil_enabled", lambda: True)()
)


@dataclass(frozen=True, slots=True)
class ByteList:
    """A list of `bytes` and None, and the address of its references: valid as long as nobody changes the list."""

    column: list[bytes | None]
    references: int

    def __len__(self) -> int:
        return len(self.column)


def byte_list(column: Any) -> ByteList | None:
    """The list, if it contains nothing else; otherwise None."""
    if not _AS_KNOWN or type(column) is not list:
        return None
    address = ctypes.c_void_p.from_address(id(column) + _REFERENCES_AT).value or 0
    return ByteList(column, address) if kernels.are_bytes(address, len(column), id(bytes), id(None)) else None
