"""Our client on two brokers of Apache Kafka 3.9.1, of which each in turn is killed, and gets its lead back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from faults.client.traffic import check, seeded, traffic
from ottla import Admin, TopicPartition
from ottla.client.administer import ElectionType, NewTopic
from support import kafka_process
from support.controllers import admin_of
from support.kafka_process import Broker, Ports
from support.waiting import wait_until

pytestmark = pytest.mark.compat

TOPIC = "numbers"
PARTITIONS = 4
IDS = (1, 2)
SETTINGS = {
    "zookeeper.session.timeout.ms": "4000",
    "offsets.topic.replication.factor": "2",
    "controlled.shutdown.enable": "true",
    "auto.leader.rebalance.enable": "false",
    "replica.lag.time.max.ms": "3000",
}


@dataclass
class TwoBrokers:
    """A cluster of two, by their ids; each can be killed and started again."""

    place: Path
    zookeeper: str
    ports: dict[int, Ports]
    brokers: dict[int, Broker]

    def start(self, broker_id: int) -> None:
        place = self.place / str(broker_id)
        broker = kafka_process.zookeeper_mode_broker(place, self.zookeeper, broker_id, SETTINGS, self.ports[broker_id])
        self.brokers[broker_id] = broker
        admin_of(broker)

    def kill(self, broker_id: int) -> None:
        kafka_process.kill(self.brokers.pop(broker_id).process)

    def stop(self) -> None:
        for broker in self.brokers.values():
            kafka_process.stop(broker.process)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{ports.advertised}" for ports in self.ports.values())


@contextmanager
def two_brokers(place: Path) -> Iterator[TwoBrokers]:
    with ExitStack() as stack:
        zookeeper = stack.enter_context(kafka_process.zookeeper(place / "zookeeper"))
        cluster = TwoBrokers(place, zookeeper, {each: Ports.without_proxy() for each in IDS}, {})
        stack.callback(cluster.stop)
        for broker_id in IDS:
            cluster.start(broker_id)
        yield cluster


def test_nothing_is_lost_doubled_or_skipped(tmp_path: Path) -> None:
    chance = seeded()
    with two_brokers(tmp_path) as cluster, Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, len(IDS))])
        partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]

        def leaders() -> set[int | None]:
            return {each.leader_id for each in admin.describe_topics([TOPIC])[TOPIC].partitions}

        def all_in_sync() -> bool:
            described = admin.describe_topics([TOPIC])[TOPIC].partitions
            return all(len(each.in_sync) == len(IDS) for each in described)

        wait_until(lambda: all_in_sync() and leaders() == set(IDS), "the brokers do not share the lead")
        with traffic(cluster.bootstrap, TOPIC, PARTITIONS, chance) as (sending, reading):
            for broker_id in IDS:
                sending.wait_for_more(chance.randrange(100, 2000))
                cluster.kill(broker_id)
                (survivor,) = cluster.brokers
                wait_until(lambda survivor=survivor: leaders() == {survivor}, "no other broker leads")  # type: ignore[misc]
                sending.wait_for_more(chance.randrange(100, 1000))
                cluster.start(broker_id)
                wait_until(all_in_sync, "the broker that was killed does not catch up")
                # And back, with both alive.
                admin.elect_leaders(ElectionType.PREFERRED, partitions)
                wait_until(lambda: leaders() == set(IDS), "the brokers do not share the lead again")
            sending.wait_for_more(500)
            sending.stop()
            assert (sending.failures(), sending.not_taken) == ([], [])
            check(sending, reading, cluster.bootstrap)
