"""The same log, compacted by a real Kafka 3.9.1 broker and by ours: batch by batch the same is left."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.cimpl import NewTopic

from ottla.log.names import CLEANER_OFFSETS, LEADER_EPOCHS
from ottla.records import Compression
from ottla.records.layout import DELETE_HORIZON_BIT
from ottla.testing.manual_clock import ManualClock
from support.controllers import admin_of
from support.kafka_process import stop, zookeeper, zookeeper_mode_broker
from support.logs.written_log import PARTITION, SeenBatch, WrittenLog, take_apart
from support.waiting import wait_until

pytestmark = pytest.mark.compat

SEGMENT_BYTES = 6000
PATIENCE_S = 60.0
BROKER = {"log.cleaner.backoff.ms": "100", "log.cleaner.dedupe.buffer.size": "4000000"}
TOPIC = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": str(SEGMENT_BYTES)}


def write(place: Path, clock: ManualClock) -> WrittenLog:
    """Producers of all kinds, transactions of both outcomes that overlap, tombstones, every codec, many segments."""
    written = WrittenLog.make(place, clock=clock, segment_bytes=SEGMENT_BYTES, index_interval_bytes=300)
    chance = random.Random(5)
    in_transaction: set[int] = set()
    for _ in range(600):
        pairs = [
            (b"key %d" % chance.randrange(60), None if chance.random() < 0.15 else chance.randbytes(20))
            for _ in range(chance.randrange(1, 6))
        ]
        codec = Compression(chance.randrange(5))
        what = chance.random()
        if what < 0.4:
            written.append(*pairs, compression=codec, producer_id=chance.choice([-1, 1, 2, 3]))
        elif what < 0.75:
            producer_id = chance.choice([11, 12, 13])
            in_transaction.add(producer_id)
            written.append(*pairs, compression=codec, producer_id=producer_id, transactional=True)
        elif in_transaction:
            producer_id = chance.choice(sorted(in_transaction))
            in_transaction.discard(producer_id)
            written.end_transaction(producer_id, committed=chance.random() < 0.6)
        clock.advance_ms(20)
    for producer_id in sorted(in_transaction):
        written.end_transaction(producer_id, committed=False)
    written.append((b"only tombstone", None))
    written.log.roll()
    written.append((b"active", b"1"))
    written.log.flush()
    return written


def compact_by_kafka(place: Path, source: Path, end_offset: int) -> Path:
    """Gives a broker the files as those of a topic of its own, and waits for its cleaner. The folder it left."""
    home = place / "broker"
    with zookeeper(place / "zookeeper") as address:
        broker = zookeeper_mode_broker(home, address, 1, BROKER)
        try:
            admin = admin_of(broker)
            topic = NewTopic(PARTITION.topic, 1, 1, config=TOPIC)
            for created in admin.create_topics([topic], operation_timeout=30).values():
                created.result()
        finally:
            stop(broker.process)
        folder = broker.data / str(PARTITION)
        for file in (*source.glob("0*"), source / LEADER_EPOCHS):
            shutil.copy(file, folder / file.name)
        broker = zookeeper_mode_broker(home, address, 1, BROKER)
        try:
            checkpoint = broker.data / CLEANER_OFFSETS
            expected = f"{PARTITION.topic} {PARTITION.partition} {end_offset}"
            wait_until(
                lambda: checkpoint.exists() and expected in checkpoint.read_text().splitlines(),
                f"Kafka did not compact up to {end_offset}",
                PATIENCE_S,
            )
        finally:
            stop(broker.process)
    return folder


def facts(batch: SeenBatch) -> tuple[Any, ...]:
    """All but when the delete horizon is: both set it by their clocks."""
    *before, attributes, horizon_ms, newest_ms, producer_id, epoch, sequence, records = batch.facts
    if not isinstance(attributes, int):
        raise TypeError(attributes)
    has_horizon = bool(attributes & DELETE_HORIZON_BIT)
    assert has_horizon == (horizon_ms is not None)
    return (*before, attributes, newest_ms, producer_id, epoch, sequence, records)


def test_ours_leaves_what_kafkas_cleaner_leaves(tmp_path: Path) -> None:
    written = write(tmp_path / "ours", ManualClock(int(time.time() * 1000) - 60_000))
    source = tmp_path / "source"
    shutil.copytree(written.log.directory, source)
    active = written.log.active.base_offset
    folder = compact_by_kafka(tmp_path, source, active)
    assert written.compact(roll=False) == active

    names = sorted(path.name for path in folder.glob("*.log"))
    assert [segment.path.name for segment in written.log.segments] == names
    theirs = [batch for name in names for batch in take_apart((folder / name).read_bytes())]
    ours = written.batches()
    assert [facts(batch) for batch in ours] == [facts(batch) for batch in theirs]
    assert len(ours) < len(take_apart(b"".join(path.read_bytes() for path in sorted(source.glob("*.log"))))) / 2
    assert any(not batch.records for batch in ours)
    assert any(batch.header.delete_horizon_ms is not None for batch in ours)

    def aborts(directory: Path) -> dict[str, bytes]:
        return {path.name: data for path in sorted(directory.glob("*.txnindex")) if (data := path.read_bytes())}

    assert aborts(folder) == aborts(written.log.directory)
    assert aborts(folder)
