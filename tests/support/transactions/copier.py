"""`python -m support.transactions.copier`: copies a topic exactly once, in small transactions, until it is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ottla import Consumer, ConsumerRecord, Producer, exactly_once

TESTS = Path(__file__).parents[2]


@contextmanager
def copier(
    bootstrap: str, source: str, target: str, group: str, name: str, protocol: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that copies; killed at the end. The name is its transactional id."""
    arguments = [bootstrap, source, target, group, name, protocol]
    process = subprocess.Popen([sys.executable, "-m", "support.transactions.copier", *arguments], cwd=TESTS)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def main(bootstrap: str, source: str, target: str, group: str, name: str, protocol: str) -> None:
    settings: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "max.poll.records": 10,
        "metadata.max.age.ms": 300,
    }
    if protocol == "classic":
        settings |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
    consumer: Consumer[bytes | None, bytes | None] = Consumer(settings)
    with consumer, Producer(bootstrap_servers=bootstrap, transactional_id=name, linger_ms=0) as producer:
        consumer.subscribe(source)

        def copy(records: list[ConsumerRecord]) -> None:
            for record in records:
                producer.send(target, record.value, key=record.key, partition=record.partition)

        exactly_once(consumer, producer, copy)


if __name__ == "__main__":
    main(*sys.argv[1:])
