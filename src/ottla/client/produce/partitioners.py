"""Which partition a record goes to: the choice of Kafka's Java producer, so that a key stays where it has always been.

A key goes by its murmur2 hash. Records without a key stay with one partition until a batch's worth of bytes went
there, and then move on to another, drawn at random (KIP-794): fewer and larger batches than one after the other would
make. The draw favours partitions with little ahead of the next record, so that a slow broker gets less.

`roundrobin` takes one partition after the other, whatever the key. A function of yours is called with the topic, the
key and the value (bytes, or None) and the number of partitions, and answers a partition.
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


class KeyHash:
    """The function that tells a key's partition: the readable one, until a compiled one has been loaded."""

    function: Callable[[bytes, int], int] = staticmethod(partition_of_key)


class TopicPartitioner:
    """For one topic. What is not said to need no lock is under the accumulator's."""

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
        """Whether partitions go by keys, or to stick to."""
        return self._custom is None and not self._takes_turns

    def learn(self, info: TopicInfo, queues: Sequence[PartitionQueue]) -> None:
        """What the topic looks like now. Partitions without a leader are avoided where there is a choice."""
        self.partition_count = len(info.partitions)
        led = [one.index for one in info.partitions if one.leader_id != NO_LEADER]
        self._available = led or range(self.partition_count)
        self._queues = queues

    def choose(self, key: bytes | None, value: bytes | None) -> int | None:
        """A partition for the record; None to `stick`. Needs no lock: a function of the user's is called here."""
        if self._custom is not None:
            return self._by_custom(self._custom, key, value)
        if self._takes_turns:
            return self._available[next(self._turns) % len(self._available)]
        if key is not None and not self.ignores_keys:
            return KeyHash.function(key, self.partition_count)
        return None

    def stick(self) -> int:
        """The partition for records without a key, mostly the one of the last time."""
        if self._bytes_left <= 0 or self._sticky not in self._available:
            self._sticky = self._draw()
            self._bytes_left = self._stay_bytes
        return self._sticky

    def is_sticking_to(self, partition: int) -> bool:
        """Whether the next record without a key goes there."""
        return partition == self._sticky and self._bytes_left > 0

    def took(self, partition: int, size_in_bytes: int) -> None:
        """A batch of that size was closed."""
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
