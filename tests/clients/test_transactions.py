"""Transactions do not exist yet: clients that ask for one are told at once, and do not wait until their time-out."""

from __future__ import annotations

import asyncio

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
import pytest

from support.clients.peers import OTTLA, Peer, chosen_peer

pytestmark = pytest.mark.skipif(chosen_peer() != OTTLA, reason="Kafka has transactions")

TIMEOUT_S = 60
"""The clients' own, which is far more than a test may take: one that asks again and again does not pass."""


def test_confluent_kafka_fails_at_once(broker: Peer) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "payments"})
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        producer.init_transactions(TIMEOUT_S)
    error = caught.value.args[0]
    assert error.code() == confluent_kafka.KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert error.fatal()
    assert not error.retriable()


def test_kafka_python_fails_at_once(broker: Peer) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="payments")
    with pytest.raises(kafka.errors.TransactionalIdAuthorizationFailedError):
        producer.init_transactions()
    producer.close(timeout=1)


def test_aiokafka_fails_at_once(broker: Peer) -> None:
    async def start() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, transactional_id="payments", request_timeout_ms=TIMEOUT_S * 1000
        )
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(aiokafka.errors.TransactionalIdAuthorizationFailed):
        asyncio.run(asyncio.wait_for(start(), TIMEOUT_S))
