"""Ottla: event streaming that speaks Kafka's protocol, written in Python, with pipelines on Spark.

The clients are here: `from ottla import Producer, Consumer, Admin`, and their asyncio faces. Each is loaded when it is
first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.base.errors import OttlaError
    from ottla.base.ids import TopicPartition
    from ottla.client.administer import Admin, AsyncAdmin
    from ottla.client.consume import AsyncConsumer, Consumer, ConsumerRecord
    from ottla.client.exactly_once import async_exactly_once, exactly_once
    from ottla.client.offsets import OffsetAndMetadata
    from ottla.client.produce import AsyncProducer, Producer, RecordMetadata
    from ottla.client.tables import AsyncTableView, TableView
    from ottla.client.transactions import PreparedTransaction

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncTableView",
    "Consumer",
    "ConsumerRecord",
    "OffsetAndMetadata",
    "OttlaError",
    "PreparedTransaction",
    "Producer",
    "RecordMetadata",
    "TableView",
    "TopicPartition",
    "async_exactly_once",
    "exactly_once",
]

__version__ = "0.1.0.dev0"

_HOMES: Final = {
    "Admin": "ottla.client.administer",
    "AsyncAdmin": "ottla.client.administer",
    "AsyncConsumer": "ottla.client.consume",
    "AsyncProducer": "ottla.client.produce",
    "AsyncTableView": "ottla.client.tables",
    "Consumer": "ottla.client.consume",
    "ConsumerRecord": "ottla.client.consume",
    "OffsetAndMetadata": "ottla.client.offsets",
    "OttlaError": "ottla.base.errors",
    "PreparedTransaction": "ottla.client.transactions",
    "Producer": "ottla.client.produce",
    "RecordMetadata": "ottla.client.produce",
    "TableView": "ottla.client.tables",
    "TopicPartition": "ottla.base.ids",
    "async_exactly_once": "ottla.client.exactly_once",
    "exactly_once": "ottla.client.exactly_once",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
