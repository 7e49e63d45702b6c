"""Queries over streams and tables that run in acts: send records, run a query to the end, look at what it emits.

Each act continues from the checkpoint of the one before, so that state is read back from it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Row

from ottla.client.administer import Admin, NewTopic
from ottla.client.produce import Producer
from support.topic_data import WAIT_S


class Record(NamedTuple):
    """A record to send."""

    key: str | None
    value: str | None
    at_ms: int = 1000


class Topics:
    """Compacted topics of a test. Records of a key go to the same partition."""

    def __init__(self, bootstrap: str, partitions: int = 2) -> None:
        self.options = {"kafka.bootstrap.servers": bootstrap, "commitOffsets": "false"}
        self._bootstrap = bootstrap
        self._partitions = partitions
        self._suffix = uuid.uuid4().hex[:12]

    def create(self, *names: str, policy: str = "compact", partitions: int | None = None) -> None:
        new = [
            NewTopic(self.name(name), partitions or self._partitions, configs={"cleanup.policy": policy})
            for name in names
        ]
        with Admin(bootstrap_servers=self._bootstrap) as admin:
            admin.create_topics(new)

    def name(self, name: str) -> str:
        return f"{name}-{self._suffix}"

    def send(self, name: str, records: Sequence[Record]) -> None:
        with Producer(bootstrap_servers=self._bootstrap) as producer:
            for key, value, at_ms in records:
                producer.send(
                    self.name(name),
                    None if value is None else value.encode(),
                    key=None if key is None else key.encode(),
                    timestamp=at_ms,
                )
            producer.flush()


class Play:
    """A query that runs act by act."""

    def __init__(self, frame: Callable[[], DataFrame], place: Path) -> None:
        self._frame = frame
        self._checkpoint = place / uuid.uuid4().hex

    def act(self) -> list[Row]:
        """What the query emits for the records that are there, in one or more micro-batches."""
        emitted: list[Row] = []

        def keep(batch: DataFrame, number: int) -> None:  # noqa: ARG001 - Spark gives it
            emitted.extend(batch.collect())

        writer = self._frame().writeStream.foreachBatch(keep).option("checkpointLocation", str(self._checkpoint))
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(WAIT_S):
            query.stop()
            raise AssertionError(f"the query did not end in {WAIT_S} s")
        return emitted


def updated(table: dict[Any, Any], rows: Sequence[Row]) -> None:
    """Applies the rows of a table: null deletes."""
    for row in sorted(rows, key=lambda one: one.offset):
        if row.value is None:
            table.pop(row.key, None)
        else:
            table[row.key] = tuple(row.value) if isinstance(row.value, Row) else row.value
