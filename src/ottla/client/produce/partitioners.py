"""Chooses the partition of a record, like Kafka's Java producer, so that a key stays in the same partition.

A key is hashed with murmur2. Records without a key stick to one partition until it got a batch's worth of bytes, and
then move to another, chosen at random (KIP-794): that makes fewer and larger batches than round-robin. The choice
prefers partitions with little ahead of the next record, so that a slow broker gets less.

`roundrobin` uses one partition after the other, whatever the key. A function of yours is called with the topic, the key
and the value (bytes or None) and the number of partitions, and returns a partition.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Final

from ottla.client.arguments import whole_number
from ottla.client.config import ProducerConfig
from ottla.client.errors import ArgumentTypeError, ClientError
from ottla.client.metadata import NO_LEADER, TopicInfo

if TYPE_CHECKING:
    from ottla.client.produce.queues import PartitionQueue

Partitioner = Callable[[str, bytes | None, bytes | None, int], int]

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_NOWHERE: Final = -1


def murmur2(data: bytes) -> int:
    """The unsigned 32-bit hash of the data, with the seed that all Kafka clients use."""
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
    """The partition of all records with this key, as long as the topic has that many partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class KeyHash:
    """The function that maps a key to its partition: the readable one, until a compiled one is loaded."""

    function: Callable[[bytes, int], int] = staticmethod(partition_of_key)


class TopicPartitioner:
    """Chooses partitions of one topic. Needs the accumulator's lock unless stated otherwise."""

    __slots__ = (
        "_available",
        "_bytes_left",
        "_custom",
        "_is_adaptive",
        "_queues",
        "_stay_bytes",
        "_sticky",
        "_takes_turns",
        "_topic",
        "_turns",
        "ignores_keys",
        "partition_count",
    )

    def __init__(self, config: ProducerConfig, topic: str) -> None:
        partitioner = config.partitioner
        self._topic = topic
        self._custom: Partitioner | None = partitioner if callable(partitioner) else None
        self._takes_turns = partitioner == "roundrobin"
        self.ignores_keys = config.partitioner_ignore_keys
        self._is_adaptive = config.partitioner_adaptive_partitioning_enable
        self._stay_bytes = max(config.batch_size, 1)
        self.partition_count = 0
        self._available: Sequence[int] = ()
        self._queues: Sequence[PartitionQueue] = ()
        self._sticky = _NOWHERE
        self._bytes_left = 0
        self._turns = count(random.randrange(1 << 30))

    @property
    def is_usual(self) -> bool:
        """Whether records are partitioned by key or stick to a partition."""
        return self._custom is None and not self._takes_turns

    def learn(self, info: TopicInfo, queues: Sequence[PartitionQueue]) -> None:
        """Sets the current state of the topic. Partitions without a leader are avoided if there is a choice."""
        self.partition_count = len(info.partitions)
        led = [one.index for one in info.partitions if one.leader_id != NO_LEADER]
        self._available = led or range(self.partition_count)
        self._queues = queues

    def choose(self, key: bytes | None, value: bytes | None) -> int | None:
        """Returns a partition for the record; None to `stick`. Needs no lock: it may call a function of the user."""
        if self._custom is not None:
            return self._by_custom(self._custom, key, value)
        if self._takes_turns:
            return self._available[next(self._turns) % len(self._available)]
        if key is not None and not self.ignores_keys:
            return KeyHash.function(key, self.partition_count)
        return None

    def stick(self) -> int:
        """Returns the partition for records without a key, usually the same as last time."""
        if self._bytes_left <= 0 or self._sticky not in self._available:
            self._sticky = self._draw()
            self._bytes_left = self._stay_bytes
        return self._sticky

    def is_sticking_to(self, partition: int) -> bool:
        """Whether the next record without a key goes there."""
        return partition == self._sticky and self._bytes_left > 0

    def took(self, partition: int, size_in_bytes: int) -> None:
        """Called when a batch of that size was closed."""
        if partition == self._sticky:
            self._bytes_left -= size_in_bytes

    def _draw(self) -> int:
        others = [one for one in self._available if one != self._sticky] or list(self._available)
        if not self._is_adaptive or len(others) == 1:
            return random.choice(others)
        ahead = [self._queues[one].waiting for one in others]
        most = max(ahead) + 1
        return random.choices(others, [most - one for one in ahead])[0]

    def _by_custom(self, custom: Partitioner, key: bytes | None, value: bytes | None) -> int:
        partition = custom(self._topic, key, value, self.partition_count)
        try:
            partition = whole_number("partition", partition)
        except TypeError:
            raise ArgumentTypeError(f"the partitioner {custom!r} must return an int, not {partition!r}") from None
        if not 0 <= partition < self.partition_count:
            where = f"topic {self._topic!r} has partitions 0 to {self.partition_count - 1}"
            raise ClientError(f"the partitioner {custom!r} chose partition {partition!r}: {where}")
        return partition
