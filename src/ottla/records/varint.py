"""Variable-length integers of the record format: seven bits per byte, lowest first; signed ones are zigzag-encoded.

Readers take a buffer and a position and return the value with the position after it. They refuse what no writer
produces: a number cut off by the end of the buffer, one longer than its type can need (5 bytes for 32 bits, 10 for 64),
and one whose last byte has bits beyond the type. Padding with zero groups within that length is accepted, as in Kafka.
"""

from __future__ import annotations

from ottla.records.errors import MalformedRecordError
from ottla.records.layout import ByteBuffer

MAX_UINT32 = 2**32 - 1
MAX_UINT64 = 2**64 - 1


def _read(buffer: ByteBuffer, position: int, largest: int) -> tuple[int, int]:
    value = shift = 0
    bits = largest.bit_length()
    end = len(buffer)
    while True:
        if position >= end:
            raise MalformedRecordError(f"a varint is cut off by the end of the data at byte {end}")
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > largest:
                raise MalformedRecordError(f"the varint that ends at byte {position} does not fit {bits} bits: {value}")
            return value, position
        shift += 7
        if shift >= bits:
            raise MalformedRecordError(f"a varint of {bits} bits continues beyond byte {position}, its maximum length")


def read_unsigned_varint(buffer: ByteBuffer, position: int) -> tuple[int, int]:
    """An unsigned 32-bit integer."""
    return _read(buffer, position, MAX_UINT32)


def read_varint(buffer: ByteBuffer, position: int) -> tuple[int, int]:
    """A signed 32-bit integer."""
    folded, position = _read(buffer, position, MAX_UINT32)
    return (folded >> 1) ^ -(folded & 1), position


def read_varlong(buffer: ByteBuffer, position: int) -> tuple[int, int]:
    """A signed 64-bit integer."""
    folded, position = _read(buffer, position, MAX_UINT64)
    return (folded >> 1) ^ -(folded & 1), position


def _write(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def write_varint(out: bytearray, value: int) -> None:
    """Append a signed 32-bit integer."""
    folded = (value << 1) if value >= 0 else (-value << 1) - 1
    if folded > MAX_UINT32:
        raise ValueError(f"{value} does not fit a 32-bit varint")
    _write(out, folded)


def write_varlong(out: bytearray, value: int) -> None:
    """Append a signed 64-bit integer."""
    folded = (value << 1) if value >= 0 else (-value << 1) - 1
    if folded > MAX_UINT64:
        raise ValueError(f"{value} does not fit a 64-bit varint")
    _write(out, folded)


def size_of_unsigned_varint(value: int) -> int:
    """Bytes that `write_unsigned_varint` appends."""
    return (value.bit_length() + 6) // 7 or 1


def size_of_varint(value: int) -> int:
    """Bytes that `write_varint` and `write_varlong` append: both encode a 32-bit number in the same way."""
    return size_of_unsigned_varint((value << 1) if value >= 0 else (-value << 1) - 1)
