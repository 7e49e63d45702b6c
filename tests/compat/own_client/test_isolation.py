"""Transactions of librdkafka on Apache Kafka: our consumer reads what was committed, or everything."""

from __future__ import annotations

import random

import pytest
from confluent_kafka import Producer as ConfluentProducer

from ottla import Admin, Consumer, TopicPartition
from ottla.client.administer import NewTopic
from support.clients.peers import Peer

pytestmark = pytest.mark.compat

WAIT_S = 30.0
STEPS = 60


class Transactions:
    """Two producers whose transactions overlap, and end one way or the other."""

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        self._topic = topic
        self._random = random.Random(seed)
        self._producers = [
            ConfluentProducer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-{index}", "linger.ms": 0})
            for index in range(2)
        ]
        for producer in self._producers:
            producer.init_transactions(WAIT_S)
        self._open: list[list[bytes] | None] = [None, None]
        self.sent: list[bytes] = []
        self.committed: list[bytes] = []

    def run(self) -> None:
        for _ in range(STEPS):
            index = self._random.randrange(2)
            self._send(index)
            if self._random.random() < 0.6:
                self._end(index, is_commit=self._random.random() < 0.5)
        for index in range(2):
            self._end(index, is_commit=False)

    def _send(self, index: int) -> None:
        producer = self._producers[index]
        values = self._open[index]
        if values is None:
            producer.begin_transaction()
            values = self._open[index] = []
        for _ in range(self._random.randrange(1, 5)):
            value = b"%d" % len(self.sent)
            producer.produce(self._topic, value, partition=0)
            self.sent.append(value)
            values.append(value)
        assert producer.flush(WAIT_S) == 0

    def _end(self, index: int, *, is_commit: bool) -> None:
        values, self._open[index] = self._open[index], None
        if values is None:
            return
        if is_commit:
            self._producers[index].commit_transaction(WAIT_S)
            self.committed += values
        else:
            self._producers[index].abort_transaction(WAIT_S)


def read(bootstrap: str, partition: TopicPartition, isolation: str, *, by_columns: bool) -> list[bytes]:
    """All values from the beginning to the end."""
    values: list[bytes] = []
    settings = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", "isolation.level": isolation}
    with Consumer(settings, max_partition_fetch_bytes=2000) as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            if by_columns:
                values += consumer.poll_arrow(1).column("value").to_pylist()
            else:
                values += [record.value for record in consumer.poll(1)]
    return values


SEED = 5
"""Of the order in which transactions begin and end."""


@pytest.mark.parametrize("broker", ["kafka-4.3.1"], indirect=True)
def test_aborted_records_are_left_out_on_demand(broker: Peer, topic: str) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])
    transactions = Transactions(broker.bootstrap, topic, SEED)
    transactions.run()
    assert 0 < len(transactions.committed) < len(transactions.sent)
    partition = TopicPartition(topic, 0)
    for by_columns in (False, True):
        committed = read(broker.bootstrap, partition, "read_committed", by_columns=by_columns)
        # In the order of the log, where transactions overlap.
        assert committed == sorted(transactions.committed, key=int)
        everything = read(broker.bootstrap, partition, "read_uncommitted", by_columns=by_columns)
        assert everything == sorted(transactions.sent, key=int)
