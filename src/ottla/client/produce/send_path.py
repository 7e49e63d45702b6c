"""The path of `send` for nearly every record, for both producers: puts it into the open batch of its partition.

Each part of the record is encoded here, once. If no open batch can take it, the prepared record takes the general path
(`ProducerCore.offer`), as do all records of a producer with interceptors.

A Python call costs a fifth of what a record costs. So for records that are only a value, which most are, the code of
`Batch.append` is inlined here; the steps and their order are explained there.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from time import monotonic
from typing import Any, Generic, TypeVar

from ottla.client.produce.accumulator import TopicQueues
from ottla.client.produce.batch import BUSY, Batch
from ottla.client.produce.core import ProducerCore
from ottla.client.produce.delivery import Delivery
from ottla.client.produce.record import (
    RECORD_OVERHEAD_BYTES,
    Headers,
    PreparedRecord,
    checked_partition,
    checked_timestamp,
    encoded_headers,
)
from ottla.records.layout import MAX_INT64

K = TypeVar("K")
V = TypeVar("V")
Offered = TypeVar("Offered")


class SendPath(Generic[K, V, Offered]):
    """Belongs to one producer. Thread-safe."""

    def __init__(self, core: ProducerCore, offer: Callable[[PreparedRecord], Offered]) -> None:
        """`offer` takes what is not taken here; `send` returns its result."""
        self._core = core
        self._accumulator = core.accumulator
        self._topics: dict[str, TopicQueues] = {} if core.interceptors else core.accumulator.known
        self._key_bytes = core.key_bytes
        self._value_bytes = core.value_bytes
        self._key_type = bytes if core.config.key_serializer is None else None
        self._value_type = bytes if core.config.value_serializer is None else None
        """The type that is taken as it is: bytes, if there is no serializer."""
        self._offer = offer

    def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> Delivery | Offered:
        """Accepts the record. Waits only for an unknown topic and for room, at most max.block.ms.

        The timestamp is in milliseconds since the epoch. Raises `SerializationError`, `RecordTooLargeError`,
        `UnknownTopicError` or `BufferFullError` if the record is not accepted.
        """
        try:
            queues = self._topics.get(topic)
        except TypeError:  # not a str: the general path raises
            queues = None
        if queues is None:
            return self._offer(self._core.prepare(topic, value, key, headers, timestamp, partition))

        data: Any = value
        if value.__class__ is not self._value_type:
            data = self._value_bytes(topic, value)

        batch: Batch | None
        if key is None and headers is None and timestamp is None and data is not None:
            # Only a value: `Batch.append`, without what a batch of only values does not need.
            if partition is None:
                batch = queues.sticky
            elif partition.__class__ is int and 0 <= partition < queues.partition_count:
                batch = queues.queues[partition].open
            else:
                batch = None
            if batch is not None and (owner := batch.owner) == get_ident() and len(data) <= batch.value_bytes:
                batch.owner = BUSY
                values, stamps = batch.values, batch.stamps
                index = len(values)
                if index < batch.room_until:  # must be read after both lists
                    if monotonic() >= batch.until_s:
                        batch.stamp(stamps, index)
                    delivery = Delivery()
                    delivery.batch = batch
                    delivery.index = index
                    values.append(data)
                    if not batch.is_closed or batch.queue.has_taken(delivery):
                        batch.owner = owner
                        return delivery
                batch.owner = owner

        if timestamp is not None and not (timestamp.__class__ is int and 0 <= timestamp <= MAX_INT64):
            timestamp = checked_timestamp(timestamp)
        if partition is not None and not (partition.__class__ is int and partition >= 0):
            partition = checked_partition(partition)
        key_bytes: Any = key
        section = None
        size = RECORD_OVERHEAD_BYTES
        if data is not None:
            size += len(data)
        if key is not None:
            if key.__class__ is not self._key_type:
                key_bytes = self._key_bytes(topic, key)
            if key_bytes is not None:
                size += len(key_bytes)
        if headers:
            section = encoded_headers(topic, headers)
            size += len(section)

        batch = None
        if partition is None:
            if queues.is_usual:
                if key_bytes is None or not queues.goes_by_key:
                    batch = queues.sticky
                else:
                    place = queues.places.get(key_bytes)
                    batch = queues.queues[queues.place(key_bytes) if place is None else place].open
            else:
                partition = queues.partitioner.choose(key_bytes, data)
        if partition is not None and partition < queues.partition_count:
            batch = queues.queues[partition].open
        if batch is not None:
            taken: Delivery | None = None
            owner = batch.owner
            if owner == get_ident():
                batch.owner = BUSY
                taken = batch.append(data, key_bytes, section, timestamp, size)
                batch.owner = owner
            elif owner == 0:
                with self._accumulator.lock:
                    if batch.owner == 0:
                        batch.owner = BUSY
                        taken = batch.append(data, key_bytes, section, timestamp, size)
                        batch.owner = owner
            if taken is not None:
                return taken
        record = PreparedRecord(topic, data, key_bytes, section, timestamp, partition, size)
        return self._offer(self._core.checked(record))
