"""Unsigned variable-length integers: seven bits per byte, the lowest first, at most 32 bits in five bytes."""

from __future__ import annotations

from typing import Final

MAX_SIZE: Final = 5
LIMIT: Final = 1 << 32

ONE_BYTE: Final = tuple(bytes((value,)) for value in range(128))
"""Encoded numbers of one byte: nearly every length and tag."""


class OverlongError(Exception):
    """More than five bytes, or more than 32 bits. The codec turns it into an `InvalidVarintError` with its position."""


def read_unsigned(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The number at `at`, and where it ends. `IndexError` at the end of the data."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= LIMIT:
                raise OverlongError
            return value, at
        shift += 7
        if shift == 7 * MAX_SIZE:
            raise OverlongError


def encode_unsigned(value: int) -> bytes:
    if 0 <= value < 128:
        return ONE_BYTE[value]
    if not 0 <= value < LIMIT:
        raise OverflowError(f"{value} is not an unsigned 32-bit integer")
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
