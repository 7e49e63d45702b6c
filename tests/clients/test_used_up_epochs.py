"""Producers whose epochs are used up go on with another producer id, and notice nothing.

A transactional id has 32,767 epochs. The broker is stopped, and the record of the id is replaced by one with an epoch
near the end, as a client has it that has lived for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import aiokafka
import confluent_kafka
import pytest

from ottla import Consumer, Producer, TopicPartition
from ottla.base.clock import SystemClock
from ottla.client.administer import Admin, NewTopic
from ottla.coordinator.key_values import encode_key_values
from ottla.coordinator.transactions.records import record_of, transaction_of
from ottla.coordinator.transactions.transaction import LAST_EPOCH
from ottla.log.config import LogConfig
from ottla.log.loader import LoadOptions, load
from ottla.log.local_disk import LocalDisk
from ottla.records import decode_batch, iter_batches
from ottla.testing.broker import Broker
from support.clients.peers import OTTLA, chosen_peer
from support.waiting import wait_until

WAIT_S = 30
TOPIC = "orders"
STATES = TopicPartition("__transaction_state", 0)
SETTINGS = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
LEFT = 4
"""Epochs that a producer can still get."""
Session = Callable[[str, str, list[bytes]], None]
"""A new producer with that transactional id at that broker: commits each value in a transaction, and aborts one."""


def ottla(bootstrap: str, transactional_id: str, values: list[bytes]) -> None:
    with Producer(bootstrap_servers=bootstrap, transactional_id=transactional_id, linger_ms=0) as producer:
        producer.init_transactions()
        for value in values:
            with producer.transaction():
                producer.send(TOPIC, value, partition=0)
            producer.begin_transaction()
            producer.send(TOPIC, b"aborted", partition=0).result(WAIT_S)
            producer.abort_transaction()


def confluent(bootstrap: str, transactional_id: str, values: list[bytes]) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0}
    )
    producer.init_transactions(WAIT_S)
    for value in values:
        for sent, commit in ((value, True), (b"aborted", False)):
            producer.begin_transaction()
            producer.produce(TOPIC, sent, partition=0)
            assert not producer.flush(WAIT_S)
            if commit:
                producer.commit_transaction(WAIT_S)
            else:
                producer.abort_transaction(WAIT_S)


def aiokafka_(bootstrap: str, transactional_id: str, values: list[bytes]) -> None:
    async def produce() -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id
        ) as producer:
            for value in values:
                async with producer.transaction():
                    await producer.send_and_wait(TOPIC, value, partition=0)
                await producer.begin_transaction()
                await producer.send_and_wait(TOPIC, b"aborted", partition=0)
                await producer.abort_transaction()

    asyncio.run(asyncio.wait_for(produce(), WAIT_S))


SESSIONS: dict[str, Session] = {"ottla": ottla, "confluent": confluent, "aiokafka": aiokafka_}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Every id has had a producer, and has few epochs left."""
    if chosen_peer() != OTTLA:
        pytest.skip("the log of the broker is written by Ottla")
    place = tmp_path_factory.mktemp("used-up")
    broker = Broker(SETTINGS, directory=place)
    with broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 1)])
        for name, session in SESSIONS.items():
            session(broker.bootstrap, name, [b"first"])
        broker.stop()
        age(place / "data" / "logs" / str(STATES))
        broker.start()
        yield broker


def age(folder: Path) -> None:
    log = load(LocalDisk(), SystemClock(), folder, STATES, LogConfig(), LoadOptions())
    try:
        data = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
        newest = {
            record.key: record.value
            for batch in iter_batches(data)
            for record in decode_batch(batch)
            if record.key and record.value
        }
        transactions = [
            transaction_of(name, value) for name in SESSIONS for key, value in newest.items() if name.encode() in key
        ]
        assert len(transactions) == len(SESSIONS)
        aged = [record_of(each._replace(producer_epoch=LAST_EPOCH - 1 - LEFT)) for each in transactions]
        log.append_own(encode_key_values(aged, SystemClock().now_ms()), log.epochs.latest_epoch or 0)
        log.flush()
    finally:
        log.close()


@pytest.mark.parametrize("client", SESSIONS)
def test_every_producer_goes_on(broker: Broker, client: str) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        before = admin.describe_transactions([client])[client]
        assert before.producer_epoch == LAST_EPOCH - 1 - LEFT
        expected = committed(broker)
        for number in range(LEFT + 2):
            values = [b"%s %d %d" % (client.encode(), number, index) for index in range(2)]
            SESSIONS[client](broker.bootstrap, client, values)
            expected += values
        after = admin.describe_transactions([client])[client]
    assert after.producer_id != before.producer_id
    assert after.producer_epoch < LEFT * 10
    wait_until(lambda: committed(broker) == expected, f"not committed: {expected}")


def committed(broker: Broker) -> list[bytes]:
    """When no transaction is open: markers may come after the answer."""
    place = TopicPartition(TOPIC, 0)
    found: list[bytes] = []
    with Consumer(
        bootstrap_servers=broker.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([place])
        end = consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            found += [record.value or b"" for record in consumer.poll(0.1)]
    return found
