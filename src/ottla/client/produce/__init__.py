"""Producing: collects records in batches, and sends batches to the leaders of their partitions.

The path of a record: `send_path` (any thread) → `accumulator`, the open batch of its partition → `sender` (the loop),
when the batch is full, has lingered, or a caller waits for it → `encoding` → `channel`, one per broker, several
requests in flight → the response settles the `batch`, and with it the `Delivery` of every record in it.
"""

from ottla.client.produce.async_producer import AsyncProducer
from ottla.client.produce.delivery import Delivery, RecordMetadata
from ottla.client.produce.producer import Producer
from ottla.client.produce.record import ProducerRecord
from ottla.client.produce.table_delivery import BatchMetadata, TableDelivery

__all__ = [
    "AsyncProducer",
    "BatchMetadata",
    "Delivery",
    "Producer",
    "ProducerRecord",
    "RecordMetadata",
    "TableDelivery",
]
