"""What the tools find: topics with records, and groups at work."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

START_MS = 1_600_000_000_000
COUNT = 10
PATIENCE_S = 60.0
_POLL_S = 0.1


def fill(bootstrap: str) -> None:
    topics = {"orders": 3, "line": 1}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for each in admin.create_topics([NewTopic(name, count, 1) for name, count in topics.items()]).values():
        each.result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 100})
    for name, count in topics.items():
        for partition in range(count):
            for index in range(COUNT):
                value = f"{name} {partition}-{index}".encode()
                producer.produce(name, value, partition=partition, timestamp=START_MS + 1000 * index)
    if producer.flush(PATIENCE_S):
        raise RuntimeError(f"records were not taken in {PATIENCE_S:.0f} s")


@contextmanager
def at_work(bootstrap: str, *, anew: bool) -> Iterator[None]:
    """Groups whose members have all consumed, and committed, what there is; `anew`: also one of the newer protocol."""
    with ExitStack() as members:

        def member(group: str, name: str, settings: dict[str, str]) -> Consumer:
            consumer = Consumer(
                {
                    "bootstrap.servers": bootstrap,
                    "group.id": group,
                    "client.id": name,
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    **settings,
                }
            )
            members.enter_context(closing(consumer))
            consumer.subscribe(["orders"])
            return consumer

        classic = {"partition.assignment.strategy": "range", "heartbeat.interval.ms": "200"}
        one = member("at-work", "one", classic)
        two = member("at-work", "two", {**classic, "group.instance.id": "second"})
        _settle([one, two])
        if anew:
            _settle([member("at-work-anew", "three", {"group.protocol": "consumer"})])
        yield


def _settle(consumers: Sequence[Consumer]) -> None:
    """Polls until the members share the partitions and each has read its own to the end."""
    deadline_s = time.monotonic() + PATIENCE_S
    read: dict[int, int] = {}
    while True:
        for consumer in consumers:
            record = consumer.poll(_POLL_S)
            if record is not None and record.error() is None:
                read[record.partition() or 0] = record.offset() or 0
        shares = [len(consumer.assignment()) for consumer in consumers]
        if sum(shares) == 3 and all(shares) and list(read.values()) == [COUNT - 1] * 3:
            break
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"in {PATIENCE_S:.0f} s members came to own {shares}, and to read {read}")
    for consumer in consumers:
        consumer.commit(asynchronous=False)
