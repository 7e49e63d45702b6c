"""Which partition a record goes to: the choice of Kafka's Java producer, so that a key stays where it has always been.

A key goes by its murmur2 hash. Records without a key stay with one partition until a batch's worth of bytes went there,
and then move on to another, drawn at random (KIP-794): fewer and larger batches than one after the other would make.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash of the data, unsigned, with the seed that Kafka's clients agree on."""
    size = len(data)
    whole = size & ~3
    state = _SEED ^ size
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        word = word * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        state = state * _M & _MASK ^ word
    if size > whole:
        state = (state ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    state = (state ^ state >> 13) * _M & _MASK
    return state ^ state >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Where all records with this key go, for as long as the topic has that many partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartitions:
    """Partitions of one topic for records without a key."""

    __slots__ = ("_bytes_left", "_partition", "_random", "_stay_bytes")

    def __init__(self, stay_bytes: int, source: random.Random | None = None) -> None:
        self._stay_bytes = stay_bytes
        self._random = source or random.Random()
        self._partition = -1
        self._bytes_left = 0

    def choose(self, candidates: Sequence[int], size_in_bytes: int) -> int:
        """One of the candidates, mostly the one of the last time."""
        if self._bytes_left <= 0 or self._partition not in candidates:
            others = [one for one in candidates if one != self._partition]
            self._partition = self._random.choice(others or candidates)
            self._bytes_left = self._stay_bytes
        self._bytes_left -= size_in_bytes
        return self._partition
