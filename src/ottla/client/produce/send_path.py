"""What `send` does for nearly every record, for both producers: puts it into the open batch of its partition, and ends.

Each part of the record is brought to bytes here, once. If there is no open batch that can take it, the record goes on
as it was prepared, by the general way (`ProducerCore.offer`), as do all records of a producer with interceptors.

A call of a Python function costs a fifth of what a record costs. So for records that are nothing but a value, which
most are, what `Batch.append` does is written out here; of the steps and their order, see there.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from time import monotonic
from typing import Any, Generic, TypeVar

from ottla.client.produce.accumulator import TopicQueues
from ottla.client.produce.batch import Batch
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
    """Of one producer. Can be used by any number of threads."""

    def __init__(self, core: ProducerCore, offer: Callable[[PreparedRecord], Offered]) -> None:
        """`offer` takes what is not taken here, and its answer is that of `send`."""
        self._core = core
        self._accumulator = core.accumulator
        self._topics: dict[str, TopicQueues] = {} if core.interceptors else core.accumulator.known
        self._key_bytes = core.key_bytes
        self._value_bytes = core.value_bytes
        self._key_type = bytes if core.config.key_serializer is None else None
        self._value_type = bytes if core.config.value_serializer is None else None
        """What is taken as it is: bytes, where no serializer is to be asked."""
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
        """Takes the record; waits only for a topic that is not known yet, and for room, at most max.block.ms.

        The timestamp is in milliseconds since 1970. Raises `SerializationError`, `RecordTooLargeError`,
        `UnknownTopicError` or `BufferFullError` if the record is not taken.
        """
        try:
            queues = self._topics.get(topic)
        except TypeError:  # no str: the general way says so
            queues = None
        if queues is None:
            return self._offer(self._core.prepare(topic, value, key, headers, timestamp, partition))

        data: Any = value
        if value.__class__ is not self._value_type:
            data = self._value_bytes(topic, value)

        batch: Batch | None
        if key is None and headers is None and timestamp is None and data is not None:
            # Nothing but a value: what `Batch.append` does, less what a batch of values alone does not need.
            if partition is None:
                batch = queues.sticky
            elif partition.__class__ is int and 0 <= partition < queues.partition_count:
                batch = queues.queues[partition].open
            else:
                batch = None
            if batch is not None and batch.owner == get_ident() and len(data) <= batch.value_bytes:
                values, stamps = batch.values, batch.stamps
                index = len(values)
                if index < batch.room_until:  # to be asked after both lists were taken
                    if monotonic() >= batch.until_s:
                        batch.stamp(stamps, index)
                    delivery = Delivery()
                    delivery.batch = batch
                    delivery.index = index
                    values.append(data)
                    if not batch.is_closed or batch.queue.has_taken(delivery):
                        return delivery

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
            if batch.owner == get_ident():
                taken = batch.append(data, key_bytes, section, timestamp, size)
            elif batch.owner == 0:
                with self._accumulator.lock:
                    taken = batch.append(data, key_bytes, section, timestamp, size)
            if taken is not None:
                return taken
        record = PreparedRecord(topic, data, key_bytes, section, timestamp, partition, size)
        return self._offer(self._core.checked(record))
