"""A transaction whose coordinator, and whose partitions, move between Apache Kafka 3.9.1 and Ottla while it is open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, Consumer, Producer, TopicPartition
from ottla.client.administer import NewTopic, TransactionState
from ottla.client.membership.metadata import GroupMetadata
from support.cluster.kafka_members import KAFKA, OTTLA, MixedCluster
from support.waiting import wait_until

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]

WAIT_S = 60.0
TOPIC = "moved"
PARTITIONS = 2
SETTINGS = {
    "transaction.state.log.num.partitions": 2,
    "offsets.topic.num.partitions": 1,
    "auto.create.topics.enable": False,
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[MixedCluster]:
    cluster = MixedCluster((KAFKA,), settings=SETTINGS, directory=tmp_path / "cluster")
    with cluster:
        yield cluster


class Mover:
    """A producer that keeps a transaction open while its broker is replaced. It is ours: after its broker was away,
    librdkafka 2.16 waits in send_offsets_to_transaction without end, whichever broker comes back."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.name = name
        self.group = f"movers-{name}"
        self.committed: list[bytes] = []
        self._open: list[bytes] = []
        self._sent = 0
        self._producer: Producer[Any, Any] = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": 300_000,
                "max.block.ms": int(WAIT_S * 1000),
                "reconnect.backoff.max.ms": 200,
            }
        )
        self._producer.init_transactions()

    def write(self, count: int = 3) -> None:
        """In a transaction that is begun if there is none, together with an offset."""
        if not self._open:
            self._producer.begin_transaction()
        sent = []
        for _ in range(count):
            value = f"{self.name}:{self._sent}".encode()
            sent.append(self._producer.send(TOPIC, value, partition=self._sent % PARTITIONS))
            self._open.append(value)
            self._sent += 1
        for each in sent:
            each.result(WAIT_S)
        self._producer.send_offsets_to_transaction({TopicPartition(TOPIC, 0): self._sent}, GroupMetadata(self.group))

    def commit(self) -> None:
        self._producer.commit_transaction()
        self.committed += self._open
        self._open = []

    def abort(self) -> None:
        self._producer.abort_transaction()
        self._open = []

    @property
    def offset(self) -> int | None:
        """That the group has committed, if all is well."""
        return int(self.committed[-1].split(b":")[1]) + 1 if self.committed else None

    def close(self) -> None:
        self._producer.close()


def replace(cluster: MixedCluster, kind: str) -> None:
    """The only broker is replaced by one of the other make, with the same data."""
    cluster.brokers[1].stop()
    cluster.replace(1, kind)
    cluster.brokers[1].start()
    cluster.wait_for_brokers()
    for index in range(PARTITIONS):
        cluster.wait_for_leader(TOPIC, index)


def visible(bootstrap: str) -> list[bytes]:
    """Everything that a read_committed consumer finds."""
    partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    found: list[bytes] = []
    settings = {"bootstrap.servers": bootstrap, "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    with Consumer(settings) as consumer:
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)

        def is_read() -> bool:
            found.extend(bytes(record.value or b"") for record in consumer.poll(0.2))
            return all(consumer.position(each) >= end for each, end in ends.items())

        wait_until(is_read, "the end of the partitions", WAIT_S)
    return found


def test_open_transactions_move_from_kafka_to_ottla_and_back(cluster: MixedCluster) -> None:
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])
    cluster.wait_for_leader(TOPIC, PARTITIONS - 1)
    keeper, quitter = Mover(cluster.bootstrap, "keeper"), Mover(cluster.bootstrap, "quitter")
    keeper.write()
    keeper.commit()
    for kind in (OTTLA, KAFKA, OTTLA):
        keeper.write()
        quitter.write()
        replace(cluster, kind)
        with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
            found = admin.describe_transactions(["keeper", "quitter"])
            assert {one.state for one in found.values()} == {TransactionState.ONGOING}
            data = {partition for partition in found["keeper"].partitions if partition.topic == TOPIC}
            assert data == {TopicPartition(TOPIC, index) for index in range(PARTITIONS)}
        keeper.write()
        keeper.commit()
        quitter.write()
        quitter.abort()
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        # Empty, if the producer was initialised again because Ottla has a newer transaction protocol.
        wait_until(
            lambda: not any(one.state.is_open for one in admin.list_transactions()),
            "the markers of the last transactions",
        )
        assert sorted(visible(cluster.bootstrap)) == sorted(keeper.committed)
        for mover in (keeper, quitter):
            told = admin.list_consumer_group_offsets(mover.group, require_stable=True).get(TopicPartition(TOPIC, 0))
            assert (told and told.offset) == mover.offset
        assert admin.find_hanging_transactions(max_transaction_timeout=0.0) == []
    keeper.close()
    quitter.close()
