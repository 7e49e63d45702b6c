"""Values of committed offsets without metadata, as bytes: see `offsets.records` for the format.

Such a *bare* value always has the same size, and holds offset and leader epoch as requests and responses do.

    version 3 | offset | leader epoch | length of the metadata, 0 | committed at
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

_START: Final = (3).to_bytes(2, "big")
_OFFSET_AND_EPOCH = Struct(">qi")
_NO_METADATA: Final = b"\x00\x00"
_TIME = Struct(">q")
OFFSET_AT: Final = len(_START)
OFFSET_END: Final = OFFSET_AT + _OFFSET_AND_EPOCH.size
"""Offset and leader epoch are between these."""
TIME_AT: Final = OFFSET_END + len(_NO_METADATA)
BARE_VALUE_SIZE: Final = TIME_AT + _TIME.size


def bare_value(offset_and_epoch: bytes, committed_ms: int) -> bytes:
    """The same value that `offsets.records.encode_value` makes, from an offset and a leader epoch that are bytes."""
    return _START + offset_and_epoch + _end(committed_ms)


def is_bare(value: bytes) -> bool:
    """Whether a value has version 3 and no metadata: no other value of that version has its size."""
    return len(value) == BARE_VALUE_SIZE and value.startswith(_START)


@lru_cache(8)
def _end(committed_ms: int) -> bytes:
    return _NO_METADATA + _TIME.pack(committed_ms)
