"""Every row of the tables in docs/client/moving.md: what the other client's call gives, and that ours gives the same.

A function tries a row: it is registered under the left cell of the table, and no row may be left out.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.moving import aiokafka_rows, confluent_rows, kafka_python_rows
from docs.moving.rows import ROWS, Place
from ottla import Admin, Consumer, Producer
from ottla.client.administer import NewTopic
from ottla.client.errors import ConfigError
from ottla.testing.broker import Broker

PAGE = Path(__file__).parents[3] / "docs" / "client" / "moving.md"
CLIENTS = [confluent_rows, kafka_python_rows, aiokafka_rows]
"""Imported for what they register."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def place(broker: Broker) -> Place:
    place = Place(broker.bootstrap, f"t-{uuid.uuid4().hex[:8]}")
    with Admin(bootstrap_servers=place.bootstrap) as admin:
        admin.create_topics([NewTopic(place.topic, partitions=1)])
    with place.producer() as producer:
        for number in range(3):
            producer.send(place.topic, b"%d" % number, timestamp=1000 * (number + 1))
    return place


def rows_of_the_page() -> dict[str, list[str]]:
    """The left cells of each table."""
    found: dict[str, list[str]] = {}
    client = ""
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("## "):
            client = line.split()[2] if line.startswith("## From ") else ""
        elif client and line.startswith("| `"):
            found.setdefault(client, []).append(line.strip("| ").split(" | ")[0])
    return found


def test_every_row_is_tried() -> None:
    assert {client: sorted(rows) for client, rows in ROWS.items()} == {
        client: sorted(rows) for client, rows in rows_of_the_page().items()
    }


@pytest.mark.filterwarnings("ignore:.*does not implement kafka.serializer:DeprecationWarning")
@pytest.mark.parametrize(("client", "left"), [(client, left) for client, rows in ROWS.items() for left in rows])
def test_a_row(client: str, left: str, place: Place) -> None:
    ROWS[client][left](place)


@pytest.mark.parametrize(
    ("client", "theirs", "ours"),
    [
        (Producer, "queue.buffering.max.ms", "linger.ms"),
        (Producer, "message.max.bytes", "max.request.size"),
        (Consumer, "queued.max.messages.kbytes", "queued.max.bytes"),
    ],
)
def test_configs_with_other_names(client: Any, theirs: str, ours: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(theirs)):
        client({"bootstrap.servers": "localhost:9092", theirs: 5})
    client({"bootstrap.servers": "localhost:9092", ours: 5_000_000}).close()
