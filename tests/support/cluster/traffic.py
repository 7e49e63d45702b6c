"""Topics, records and readers for tests of a cluster, with Ottla's own clients."""

from __future__ import annotations

import time
import uuid

from ottla import Admin, Consumer, Producer
from ottla.client.administer.topics import NewTopic
from ottla.testing.cluster import Cluster

DELIVERY_S = 60


def new_topic(cluster: Cluster, partitions: int = 1) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        admin.create_topics([NewTopic(name, partitions=partitions, replication_factor=3)])
    for index in range(partitions):
        cluster.wait_for_isr(name, index, cluster.brokers)
    return name


def write(cluster: Cluster, topic: str, values: list[bytes]) -> None:
    """Returns when all are acknowledged by all in-sync replicas."""
    with Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"}) as producer:
        for sent in [producer.send(topic, value=value) for value in values]:
            sent.result(DELIVERY_S)


def read(cluster: Cluster, topic: str, count: int, group: str | None = None) -> list[bytes | None]:
    """The values of that many records, in the order of each partition."""
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": group or f"g-{uuid.uuid4().hex[:8]}",
        "auto.offset.reset": "earliest",
    }
    found: list[bytes | None] = []
    with Consumer(settings) as consumer:
        consumer.subscribe([topic])
        deadline_s = time.monotonic() + DELIVERY_S
        while len(found) < count:
            assert time.monotonic() < deadline_s, f"{len(found)} of {count} records: {cluster.output}"
            found += [record.value for record in consumer.poll(1.0)]
        if group is not None:
            consumer.commit()
    return found


def numbered(start: int, stop: int) -> list[bytes]:
    return [str(number).encode() for number in range(start, stop)]
