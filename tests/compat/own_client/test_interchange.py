"""Our client and others on one broker: the same key goes to the same partition, and what one writes the other reads."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer as ConfluentProducer

from compat.own_client.java import Programs
from ottla import Consumer, Producer, TopicPartition
from ottla.client.produce import kernels
from ottla.client.produce.partitioners import partition_of_key
from support.clients.confluent_client import ConfluentClient
from support.clients.dialect import CODECS, ProducerSettings, Record
from support.clients.expectations import VARIED, as_seen
from support.clients.ottla_client import OttlaAsyncClient, OttlaClient
from support.clients.peers import Peer

pytestmark = pytest.mark.compat

KEYS = 1_000_000
PARTITIONS = 17
WAIT_S = 60.0
SOME = [*VARIED, Record(b"v", b"k", (("null", b""), ("x" * 200, bytes(300))), VARIED[0].timestamp_ms)]


def keys(count: int) -> list[bytes]:
    """Of all lengths, among them those that murmur2 takes in words and those that leave it a rest."""
    chance = random.Random(count)
    return [chance.randbytes(chance.randrange(0, 40)) for _ in range(count)]


@pytest.mark.parametrize("partition_of", [partition_of_key, kernels.partition_of_key], ids=["readable", "compiled"])
def test_a_million_keys_go_where_java_sends_them(partition_of: Callable[[bytes, int], int], programs: Programs) -> None:
    chosen = keys(KEYS)
    given = b"".join(struct.pack(">i", len(key)) + key for key in chosen)
    told = programs.run("ClientPartitions", [str(PARTITIONS)], given)
    theirs = struct.unpack(f">{KEYS}i", told)
    ours = [partition_of(key, PARTITIONS) for key in chosen]
    assert len(set(theirs)) == PARTITIONS
    differing = [key for key, our, their in zip(chosen, ours, theirs, strict=True) if our != their]
    assert not differing, f"{len(differing)} of {KEYS} keys go elsewhere, for instance {differing[0]!r}"


@pytest.mark.parametrize("broker", ["ottla"], indirect=True)
def test_a_million_keys_go_where_librdkafka_sends_them(broker: Peer, topic: str) -> None:
    """Sent by both, and read back: by the values, which tell whose a record is."""
    chosen = [key or b"not empty" for key in keys(KEYS)]
    with OttlaClient(broker.bootstrap).admin() as admin:
        admin.create_topic(topic, PARTITIONS)
    theirs = ConfluentProducer(
        {
            "bootstrap.servers": broker.bootstrap,
            "partitioner": "murmur2_random",
            "linger.ms": 20,
            "queue.buffering.max.messages": 2 * KEYS,
        }
    )
    for key in chosen:
        theirs.produce(topic, b"theirs", key)
    with Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20}) as ours:
        for key in chosen:
            ours.send(topic, b"ours", key)
    assert theirs.flush(WAIT_S) == 0
    found: dict[str, set[tuple[int, bytes]]] = {"ours": set(), "theirs": set()}
    for partition, key, value in everything(broker.bootstrap, topic, 2 * KEYS):
        found[value.decode()].add((partition, key))
    assert found["ours"] == found["theirs"]
    assert {key for _, key in found["ours"]} == set(chosen)


def everything(bootstrap: str, topic: str, count: int) -> Iterator[tuple[int, bytes, bytes]]:
    settings = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", "max.poll.records": 10_000}
    with Consumer(settings) as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
        read = 0
        while read < count:
            records = consumer.poll(WAIT_S)
            assert records, f"{read} records of {count} came, and then none in {WAIT_S:.0f} s"
            read += len(records)
            yield from ((record.partition, record.key or b"", record.value or b"") for record in records)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("ours", [OttlaClient, OttlaAsyncClient])
def test_what_java_writes_we_read_and_the_other_way_round(
    broker: Peer, topic: str, codec: str, ours: type[OttlaClient], programs: Programs
) -> None:
    client = ours(broker.bootstrap)
    with client.admin() as admin:
        admin.create_topic(f"{topic}-ours")
        admin.create_topic(f"{topic}-theirs")
    client.produce(f"{topic}-ours", SOME, ProducerSettings(codec=codec))
    told = [f"write {topic}-theirs {codec} {len(SOME)}", *map(line_of, SOME), f"read {topic}-ours {len(SOME)}"]
    answered = programs.run("ClientExchange", [broker.bootstrap], "".join(f"{line}\n" for line in told).encode())
    assert answered.decode().splitlines() == list(map(line_of, SOME))
    assert client.consume(f"{topic}-theirs", len(SOME)) == as_seen(SOME)


def line_of(record: Record) -> str:
    """As `ClientExchange` reads and writes it."""

    def text(data: bytes | None) -> str:
        return "-" if data is None else data.hex()

    headers = [f"{name.encode().hex()}={text(value)}" for name, value in record.headers]
    return " ".join([str(record.timestamp_ms), text(record.key), text(record.value), *headers])


@pytest.mark.parametrize("codec", CODECS)
def test_what_librdkafka_writes_we_read_and_the_other_way_round(broker: Peer, topic: str, codec: str) -> None:
    ours, theirs = OttlaClient(broker.bootstrap), ConfluentClient(broker.bootstrap)
    for number, (writer, reader) in enumerate([(ours, theirs), (theirs, ours)]):
        with ours.admin() as admin:
            admin.create_topic(f"{topic}-{number}")
        writer.produce(f"{topic}-{number}", SOME, ProducerSettings(codec=codec))
        assert reader.consume(f"{topic}-{number}", len(SOME)) == as_seen(SOME)
