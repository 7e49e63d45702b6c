"""A producer that uses the sequence numbers of an aborted transaction again.

librdkafka (2.16) does: when a transaction is aborted while a batch waits for its second attempt, the batch is dropped,
and the next transaction goes on with its sequence numbers, under the same epoch. If the first attempt was stored and
only its answer was lost, the new batch looks like a repetition of the old one. A broker that answers so acknowledges
records that it does not store, as Apache Kafka 4.3.1 does (`OTTLA_TEST_PEER=kafka`). Ottla makes the producer abort.
"""

from __future__ import annotations

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from clients.conftest import InterposedPeer
from clients.test_transactions import values_in
from support.clients.interposer import PRODUCE
from support.waiting import wait_until

WAIT_S = 30


def test_records_of_the_next_transaction_are_stored(interposed: InterposedPeer, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": interposed.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    producer = Producer(
        {
            "bootstrap.servers": interposed.bootstrap,
            "transactional.id": topic,
            "linger.ms": 0,
            "retry.backoff.ms": 2_000,
            "retry.backoff.max.ms": 2_000,
        }
    )
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"before", partition=0)
    producer.commit_transaction(WAIT_S)

    producer.begin_transaction()
    interposed.interposer.lose_answer(PRODUCE)
    producer.produce(topic, b"aborted", partition=0)

    def is_lost() -> bool:
        producer.poll(0)
        return interposed.interposer.lost_it

    wait_until(is_lost, "the answer was not lost")
    producer.abort_transaction(WAIT_S)

    if not has_committed(producer, topic):
        assert has_committed(producer, topic)
    assert values_in(interposed.broker, topic) == [b"before", b"after"]


def has_committed(producer: Producer, topic: str) -> bool:
    """Whether a transaction was committed; otherwise it was aborted, because it had to be."""
    producer.begin_transaction()
    producer.produce(topic, b"after", partition=0)
    try:
        producer.commit_transaction(WAIT_S)
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        producer.abort_transaction(WAIT_S)
        return False
    return True
