"""Idempotent producers: what is sent twice is stored once, over lost answers, new connections and restarts."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from clients.conftest import InterposedPeer
from support.clients.dialect import Client, ProducerSettings, Record
from support.clients.expectations import as_seen, numbered
from support.clients.interposer import PRODUCE
from support.clients.kafka_python_client import KafkaPythonClient
from support.clients.peers import Peer, running_peer
from support.waiting import wait_until

# kafka-python forgets sockets whose connection failed without closing them.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.usefixtures("collected"),
]

IDEMPOTENT = ProducerSettings(idempotent=True, linger_ms=0)


def test_a_batch_whose_answer_was_lost_is_stored_once(
    client_type: type[Client], topic: str, interposed: InterposedPeer
) -> None:
    client = client_type(interposed.bootstrap)
    with client.admin() as admin:
        admin.create_topic(topic)
    records = numbered(9)
    with client.producer(IDEMPOTENT) as producer:
        producer.send(topic, records[:3])
        interposed.interposer.lose_answer(PRODUCE)
        # The answer to the second time tells the offsets of the first.
        assert producer.send(topic, records[3:6]) == [3, 4, 5]
        assert interposed.interposer.lost_it
        assert producer.send(topic, records[6:]) == [6, 7, 8]
    assert client.consume(topic, 9) == as_seen(records)


def test_without_idempotence_it_is_stored_twice(
    client_type: type[Client], topic: str, interposed: InterposedPeer
) -> None:
    """So that the test above is known to tell."""
    client = client_type(interposed.bootstrap)
    with client.admin() as admin:
        admin.create_topic(topic)
    with client.producer(ProducerSettings(idempotent=False, linger_ms=0)) as producer:
        producer.send(topic, numbered(1))
        interposed.interposer.lose_answer(PRODUCE)
        producer.send(topic, numbered(1))
    assert [each.offset for each in client.consume(topic, 3)] == [0, 1, 2]


def test_sequences_go_on_over_a_new_connection(
    client_type: type[Client], topic: str, interposed: InterposedPeer
) -> None:
    client = client_type(interposed.bootstrap)
    with client.admin() as admin:
        admin.create_topic(topic)
    records = numbered(30)
    with client.producer(IDEMPOTENT) as producer:
        for first in range(0, 30, 10):
            producer.send(topic, records[first : first + 10])
            interposed.interposer.cut()
    assert client.consume(topic, 30) == as_seen(records)
    with KafkaPythonClient(interposed.bootstrap).admin() as asking:
        (producing,) = asking.producers(topic, 0)
    assert (producing.producer_epoch, producing.last_sequence) == (0, 29)


@pytest.fixture
def collected() -> Iterator[None]:
    """Garbage of a test is collected where its warnings are ignored, not amid a later test."""
    yield
    gc.collect()


@pytest.fixture
def restartable(tmp_path: Path) -> Iterator[Peer]:
    with running_peer(tmp_path, {}) as peer:
        yield peer


def test_sequences_go_on_after_a_restart_of_the_broker(
    client_type: type[Client], topic: str, restartable: Peer
) -> None:
    client = client_type(restartable.bootstrap)
    records = _numbered_now(6)
    with client.producer(IDEMPOTENT) as producer:
        assert producer.send(topic, records[:3]) == [0, 1, 2]
        restartable.stop()
        restartable.start()
        # Of a producer that the broker forgot it would take any sequence number, and duplicates with it.
        with KafkaPythonClient(restartable.bootstrap).admin() as admin:
            assert [each.last_sequence for each in admin.producers(topic, 0)] == [2]
        assert producer.send(topic, records[3:]) == [3, 4, 5]
    assert client.consume(topic, 6) == as_seen(records)


def test_records_are_stored_once_when_the_broker_is_killed_amid_them(
    client_type: type[Client], topic: str, restartable: Peer
) -> None:
    client = client_type(restartable.bootstrap)
    records = _numbered_now(300)
    acknowledged: list[int] = []
    with client.producer(replace(IDEMPOTENT, hope_ms=60_000)) as producer, ThreadPoolExecutor(1) as pool:

        def send_all() -> None:
            for first in range(0, len(records), 5):
                acknowledged.extend(producer.send(topic, records[first : first + 5]))

        sending = pool.submit(send_all)
        wait_until(lambda: len(acknowledged) >= 30, "the first records are not acknowledged")
        restartable.kill()
        restartable.start()
        sending.result()
    assert acknowledged == list(range(len(records)))
    assert client.consume(topic, len(records)) == as_seen(records)


def _numbered_now(count: int) -> list[Record]:
    """A producer whose last record is old is forgotten when the log is loaded."""
    now_ms = int(time.time() * 1000)
    return [replace(record, timestamp_ms=now_ms) for record in numbered(count)]
