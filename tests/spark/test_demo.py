"""The pipeline of the demo: every order is in its sums."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla import Consumer, Producer, TopicPartition
from ottla.cli.demo.events import CATALOGUE, Shop
from ottla.cli.demo.pipeline import REVENUE, pipeline
from ottla.cli.demo.spark import PipelineState
from support.clients.peers import Peer, running_peer

WAIT_S = 300
ORDERS = 50


@pytest.fixture
def shop_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Peer]:
    """The demo's topics have fixed names."""
    with running_peer(tmp_path / "broker", {"auto.create.topics.enable": "true"}) as peer:
        monkeypatch.setenv("OTTLA_BOOTSTRAP", peer.bootstrap)
        yield peer


def test_every_order_is_in_the_sums(spark: SparkSession, shop_broker: Peer, tmp_path: Path) -> None:
    shop = Shop(seed=7)
    orders = [shop.order()[0] for _ in range(ORDERS)]
    with Producer(bootstrap_servers=shop_broker.bootstrap) as producer:
        for order in orders:
            producer.send(order.topic, order.value, key=order.key.encode())
    (writer,) = pipeline(spark).values()
    query = writer.option("checkpointLocation", str(tmp_path / "place")).trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_S)

    state = PipelineState()
    deadline = time.monotonic() + WAIT_S
    with Consumer(bootstrap_servers=shop_broker.bootstrap) as consumer:
        consumer.assign([TopicPartition(REVENUE, 0)])
        consumer.seek_to_beginning([TopicPartition(REVENUE, 0)])
        while state.orders < ORDERS:
            assert time.monotonic() < deadline
            for record in consumer.poll(timeout=1):
                assert record.value is not None
                state.take(record.value)
    revenue: Counter[str] = Counter()
    for sums in state.windows.values():
        for goods, one in sums.items():
            revenue[goods] += round(100 * one.revenue)
    expected: Counter[str] = Counter()
    for order in orders:
        expected[CATALOGUE[str(order.body["item"])]] += round(100 * float(str(order.body["price"])))
    assert revenue == expected
