"""Producing and consuming: acknowledgements, order, times, and what a consumer may see."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from clients.conftest import CLIENTS
from support.clients.dialect import LOG_APPEND_TIME, Client, ConsumerSettings, ProducerSettings, Record
from support.clients.expectations import START_MS, VARIED, as_seen, numbered
from support.clients.peers import Peer


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_kind_of_acknowledgement(acks: int, client: Client, topic: str) -> None:
    with client.admin() as admin:
        admin.create_topic(topic)
    with client.producer(ProducerSettings(acks=acks)) as producer:
        offsets = producer.send(topic, VARIED)
        assert acks == 0 or offsets == list(range(len(VARIED)))
        # Without acknowledgements only a reader can tell that the records have arrived.
        assert client.consume(topic, len(VARIED)) == as_seen(VARIED)


def test_partitions_keep_their_order_and_share_nothing(client: Client, topic: str) -> None:
    partitions = range(4)
    with client.admin() as admin:
        admin.create_topic(topic, partitions=len(partitions))
    sent = {partition: numbered(200, partition, first=1000 * partition) for partition in partitions}
    # Idempotent, because otherwise a retry may change the order.
    settings = ProducerSettings(idempotent=True)
    client.produce(topic, [record for turn in zip(*sent.values(), strict=True) for record in turn], settings)
    seen = client.consume(topic, 800, partitions)
    for partition, records in sent.items():
        assert [each for each in seen if each.partition == partition] == as_seen(records)


def test_log_append_time_replaces_the_time_that_was_given(client: Client, topic: str) -> None:
    with client.admin() as admin:
        admin.create_topic(topic, config={"message.timestamp.type": "LogAppendTime"})
    # Broker and test share the machine and its clock.
    before_ms = int(time.time() * 1000)
    client.produce(topic, numbered(3))
    after_ms = int(time.time() * 1000)
    seen = client.consume(topic, 3)
    assert [each.timestamp_type for each in seen] == [LOG_APPEND_TIME] * 3
    assert all(before_ms <= each.timestamp_ms <= after_ms for each in seen)
    # One batch, one time.
    assert len({each.timestamp_ms for each in seen}) == 1


def test_without_transactions_isolation_changes_nothing(client: Client, topic: str) -> None:
    client.produce(topic, VARIED)
    for committed_only in (False, True):
        settings = ConsumerSettings(committed_only=committed_only)
        assert client.consume(topic, len(VARIED), settings=settings) == as_seen(VARIED)


def test_a_fetch_smaller_than_a_partition_is_one_of_many(client: Client, topic: str) -> None:
    records = numbered(400)
    with client.producer() as producer:
        for first in range(0, 400, 50):
            producer.send(topic, records[first : first + 50])
    assert client.consume(topic, 400, settings=ConsumerSettings(max_partition_bytes=2000)) == as_seen(records)


def test_a_topic_is_created_by_the_first_record(client: Client, topic: str) -> None:
    assert client.produce(topic, [Record(b"first")]) == [0]
    with client.admin() as admin:
        assert topic in admin.topics()


def test_clients_of_all_kinds_at_once(topic: str, broker: Peer) -> None:
    """Each of six writes while each of six reads all; everyone sees the same log."""
    clients = [kind(broker.bootstrap) for kind in CLIENTS.values()] * 2
    each_writes = 20
    count = each_writes * len(clients)
    with clients[0].admin() as admin:
        admin.create_topic(topic)

    def write(client: Client, name: int) -> list[bytes]:
        values = [b"%d of %d" % (number, name) for number in range(each_writes)]
        with client.producer(ProducerSettings(linger_ms=0)) as producer:
            for value in values:
                producer.send(topic, [Record(value, timestamp_ms=START_MS)])
        return values

    with ThreadPoolExecutor(2 * len(clients)) as pool:
        reading = [pool.submit(client.consume, topic, count) for client in clients]
        writing = [pool.submit(write, client, name) for name, client in enumerate(clients)]
        written = [future.result() for future in writing]
        read = [future.result() for future in reading]
    assert [each.offset for each in read[0]] == list(range(count))
    assert all(each == read[0] for each in read)
    for name, values in enumerate(written):
        of_one = [each.value for each in read[0] if each.value is not None and each.value.endswith(b"of %d" % name)]
        assert of_one == values
