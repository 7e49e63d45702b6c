"""Keys go to the partitions where other clients send them, so that both can write to one topic."""

from __future__ import annotations

from confluent_kafka import Producer as ConfluentProducer

from ottla import Admin, Consumer, Producer, TopicPartition
from ottla.client.administer import NewTopic
from support.clients.peers import Peer

PARTITIONS = 7
TIMEOUT_S = 60.0


def test_keys_go_to_the_partitions_where_other_clients_send_them(broker: Peer, topic: str) -> None:
    keys = [f"key {number}".encode() for number in range(100)]
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS)])
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for key in keys:
            producer.send(topic, b"ours", key=key)
    peer = ConfluentProducer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        peer.produce(topic, value=b"theirs", key=key)
    assert peer.flush(TIMEOUT_S) == 0
    found: dict[bytes, set[tuple[int, bytes]]] = {key: set() for key in keys}
    with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
        consumer.assign(TopicPartition(topic, index) for index in range(PARTITIONS))
        consumer.seek_to_beginning()
        count = 0
        while count < 2 * len(keys):
            records = consumer.poll(TIMEOUT_S)
            assert records, f"only {count} records came"
            count += len(records)
            for record in records:
                assert record.key is not None
                assert record.value is not None
                found[record.key].add((record.partition, record.value))
    for seen in found.values():
        ((ours, _), (theirs, _)) = sorted(seen, key=lambda place: place[1])
        assert ours == theirs
    assert len({partition for seen in found.values() for partition, _ in seen}) == PARTITIONS
