"""Groups belong to the same partitions as in Kafka."""

from __future__ import annotations

import pytest

from ottla.coordinator.partitioning import partition_for


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("group", 98_629_247),
        ("polygenelubricants", 0),  # the one number without a positive counterpart
        ("ü🐸", 2_014_615),
        ("console-consumer-12345", 158_455_506),
    ],
)
def test_partitions_are_those_of_kafka(key: str, hashed: int) -> None:
    """Made by Java: Utils.abs(key.hashCode())."""
    assert partition_for(key, 2**31) == hashed
    assert partition_for(key, 50) == hashed % 50
