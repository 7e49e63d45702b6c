"""Where records go: the same partitions as with Kafka's Java producer."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from ottla.base.ids import ZERO_UUID, TopicPartition
from ottla.client.callbacks import Callbacks
from ottla.client.config import ProducerConfig
from ottla.client.metadata import NO_LEADER, PartitionInfo, TopicInfo
from ottla.client.produce import kernels
from ottla.client.produce.accumulator import Accumulator
from ottla.client.produce.partitioners import TopicPartitioner, murmur2, partition_of_key
from ottla.client.produce.queues import PartitionQueue
from unit.client.produce.scripted_log import config

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
    assert tuple(kernels.partition_of_key(data, count) for count in (3, 12, 1000)) == partitions


def test_the_kernels_hash_as_the_readable_function_does() -> None:
    chance = random.Random(1)
    keys = [chance.randbytes(chance.randrange(40)) for _ in range(5000)]
    for count in (1, 7, 1000, 2**31 - 1):
        expected = [partition_of_key(key, count) for key in keys]
        assert [kernels.partition_of_key(key, count) for key in keys] == expected
        ends = np.cumsum([0, *map(len, keys)])
        partitions = np.empty(len(keys), np.int32)
        kernels.partitions_of_keys(ends, np.frombuffer(bytearray(b"".join(keys)), np.uint8), count, partitions)
        assert partitions.tolist() == expected


def partitioner(count: int, leaderless: tuple[int, ...] = (), **changes: object) -> TopicPartitioner:
    made = TopicPartitioner(config(**changes), "events")
    made.learn(info(count, leaderless), queues(config(), count))
    return made


def info(count: int, leaderless: tuple[int, ...] = ()) -> TopicInfo:
    leaders = [NO_LEADER if index in leaderless else 1 for index in range(count)]
    partitions = tuple(PartitionInfo(index, leader, 0, (1,), (1,), ()) for index, leader in enumerate(leaders))
    return TopicInfo("events", ZERO_UUID, False, partitions)


def queues(config: ProducerConfig, count: int) -> list[PartitionQueue]:
    accumulator = Accumulator(config, lambda: None, Callbacks(takes_coroutines=False))
    return [PartitionQueue(accumulator, TopicPartition("events", index)) for index in range(count)]


def test_a_key_decides_unless_it_is_to_be_ignored() -> None:
    assert partitioner(12).choose(b"abc", b"") == 3
    assert partitioner(12).choose(None, b"") is None
    assert partitioner(12, partitioner_ignore_keys=True).choose(b"abc", b"") is None


def test_without_keys_a_partition_is_kept_for_a_batch_and_then_another_one_taken() -> None:
    sticky = partitioner(3, batch_size=100)
    chosen = []
    for _ in range(200):
        chosen.append(sticky.stick())
        assert sticky.is_sticking_to(chosen[-1])
        sticky.took(chosen[-1], 50)
    pairs = [chosen[at : at + 2] for at in range(0, len(chosen), 2)]
    assert all(first == second for first, second in pairs)
    assert all(before[0] != after[0] for before, after in pairwise(pairs))
    assert set(chosen) == {0, 1, 2}


def test_what_others_send_to_a_partition_does_not_count() -> None:
    sticky = partitioner(2, batch_size=100)
    chosen = sticky.stick()
    sticky.took(1 - chosen, 1000)
    assert sticky.stick() == chosen


def test_without_keys_a_partition_that_lost_its_leader_is_left_at_once() -> None:
    sticky = partitioner(2)
    first = sticky.stick()
    sticky.learn(info(2, (first,)), queues(config(), 2))
    assert sticky.stick() == 1 - first
    sticky.learn(info(2, (0, 1)), queues(config(), 2))
    assert sticky.stick() == 1 - first


def test_partitions_with_much_ahead_get_less() -> None:
    counts = {}
    for adaptive in (True, False):
        made = TopicPartitioner(config(partitioner_adaptive_partitioning_enable=adaptive, batch_size=1), "events")
        three = queues(config(), 3)
        three[0].ready.extend([None] * 9)  # type: ignore[list-item]
        made.learn(info(3), three)
        chosen: Counter[int] = Counter()
        for _ in range(3000):
            one = made.stick()
            chosen[one] += 1
            made.took(one, 1)
        counts[adaptive] = chosen
    assert counts[True][0] * 3 < counts[True][1]
    assert counts[False][0] * 2 > counts[False][1]


def test_turns_pass_over_partitions_without_a_leader() -> None:
    turns = partitioner(4, (2,), partitioner="roundrobin")
    chosen = [turns.choose(b"key", b"") for _ in range(300)]
    assert Counter(chosen) == {0: 100, 1: 100, 3: 100}
