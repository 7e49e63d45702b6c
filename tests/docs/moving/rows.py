"""A topic on which rows of the tables are tried, and where the functions that try them are registered."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from ottla import Admin, Consumer, Producer, TopicPartition

WAIT_S = 30


class Place(NamedTuple):
    """A topic with one partition and three records: 0, 1, 2 at the times 1000, 2000, 3000."""

    bootstrap: str
    topic: str

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)

    def settings(self, **more: object) -> dict[str, Any]:
        dotted = {name.replace("_", "."): value for name, value in more.items()}
        usual = {"bootstrap.servers": self.bootstrap, "group.id": f"g-{uuid.uuid4()}", "auto.offset.reset": "earliest"}
        return {**usual, "enable.auto.commit": False, **dotted}

    def keywords(self, **more: object) -> dict[str, Any]:
        return {name.replace(".", "_"): value for name, value in self.settings(**more).items()}

    def producer(self, **more: object) -> Producer[Any, Any]:
        return Producer({"bootstrap.servers": self.bootstrap, **{k.replace("_", "."): v for k, v in more.items()}})

    def values(self) -> list[bytes]:
        """All that the topic has."""
        with Consumer(self.settings()) as consumer:
            consumer.assign([self.partition])
            end = consumer.end_offsets([self.partition])[self.partition]
            consumer.seek(self.partition, 0, until=end)
            return [record.value for record in consumer]

    def values_of_transactions(self) -> list[bytes]:
        """What committed transactions have added."""
        with Consumer(self.settings(isolation_level="read_committed")) as consumer:
            consumer.assign([self.partition])
            with Consumer(self.settings()) as other:
                end = other.end_offsets([self.partition])[self.partition]
            consumer.seek(self.partition, 3, until=end)
            return [record.value for record in consumer]


Row = Callable[[Place], None]
ROWS: dict[str, dict[str, Row]] = {"confluent-kafka": {}, "kafka-python": {}, "aiokafka": {}}


def row(client: str, left: str) -> Callable[[Row], Row]:
    def register(function: Row) -> Row:
        ROWS[client][left] = function
        return function

    return register


def async_row(left: str) -> Callable[[Callable[[Place], Awaitable[None]]], None]:
    def register(function: Callable[[Place], Awaitable[None]]) -> None:
        async def bounded(place: Place) -> None:
            async with asyncio.timeout(WAIT_S):
                await function(place)

        ROWS["aiokafka"][left] = lambda place: asyncio.run(bounded(place))

    return register


def committed_by(place: Place, commit: Callable[[Any], object]) -> int:
    """What the group has committed after a poll of two records and this, and a close."""
    settings = place.settings()
    with Consumer(settings) as consumer:
        consumer.subscribe([place.topic])
        assert len(consumer.poll(WAIT_S, max_records=2)) == 2
        commit(consumer)
    with Admin(bootstrap_servers=place.bootstrap) as admin:
        return admin.list_consumer_group_offsets(settings["group.id"])[place.partition].offset
