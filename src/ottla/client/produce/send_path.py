"""The path of `send` for nearly every record, for both producers: puts it into the open batch of its partition.

Each part of the record is encoded here, once. If no open batch can take it, the prepared record takes the general path
(`ProducerCore.offer`), as do all records of a producer with interceptors.

A Python call costs a fifth of what a record costs. So the code that appends a record (`Batch.append`) is inlined here,
twice: for records that are only a value, which most are, and for all others. `batch` explains why it needs no lock.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, Generic, TypeVar

from ottla.base.compiling import mypyc_attr
from ottla.client.produce.batch import Batch
from ottla.client.produce.core import ProducerCore
from ottla.client.produce.delivery import Delivery
from ottla.client.produce.queues import TopicQueues
from ottla.client.produce.record import (
    RECORD_OVERHEAD_BYTES,
    PreparedRecord,
    checked_partition,
    checked_timestamp,
    encoded_headers,
)
from ottla.records.header_sections import fast_header_section
from ottla.records.layout import MAX_INT64

Offered = TypeVar("Offered")


@mypyc_attr(allow_interpreted_subclasses=True)
class SendPath(Generic[Offered]):
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
        topic: Any,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        timestamp: Any = None,
        partition: Any = None,
    ) -> Delivery | Offered:
        """Accepts the record. Waits only for an unknown topic and for room, at most max.block.ms.

        The timestamp is in milliseconds since the epoch. Raises `SerializationError`, `RecordTooLargeError`,
        `UnknownTopicError` or `BufferFullError` if the record is not accepted.
        """
        # Any, because a compiled function refuses other types than it declares, with an error of its own. Producers
        # declare the types.
        try:
            queues = self._topics[topic]
        except (KeyError, TypeError):  # unknown, or not a str: the general path raises
            return self._offer(self._core.prepare(topic, value, key, headers, timestamp, partition))

        data = value
        if value.__class__ is not self._value_type:
            data = self._value_bytes(topic, value)

        batch: Batch | None = None
        if key is None and headers is None and timestamp is None and data is not None:
            if partition is None:
                batch = queues.sticky
            elif type(partition) is int and 0 <= partition < queues.partition_count:
                batch = queues.queues[partition].open
            if batch is not None and len(data) <= batch.record_bytes:
                delivery = Delivery()
                delivery.batch = batch
                row: tuple[Any, ...] = (data,)
                if monotonic() >= batch.until_s:
                    batch.stamp()
                if (index := batch.count) < batch.bare_until: batch.count = index + 1; batch.cells += row; delivery.index = index; return delivery  # noqa: E501, E701, E702  # fmt: skip
                batch = None

        if timestamp is not None and not (type(timestamp) is int and 0 <= timestamp <= MAX_INT64):
            timestamp = checked_timestamp(timestamp)
        if partition is not None and not (type(partition) is int and partition >= 0):
            partition = checked_partition(partition)
        size = 0 if data is None else len(data)
        key_bytes = key
        if key is not None:
            if key.__class__ is not self._key_type:
                key_bytes = self._key_bytes(topic, key)
            if key_bytes is not None:
                size += len(key_bytes)
        section = None
        if headers:
            section = fast_header_section(headers) or encoded_headers(topic, headers)
            size += len(section)

        if partition is not None:
            if partition < queues.partition_count:
                batch = queues.queues[partition].open
        elif key_bytes is not None and queues.goes_by_key:
            place = queues.places.get(key_bytes)
            batch = queues.queues[queues.place(key_bytes) if place is None else place].open
        elif queues.is_usual:
            batch = queues.sticky
        else:
            partition = queues.partitioner.choose(key_bytes, data)
            if partition is not None:
                batch = queues.queues[partition].open
        if batch is not None and size <= batch.record_bytes:
            delivery = Delivery()
            delivery.batch = batch
            cells: tuple[Any, ...] = (data, key_bytes, section, timestamp)
            if timestamp is not None:
                batch.has_own_times = True
            elif monotonic() >= batch.until_s:
                batch.stamp()
            if key_bytes is not None:
                batch.has_keys = True
            if section is not None:
                batch.has_headers = True
            if (index := batch.count) < batch.wide_until: batch.count = index + 1; batch.cells += cells; delivery.index = index; return delivery  # noqa: E501, E701, E702  # fmt: skip
        size += RECORD_OVERHEAD_BYTES
        record = PreparedRecord(topic, data, key_bytes, section, timestamp, partition, size)
        return self._offer(self._core.checked(record))
