"""A topic for a test of the source, and what is done to it, by Ottla's own clients."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ottla.base.ids import TopicPartition
from ottla.client.administer import Admin, NewTopic
from ottla.client.errors import RefusedError
from ottla.client.produce import Producer

WAIT_S = 120
"""Only a failure waits that long."""


class TopicData:
    """One topic, with values that are texts."""

    def __init__(self, bootstrap: str, name: str | None = None, partitions: int = 1) -> None:
        self.bootstrap = bootstrap
        self.name = name or f"topic-{uuid.uuid4().hex[:12]}"
        self.create(partitions)

    def partition(self, index: int) -> TopicPartition:
        return TopicPartition(self.name, index)

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            yield admin

    def create(self, partitions: int = 1) -> None:
        """Also once more, after `delete`, which takes a moment to be done."""
        deadline_s = time.monotonic() + WAIT_S
        with self.admin() as admin:
            while True:
                try:
                    admin.create_topics([NewTopic(self.name, partitions)])
                except RefusedError:
                    if time.monotonic() > deadline_s:
                        raise
                    time.sleep(0.05)
                else:
                    return

    def delete(self) -> None:
        with self.admin() as admin:
            admin.delete_topics([self.name])

    def grow(self, partitions: int) -> None:
        with self.admin() as admin:
            admin.create_partitions({self.name: partitions})

    def delete_before(self, offset: int, partition: int = 0) -> None:
        with self.admin() as admin:
            admin.delete_records({self.partition(partition): offset})

    def send(
        self,
        values: Iterable[object],
        partition: int = 0,
        *,
        timestamp_ms: int | None = None,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> None:
        """Each with the key k-<value>; returns when the broker has them."""
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            for value in values:
                producer.send(
                    self.name,
                    value=str(value).encode(),
                    key=f"k-{value}".encode(),
                    partition=partition,
                    timestamp=timestamp_ms,
                    headers=headers,
                )
            producer.flush()

    def committed(self, group: str) -> dict[int, int]:
        """Offsets that the group committed, by partition."""
        with self.admin() as admin:
            offsets = admin.list_consumer_group_offsets(group)
        return {partition.partition: one.offset for partition, one in offsets.items() if partition.topic == self.name}
