"""What one client writes, with any codec, every client reads: the same keys, values, headers and times."""

from __future__ import annotations

import pytest

from clients.conftest import CLIENTS
from support.clients.dialect import Client, ProducerSettings
from support.clients.expectations import VARIED, as_seen
from support.clients.kafka_python_client import KafkaPythonClient
from support.clients.peers import Peer


@pytest.fixture(scope="session")
def written() -> dict[tuple[str, str], str]:
    """The topics that were written so far, by client and codec."""
    return {}


@pytest.mark.parametrize("reader", CLIENTS)
@pytest.mark.parametrize("writer", CLIENTS)
def test_what_one_writes_all_read(
    writer: str, reader: str, codec: str, topic: str, broker: Peer, written: dict[tuple[str, str], str]
) -> None:
    writing = _can(writer, codec, broker)
    reading = _can(reader, codec, broker)
    if (writer, codec) not in written:
        # A first batch alone, so that offsets, and times before those of the batch, are not those of its first record.
        with writing.producer(ProducerSettings(codec=codec)) as producer:
            offsets = producer.send(topic, VARIED[:2]) + producer.send(topic, VARIED[2:])
        assert offsets == list(range(len(VARIED)))
        written[writer, codec] = topic
    assert reading.consume(written[writer, codec], len(VARIED)) == as_seen(VARIED)


@pytest.mark.parametrize("reader", CLIENTS)
def test_a_topic_with_a_codec_of_its_own_is_compressed_by_the_broker(
    reader: str, codec: str, topic: str, broker: Peer
) -> None:
    reading = _can(reader, codec, broker)
    writing = CLIENTS["confluent"](broker.bootstrap)
    with writing.admin() as admin:
        admin.create_topic(topic, config={"compression.type": "uncompressed" if codec == "none" else codec})
    writing.produce(topic, VARIED, ProducerSettings(codec="gzip" if codec == "none" else "none"))
    assert reading.consume(topic, len(VARIED)) == as_seen(VARIED)
    plain_size = sum(len(record.value or b"") for record in VARIED)
    with KafkaPythonClient(broker.bootstrap).admin() as admin:
        assert (admin.stored_bytes(topic, 0) > plain_size) is (codec == "none")


def _can(name: str, codec: str, broker: Peer) -> Client:
    client = CLIENTS[name]
    if codec in client.missing_packages:
        pytest.skip(f"{name} has {codec} only where {client.missing_packages[codec]} is installed beside it")
    return client(broker.bootstrap)
