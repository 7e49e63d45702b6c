"""The loads of the broker's bench, run as it runs them, on a broker of ours."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.testing.broker import Broker

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    """Of two partitions."""
    name: str = request.node.name
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for created in admin.create_topics([NewTopic(name, 2, 1)], operation_timeout=30).values():
        created.result()
    return name


def start(load: str, broker: Broker, **arguments: Any) -> subprocess.Popen[str]:
    given = json.dumps({"address": broker.bootstrap, **arguments})
    command = [sys.executable, "-m", "bench.broker.driver", load, given]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def figures(process: subprocess.Popen[str]) -> dict[str, float]:
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    found: dict[str, float] = json.loads(output)
    return found


def test_one_record_a_request(broker: Broker, topic: str) -> None:
    work = {"pid": broker.process.pid, "partitions": 2, "value_bytes": 100, "in_flight": 5, "seconds": 0.2}
    for _ in range(2):  # as on a broker that is started again with its topics
        assert figures(start("one_record", broker, topic=topic, **work))["requests_per_s"] > 0


def test_big_batches_are_written_and_read_again(broker: Broker, topic: str) -> None:
    work = {"pid": broker.process.pid, "topic": topic, "value_bytes": 1024, "connections": 2}
    assert figures(start("big_batches", broker, **work, total_mb=8))["mb_per_s"] > 0
    assert figures(start("catch_up", broker, **work, in_flight=2, passes=1))["mb_per_s"] > 0


def test_a_follower_sees_every_record_of_a_steady_producer(broker: Broker, topic: str) -> None:
    work = {"topic": topic, "value_bytes": 1024, "count": 300}
    follower = start("follow", broker, **work, skip=100)
    assert figures(start("send_steadily", broker, **work, rate=1000))["sent_per_s"] > 0
    seen = figures(follower)
    assert 0 < seen["p50_ms"] <= seen["p99_ms"] <= seen["max_ms"]


def test_librdkafka_delivers(broker: Broker, topic: str) -> None:
    work = {"pid": broker.process.pid, "topic": topic, "value_bytes": 1024, "total_mb": 4}
    assert figures(start("librdkafka", broker, **work))["mb_per_s"] > 0


def test_an_error_in_an_answer_fails_the_load(broker: Broker) -> None:
    work = {"pid": broker.process.pid, "partitions": 1, "value_bytes": 100, "in_flight": 5, "seconds": 0.2}
    process = start("one_record", broker, topic="not-there", **work)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "UNKNOWN_TOPIC_OR_PARTITION" in errors
