"""Which partition of a coordinator's topic is responsible for a key."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(16_384)
def partition_for(key: str, partition_count: int) -> int:
    """Kafka's choice: Java's hash of the string, over its UTF-16 code units, without its sign."""
    value = 0
    encoded = key.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(encoded), 2):
        value = (31 * value + int.from_bytes(encoded[at : at + 2], "big")) & 0xFFFFFFFF
    signed = value - (1 << 32) if value & 0x80000000 else value
    return (0 if signed == -(1 << 31) else abs(signed)) % partition_count
