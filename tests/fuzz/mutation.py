"""Damage done to bytes, of the kinds that break parsers."""

from __future__ import annotations

import random

_TELLING_BYTES = (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)
_TELLING_RUNS = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x7f\xff",
    b"\xff\xff\xff\xff\x0f",  # the largest variable-length number
    b"\xff\xff\xff\xff\x7f",  # five bytes, but more than 32 bits
    b"\x80\x80\x80\x80\x80\x01",  # six bytes
    b"\xc3\x28",  # not UTF-8
)


def mutate(source: random.Random, data: bytes, other: bytes) -> bytes:
    """One to three damages to the data; `other` is what pieces are taken from."""
    damaged = bytearray(data)
    for _ in range(source.choice((1, 1, 2, 3))):
        _damage(source, damaged, other)
    return bytes(damaged)


def _damage(source: random.Random, data: bytearray, other: bytes) -> None:
    at = source.randrange(len(data) + 1)
    match source.randrange(8):
        case 0 if data:
            data[at % len(data)] ^= 1 << source.randrange(8)
        case 1 if data:
            data[at % len(data)] = source.choice(_TELLING_BYTES)
        case 2:
            run = source.choice(_TELLING_RUNS)
            data[at : at + len(run)] = run
        case 3:
            data[at:at] = source.choice(_TELLING_RUNS)
        case 4:
            del data[at:]
        case 5:
            del data[at : at + source.randint(1, 8)]
        case 6:
            start = source.randrange(len(other) + 1)
            data[at:] = other[start : start + source.randint(1, 64)]
        case _:
            data[at:at] = source.randbytes(source.randint(1, 8))
