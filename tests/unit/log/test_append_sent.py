"""The fast path of an append: it must do what the general one does, or nothing."""

from __future__ import annotations

import errno
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.log.config import LogConfig
from ottla.log.errors import LogError
from ottla.log.partition_log import PartitionLog
from ottla.log.sent_batch import header_of_sent
from ottla.records import Compression, TimestampType
from ottla.records.layout import ATTRIBUTES_AT, TRANSACTIONAL_BIT
from ottla.testing.manual_clock import ManualClock
from ottla.testing.simulated_disk import DiskOperation, SimulatedDisk
from support.logs.batches import NOW_MS, batch
from support.logs.checker import check, records_in
from support.logs.home import Home

SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=300)


def append_either_way(log: PartitionLog, data: bytearray, epoch: int) -> tuple[int, bool] | LogError:
    """The base offset, and whether the fast path found it."""
    before = bytes(data)
    is_transactional = len(data) > ATTRIBUTES_AT + 1 and data[ATTRIBUTES_AT + 1] == TRANSACTIONAL_BIT
    offset = log.append_sent(memoryview(data), epoch, TRANSACTIONAL_BIT if is_transactional else 0)
    if offset >= 0:
        return offset, True
    assert bytes(data) == before
    try:
        return log.append_as_leader(memoryview(data), epoch).first_offset, False
    except LogError as error:
        return error


def random_batch(chance: random.Random, number: int) -> bytearray:
    """Of all kinds: plain, compressed, transactional, damaged, of producers that repeat and skip sequence numbers."""
    kind = chance.randrange(12)
    options: dict[str, Any] = {"timestamp_ms": NOW_MS + number * 1000 + chance.randrange(-500, 500)}
    if kind in (0, 1, 2):
        options |= {"producer_id": chance.randrange(3), "producer_epoch": 0, "sequence": max(0, number // 3 - kind)}
    if kind == 8:
        options |= {"producer_id": chance.choice([-1, 7, 8]), "producer_epoch": 0, "transactional": True}
        options["sequence"] = chance.choice([-1, 0, number // 12])
    made = batch(
        [b"v" * chance.randrange(120) for _ in range(chance.choice([1, 1, 1, 2, 9]))],
        key=chance.choice([None, b"key"]),
        compression=Compression.GZIP if kind == 3 else Compression.NONE,
        base_offset=1 if kind == 4 else 0,
        **options,
    )
    if kind == 5:
        made[chance.randrange(len(made))] ^= 1 << chance.randrange(8)
    if kind == 6:
        made += bytes(chance.randrange(1, 5))
    if kind == 7:
        del made[chance.randrange(len(made)) :]
    return made


@pytest.mark.parametrize("seed", range(6))
def test_the_files_and_errors_are_those_of_the_general_path(home: Home, seed: int) -> None:
    other = Home(home.disk, home.clock, home.root / "other")
    fast, general = home.open(SMALL), other.open(SMALL)
    chance = random.Random(seed)
    fast_count = 0
    for number in range(400):
        made = random_batch(chance, number)
        epoch = number // 150
        found = append_either_way(fast, bytearray(made), epoch)
        if isinstance(found, LogError):
            with pytest.raises(type(found)) as told:
                general.append_as_leader(memoryview(made), epoch)
            assert str(told.value) == str(found)
        elif made:
            assert general.append_as_leader(memoryview(made), epoch).first_offset == found[0]
            fast_count += found[1]
        assert fast.next_offset == general.next_offset == fast.producers.map_end_offset
    assert fast_count > 60
    assert len(fast.segments) > 5
    for log in (fast, general):
        check(log)
        log.close()
    names = [name for name in home.names() if not name.endswith(".metadata")]
    assert names == [name for name in other.names() if not name.endswith(".metadata")]
    for name in names:
        assert home.disk.read(home.folder / name) == home.disk.read(other.folder / name), name


@pytest.mark.parametrize(
    "config",
    [
        replace(SMALL, compacts=True),
        replace(SMALL, compression=Compression.LZ4),
        replace(SMALL, flush_messages=100),
        replace(SMALL, max_message_bytes=60),
        replace(SMALL, timestamp_before_max_ms=1000),
        replace(SMALL, timestamp_type=TimestampType.LOG_APPEND_TIME),
    ],
    ids=["compacted", "recompressed", "flushed", "small messages", "limited times", "LogAppendTime"],
)
def test_a_topic_that_changes_or_refuses_batches_has_no_fast_path(home: Home, config: LogConfig) -> None:
    log = home.open(SMALL)
    log.append_as_leader(batch(), 0)
    assert log.append_sent(memoryview(batch()), 0) == 1
    log.update_config(config)
    made = batch()
    assert log.append_sent(memoryview(made), 0) == -1
    assert made == batch()
    if config.max_message_bytes > len(made):
        log.append_as_leader(memoryview(batch(timestamp_ms=home.clock.now_ms())), 0)
        assert log.append_sent(memoryview(batch()), 0) == -1


def test_only_a_verified_batch_of_a_transaction_takes_the_fast_path(home: Home) -> None:
    log = home.open(SMALL)
    log.append_as_leader(batch(), 0)
    made = batch(2, producer_id=5, producer_epoch=1, sequence=0, transactional=True)
    assert log.append_sent(memoryview(made), 0) == -1
    assert log.append_sent(memoryview(batch()), 0, TRANSACTIONAL_BIT) == -1, "not part of one"
    assert log.append_sent(memoryview(made), 0, TRANSACTIONAL_BIT) == 1
    assert log.producers.is_in_transaction(5, 1)
    assert (log.producers.first_undecided_offset, log.next_offset) == (1, 3)


@pytest.mark.parametrize("at", range(61))
def test_no_changed_byte_of_a_header_is_accepted(at: int) -> None:
    """Except in the leader epoch, which a client may set to anything and a leader overwrites."""
    made = batch(2, producer_id=5, producer_epoch=1, sequence=3)
    assert header_of_sent(memoryview(made), 1000) is not None
    for bit in range(8):
        made[at] ^= 1 << bit
        assert (header_of_sent(memoryview(made), 1000) is not None) == (12 <= at < 16)
        made[at] ^= 1 << bit


def test_a_failed_write_leaves_no_trace() -> None:
    clock = ManualClock()
    disk = SimulatedDisk(clock=clock)
    home = Home(disk, clock, Path("/data"))
    log = home.open(LogConfig())
    log.append_as_leader(batch(), 0)
    fault = disk.fail(
        errno.ENOSPC, when=lambda operation, path: path.suffix == ".log" and operation is DiskOperation.APPEND
    )
    with pytest.raises(OSError, match="No space"):
        log.append_sent(memoryview(batch()), 0)
    assert fault.strikes == 1
    assert log.next_offset == 1
    assert log.append_sent(memoryview(batch(3)), 0) == 1
    check(log)
    assert [record.offset for record in records_in(log)] == [0, 1, 2, 3]
