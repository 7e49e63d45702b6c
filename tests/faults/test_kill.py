"""Brokers that are killed in the middle of load: what was acknowledged is there when they come back, in its place."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from faults.load import Load, create_topic, read_all
from ottla.testing.broker import Broker
from support.waiting import wait_until

_logger = logging.getLogger(__name__)

KILLS = int(os.environ.get("OTTLA_BROKER_KILLS", "3"))
SEED = int(os.environ.get("OTTLA_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.mark.parametrize("flush", ["every record", "as Kafka does"])
def test_acknowledged_records_survive_a_kill(broker: Broker, flush: str) -> None:
    """Without a flush it is the system that keeps what was written; with one, the disk would."""
    _logger.info("OTTLA_SEED=%d", SEED)
    chance = random.Random(SEED)
    configs = {"flush.messages": "1"} if flush == "every record" else {"segment.bytes": "100000"}
    create_topic(broker.bootstrap, "orders", configs)
    acknowledged: dict[int, bytes] = {}
    for round_number in range(KILLS):
        load = Load(broker.bootstrap, "orders", **{"enable.idempotence": True, "acks": "all"})
        wanted = chance.randrange(50, 3000)
        load.start()
        wait_until(lambda load=load, wanted=wanted: len(load.acknowledged) > wanted, "the records before the kill")  # type: ignore[misc]
        broker.kill()
        load.abandon()
        for offset, number in load.acknowledged:
            assert offset not in acknowledged, f"offset {offset} was given twice (round {round_number})"
            acknowledged[offset] = b"%d" % number
        broker.start()
        found = dict(read_all(broker.bootstrap, "orders"))
        lost = {offset: value for offset, value in acknowledged.items() if found.get(offset) != value}
        assert not lost, (
            f"round {round_number}: {len(lost)} acknowledged records are lost or changed: {sorted(lost)[:5]}"
        )
        assert sorted(found) == list(range(len(found)))


def test_topics_and_configs_survive_a_kill(broker: Broker) -> None:
    for number in range(10):
        create_topic(broker.bootstrap, f"topic-{number}", {"retention.ms": str(1_000_000 + number)}, partitions=3)
    broker.kill()
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = admin.list_topics(timeout=30).topics
    assert {name: len(topic.partitions) for name, topic in topics.items()} == {f"topic-{n}": 3 for n in range(10)}
    resources = [ConfigResource(ConfigResource.Type.TOPIC, f"topic-{number}") for number in range(10)]
    for number, (_, future) in enumerate(admin.describe_configs(resources).items()):
        assert future.result(30)["retention.ms"].value == str(1_000_000 + number)


def test_a_producer_goes_on_through_a_clean_restart(broker: Broker) -> None:
    """Nothing lost, nothing twice, nothing out of order: idempotence holds across the restart."""
    create_topic(broker.bootstrap, "orders")
    load = Load(broker.bootstrap, "orders", **{"enable.idempotence": True, "acks": "all"})
    load.start()
    wait_until(lambda: len(load.acknowledged) > 500, "the records before the restart")
    broker.restart()
    before = len(load.acknowledged)
    wait_until(lambda: len(load.acknowledged) > before + 500, "the records after the restart")
    assert load.stop() == 0
    assert load.errors == []
    values = [value for _, value in read_all(broker.bootstrap, "orders")]
    assert values == [b"%d" % number for number in range(len(values))]
    assert len(values) == len(load.acknowledged)
