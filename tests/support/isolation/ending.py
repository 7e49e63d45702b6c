"""The end of a run: everything that is stored, as both libraries read it, the group's offsets, and markers on disk."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError

from ottla import Admin, Consumer, TopicPartition
from ottla.client.administer import LATEST
from ottla.records.batch import iter_batches
from support.cluster.checker import Place
from support.isolation.client import GROUP
from support.isolation.libraries import unpacked

Records = dict[Place, list[tuple[int, int]]]


def settle(admin: Admin, places: Sequence[Place], ids: Sequence[str], timeout_s: float) -> list[str]:
    """Aborts what killed clients left open, and waits until all transactions are over. What is still open then."""
    admin.fence_producers(ids)
    deadline_s = time.monotonic() + timeout_s
    while True:
        still = _open(admin, places)
        if not still or time.monotonic() > deadline_s:
            return still
        time.sleep(0.1)


def _open(admin: Admin, places: Sequence[Place]) -> list[str]:
    partitions = {TopicPartition(*place): LATEST for place in places}
    ends = admin.list_offsets(partitions)
    stable = admin.list_offsets(partitions, isolation_level="read_committed")
    return [
        f"{partition}: the last stable offset is {stable[partition].offset}, the end {ends[partition].offset}"
        for partition in partitions
        if stable[partition].offset != ends[partition].offset
    ]


def read_with_confluent(bootstrap: str, places: Sequence[Place], isolation_level: str, timeout_s: float) -> Records:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": isolation_level,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
            "log_level": 0,
        }
    )
    found: Records = {place: [] for place in places}
    left = set(places)
    deadline_s = time.monotonic() + timeout_s
    consumer.assign([confluent_kafka.TopicPartition(*place, 0) for place in places])
    try:
        while left and time.monotonic() < deadline_s:
            for message in consumer.consume(1000, 0.2):
                place = Place(str(message.topic()), int(message.partition() or 0))
                error = message.error()
                if error is None:
                    found[place].append((int(message.offset() or 0), unpacked(message.value())))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(place)
    finally:
        consumer.close()
    if left:
        raise TimeoutError(f"librdkafka did not reach the end of {sorted(left)} in {timeout_s:.0f} s")
    return found


def read_with_ottla(bootstrap: str, places: Sequence[Place], isolation_level: str, timeout_s: float) -> Records:
    found: Records = {place: [] for place in places}
    partitions = [TopicPartition(*place) for place in places]
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "isolation.level": isolation_level,
        "auto.offset.reset": "earliest",
        "fetch.max.wait.ms": 100,
    }
    deadline_s = time.monotonic() + timeout_s
    with Consumer(settings) as consumer:
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(each) < end for each, end in ends.items()):
            if time.monotonic() > deadline_s:
                positions = {str(each): consumer.position(each) for each in partitions}
                raise TimeoutError(f"Ottla's consumer is at {positions} after {timeout_s:.0f} s; the ends are {ends}")
            for each in consumer.poll(0.2):
                found[Place(each.topic, each.partition)].append((each.offset, unpacked(each.value)))
    return found


def group_offsets(admin: Admin) -> dict[Place, int]:
    found = admin.list_consumer_group_offsets(GROUP, require_stable=True)
    return {Place(*partition): one.offset for partition, one in found.items()}


def markers_on_disk(logs: Path, place: Place) -> frozenset[int]:
    """Of a stopped broker, or one that writes no more."""
    found: set[int] = set()
    for segment in sorted((logs / str(place)).glob("*.log")):
        for batch in iter_batches(segment.read_bytes()):
            if batch.is_control:
                found.update(range(batch.base_offset, batch.last_offset + 1))
    return frozenset(found)
