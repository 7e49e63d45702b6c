"""A connector and a broker that meet, and what another client sees there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from compat.spark.both_connectors import OURS, SPARKS, Row, Spark, Streamed
from support.clients.confluent_client import ConfluentClient
from support.clients.dialect import CONSUMER, ConsumerSettings, Record


@dataclass(frozen=True, slots=True)
class Pair:
    connector: str
    broker: str

    def __str__(self) -> str:
        return f"{self.connector}-on-{self.broker}"


BOTH = (Pair(SPARKS, "ottla"), Pair(OURS, "ottla"))
OURS_ON_KAFKA = (Pair(OURS, "kafka-3.9.1"), Pair(OURS, "kafka-4.3.1"))


def on(*pairs: Pair) -> pytest.MarkDecorator:
    """Runs a test with these pairs."""
    return pytest.mark.parametrize(
        ("bootstrap", "connector"),
        [pytest.param(pair.broker, pair.connector, id=str(pair)) for pair in pairs],
        indirect=["bootstrap"],
        scope="session",
    )


everywhere = on(*BOTH, *OURS_ON_KAFKA)


@dataclass(frozen=True, slots=True)
class Side:
    """Queries by one connector on one broker, as a job writes them but for the address."""

    connector: str
    bootstrap: str
    spark: Spark

    @property
    def confluent(self) -> ConfluentClient:
        return ConfluentClient(self.bootstrap)

    def create(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        with self.confluent.admin() as admin:
            admin.create_topic(topic, partitions, config=config)
        return topic

    def produce(self, topic: str, *records: Record) -> None:
        self.confluent.produce(topic, records)

    def seen(
        self,
        topic: str,
        count: int,
        partitions: Sequence[int] = (0,),
        *,
        headers: bool = False,
        settings: ConsumerSettings = CONSUMER,
    ) -> list[Row]:
        """What librdkafka reads, as rows."""
        return sorted(
            Row.of(topic, seen, headers) for seen in self.confluent.consume(topic, count, partitions, settings)
        )

    def read(self, options: Mapping[str, str]) -> list[Row]:
        return sorted(row for task in self.read_by_task(options) for row in task)

    def read_by_task(self, options: Mapping[str, str]) -> list[list[Row]]:
        return self.spark.read(self.connector, self.addressed(options))

    def read_columns(self, options: Mapping[str, str], *columns: str) -> list[dict[str, Any]]:
        return self.spark.read_columns(self.connector, self.addressed(options), columns)

    def count(self, options: Mapping[str, str]) -> int:
        return self.spark.count(self.connector, self.addressed(options))

    def schema(self, options: Mapping[str, str]) -> Any:
        return self.spark.schema(self.connector, self.addressed(options))

    def stream(self, options: Mapping[str, str], checkpoint: Path) -> Streamed:
        return self.spark.stream(self.connector, self.addressed(options), checkpoint)

    def write(self, options: Mapping[str, str], schema: str, *rows: Sequence[Any]) -> None:
        self.spark.write(self.connector, self.addressed(options), schema, rows)

    def copy(
        self, read: Mapping[str, str], columns: Sequence[str], write: Mapping[str, str], checkpoint: Path
    ) -> list[dict[str, Any]]:
        """Streams from topic to topic, with this connector on both ends."""
        read, write = self.addressed(read), self.addressed(write)
        return self.spark.copy(self.connector, read, columns, self.connector, write, checkpoint)

    def addressed(self, options: Mapping[str, str]) -> dict[str, str]:
        # A query that must fail fails soon.
        return {"kafka.bootstrap.servers": self.bootstrap, "fetchOffset.retryIntervalMs": "10", **options}
