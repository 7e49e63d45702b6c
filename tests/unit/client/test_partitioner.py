"""Where records go: the same partitions as with Kafka's Java producer."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from ottla.client.partitioner import StickyPartitions, murmur2, partition_of_key

# Given by `org.apache.kafka.common.utils.Utils.murmur2` and `toPositive(…) % n` of kafka-clients 4.3.1: the hash, and
# the partition out of 3, 12 and 1000.
JAVA = [
    ("", 275646681, (0, 9, 681)),
    ("61", 2731586172, (1, 4, 524)),
    ("6162", 316155434, (2, 2, 434)),
    ("616263", 479470107, (0, 3, 107)),
    ("61626364", 2971317748, (2, 8, 100)),
    ("3231", 3321034988, (0, 0, 340)),
    ("666f6f626172", 3504634814, (0, 6, 166)),
    ("612d6c6974746c652d6269742d6c6f6e672d737472696e67", 3308985760, (2, 8, 112)),
    (
        "6c6b6a683233346c68396669756839307932336f697568736166756a6861646f66323239706872396831396838396838",
        4236069325,
        (2, 5, 677),
    ),
    ("ff800001fe", 4121406832, (2, 8, 184)),
    ("c5a06b6f646120f09f9a97", 507018017, (2, 5, 17)),
]


@pytest.mark.parametrize(("key", "hashed", "partitions"), JAVA)
def test_keys_go_where_the_java_producer_sends_them(key: str, hashed: int, partitions: tuple[int, ...]) -> None:
    data = bytes.fromhex(key)
    assert murmur2(data) == hashed
    assert tuple(partition_of_key(data, count) for count in (3, 12, 1000)) == partitions


def test_without_keys_a_partition_is_kept_for_a_batch_and_then_another_one_taken() -> None:
    sticky = StickyPartitions(100, random.Random(1))
    chosen = [sticky.choose(range(3), 50) for _ in range(200)]
    pairs = [chosen[at : at + 2] for at in range(0, len(chosen), 2)]
    assert all(first == second for first, second in pairs)
    assert all(before[0] != after[0] for before, after in pairwise(pairs))
    assert set(chosen) == {0, 1, 2}


def test_without_keys_a_partition_that_lost_its_leader_is_left_at_once() -> None:
    sticky = StickyPartitions(10**9, random.Random(2))
    first = sticky.choose(range(2), 1)
    assert sticky.choose([1 - first], 1) == 1 - first
    assert StickyPartitions(1).choose([0], 5) == 0
