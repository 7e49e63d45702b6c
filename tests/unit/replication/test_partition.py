"""A partition's leader: epochs, the high watermark, the disk, and what happens when that fails."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from ottla.base.clock import SystemClock
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition, random_uuid
from ottla.log import local_disk
from ottla.log.config import LogConfig
from ottla.log.directories import DirectoryOptions, LogDirectories
from ottla.log.errors import LogOffsetOutOfRangeError
from ottla.log.local_disk import LocalDisk
from ottla.records import Record, encode_batch
from ottla.records.layout import ATTRIBUTES_AT
from ottla.records.new_batch import NewBatch
from ottla.replication.delayed import Purgatory
from ottla.replication.errors import ReplicationError
from ottla.replication.partition import AwaitedAppend, Partition
from ottla.replication.replicas import Replicas
from support.replication.roles import follow, lead
from support.waiting import until

NAME = TopicPartition("orders", 0)
BROKER = 1


def batch(count: int = 1) -> bytearray:
    return bytearray(encode_batch([Record(n, 1_700_000_000_000, None, b"value") for n in range(count)]))


def made() -> NewBatch:
    return NewBatch(bytes(batch()[ATTRIBUTES_AT:]), 1, 1_700_000_000_000)


def with_replicas(tmp_path: Path, work: Callable[[Replicas], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        directories = LogDirectories(
            LocalDisk(), SystemClock(), [tmp_path / "logs"], DirectoryOptions(broker_id=BROKER)
        )
        directories.open(lambda _: LogConfig())
        replicas = Replicas(BROKER, directories, asyncio.get_running_loop())
        try:
            await asyncio.wait_for(work(replicas), 30)
        finally:
            replicas.close()
            directories.close()

    asyncio.run(run())


def leader(
    replicas: Replicas, config: LogConfig | None = None, *, isr: tuple[int, ...] = (BROKER,), epoch: int = 0
) -> Partition:
    partition = replicas.host(NAME, random_uuid(), config or LogConfig(), is_new=True)
    lead(partition, leader_epoch=epoch, isr=isr, replicas=isr)
    return partition


def test_a_leader_on_its_own_shows_what_it_appends(tmp_path: Path) -> None:
    async def work(replicas: Replicas) -> None:
        partition = leader(replicas)
        info = partition.append(batch(3), all_replicas=True)
        assert (info.first_offset, info.last_offset) == (0, 2)
        assert partition.high_watermark == 3
        assert partition.read(0, 1000).slice is not None
        assert partition.read(3, 1000).slice is None
        with pytest.raises(LogOffsetOutOfRangeError):
            partition.read(4, 1000)

    with_replicas(tmp_path, work)


def test_a_follower_in_sync_holds_the_high_watermark_back(tmp_path: Path) -> None:
    async def work(replicas: Replicas) -> None:
        partition = leader(replicas, isr=(BROKER, 2))
        partition.append(batch(), all_replicas=True)
        assert partition.high_watermark == 0
        assert partition.read(0, 1000).slice is None
        assert partition.read(0, 1000, to_log_end=True).slice is not None
        lead(partition, leader_epoch=1, isr=(BROKER,), replicas=(BROKER, 2))
        assert partition.high_watermark == 1

    with_replicas(tmp_path, work)


def test_what_a_broker_makes_itself_is_seen_when_it_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, if there are no other replicas."""

    async def work(replicas: Replicas) -> None:
        partition = leader(replicas)
        woken: list[Partition] = []
        monkeypatch.setattr(Purgatory, "changed", lambda _, key: woken.append(key))
        for end in (1, 2, 3):  # the first one finds out what fits into the segment
            assert partition.append_own(made()) == end
            assert partition.high_watermark == end
            assert woken == [partition] * end
        lead(partition, leader_epoch=0, isr=(BROKER, 2), replicas=(BROKER, 2))
        assert partition.append_own(made()) == 4
        assert partition.high_watermark == 3

    with_replicas(tmp_path, work)


def test_a_broker_that_leaves_no_longer_holds_the_high_watermark_back(tmp_path: Path) -> None:
    async def work(replicas: Replicas) -> None:
        environment, gone = replicas.environment, {3}
        environment.is_alive = lambda broker: broker not in gone
        partition = replicas.host(NAME, random_uuid(), LogConfig(), is_new=True)
        lead(partition, leader_epoch=0, isr=(BROKER, 2), replicas=(BROKER, 2, 3), now_s=environment.clock_s())

        def fetched(replica: int, offset: int, leader_end: int) -> None:
            partition.follower_fetched(
                replica,
                fetch_offset=offset,
                log_start_offset=0,
                leader_end_offset_at_read=leader_end,
                broker_epoch=1,
                now_s=environment.clock_s(),
            )

        fetched(3, 0, 0)  # caught up, and about to join
        gone.clear()
        partition.append(batch(), all_replicas=True)
        fetched(2, 1, 1)
        assert partition.high_watermark == 0
        gone.add(3)
        partition.broker_left()
        assert partition.high_watermark == 1

    with_replicas(tmp_path, work)


def test_an_append_waits_on_through_new_epochs_of_the_same_leader_only(tmp_path: Path) -> None:
    async def work(replicas: Replicas) -> None:
        partition = leader(replicas, isr=(BROKER, 2, 3), epoch=5)
        partition.append(batch(), all_replicas=True)
        waiting = AwaitedAppend(1, 5, all_replicas=True)
        # Broker 3 died: its place in the ISR is gone, and the controller has raised the epoch.
        lead(partition, leader_epoch=6, isr=(BROKER, 2), replicas=(BROKER, 2, 3))
        assert partition.outcome(waiting) is None
        lead(partition, leader_epoch=7, isr=(BROKER,), replicas=(BROKER, 2, 3))
        assert partition.outcome(waiting) is ErrorCode.NONE
        follow(partition, 2, leader_epoch=8)
        assert partition.outcome(waiting) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        lead(partition, leader_epoch=9, isr=(BROKER,), replicas=(BROKER, 2, 3))
        assert partition.outcome(waiting) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    with_replicas(tmp_path, work)


def test_too_few_in_sync_replicas_refuse_acks_of_all_only(tmp_path: Path) -> None:
    async def work(replicas: Replicas) -> None:
        partition = leader(replicas, LogConfig(min_insync_replicas=2), isr=(BROKER, 2))
        lead(partition, leader_epoch=0, isr=(BROKER,), replicas=(BROKER, 2))
        with pytest.raises(ReplicationError) as refused:
            partition.append(batch(), all_replicas=True)
        assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        partition.append(batch(), all_replicas=False)

    with_replicas(tmp_path, work)


def test_a_minimum_beyond_the_replicas_there_are_counts_as_all_of_them(tmp_path: Path) -> None:
    async def work(replicas: Replicas) -> None:
        partition = leader(replicas, LogConfig(min_insync_replicas=3))
        partition.append(batch(), all_replicas=True)

    with_replicas(tmp_path, work)


@pytest.mark.parametrize(
    ("known", "told"),
    [
        (-1, ErrorCode.NONE),
        (5, ErrorCode.NONE),
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (-2, ErrorCode.FENCED_LEADER_EPOCH),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_client_with_another_epoch_gets_an_error(tmp_path: Path, known: int, told: ErrorCode) -> None:
    async def work(replicas: Replicas) -> None:
        assert leader(replicas, epoch=5).check_leader(known) is told

    with_replicas(tmp_path, work)


def test_where_an_epoch_ends(tmp_path: Path) -> None:
    async def work(replicas: Replicas) -> None:
        partition = leader(replicas, epoch=3)
        partition.append(batch(2), all_replicas=True)
        lead(partition, leader_epoch=7, isr=(BROKER,), replicas=(BROKER,))
        assert partition.end_of_epoch(3) == (3, 2)
        assert partition.end_of_epoch(7) == (7, 2)
        partition.append(batch(1), all_replicas=True)
        assert partition.end_of_epoch(5) == (3, 2)
        assert partition.end_of_epoch(7) == (7, 3)

    with_replicas(tmp_path, work)


def test_an_epoch_ends_where_a_leader_that_has_not_written_begins(tmp_path: Path) -> None:
    async def work(replicas: Replicas) -> None:
        partition = leader(replicas, epoch=3)
        assert [partition.end_of_epoch(epoch) for epoch in (-2, -1, 0, 3, 4)] == [
            (-2, 0),
            (-1, -1),
            (0, 0),
            (3, 0),
            (-1, -1),
        ]
        partition.append(batch(2), all_replicas=True)
        assert partition.end_of_epoch(-2) == (-2, 0)
        lead(partition, leader_epoch=7, isr=(BROKER,), replicas=(BROKER,))
        assert partition.end_of_epoch(5) == (3, 2)
        assert partition.end_of_epoch(8) == (-1, -1)

    with_replicas(tmp_path, work)


def test_records_that_must_be_on_disk_are_seen_only_then(tmp_path: Path) -> None:
    async def work(replicas: Replicas) -> None:
        partition = leader(replicas, LogConfig(flush_messages=1))
        log = partition.log
        assert log is not None
        partition.append(batch(), all_replicas=False)
        await until(lambda: partition.high_watermark == 1)
        assert log.recovery_point == 1
        assert not partition.must_flush

    with_replicas(tmp_path, work)


def test_a_full_disk_refuses_appends_and_goes_on_serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(replicas: Replicas) -> None:
        partition = leader(replicas)
        partition.append(batch(), all_replicas=True)
        log = partition.log
        assert log is not None
        with monkeypatch.context() as patched:
            patched.setattr(
                type(log), "append_as_leader", lambda *_, **__: _raise(OSError(errno.ENOSPC, "no space left"))
            )
            with pytest.raises(ReplicationError, match="is full") as refused:
                partition.append(batch(), all_replicas=True)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.check_leader() is ErrorCode.NONE
        assert partition.read(0, 1000).slice is not None
        partition.append(batch(), all_replicas=True)
        assert partition.high_watermark == 2

    with_replicas(tmp_path, work)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failed_sync_takes_the_directory_offline_and_acknowledges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Also with a full disk: the next sync would succeed without the records that this one lost."""

    async def work(replicas: Replicas) -> None:
        partition = leader(replicas, LogConfig(flush_messages=1))
        partition.append(batch(), all_replicas=True)
        await until(lambda: partition.high_watermark == 1)
        failed: list[int] = []
        sync = local_disk._sync

        def fail_once(descriptor: int) -> None:
            if not failed:
                failed.append(descriptor)
                raise OSError(code, "it failed")
            sync(descriptor)

        monkeypatch.setattr(local_disk, "_sync", fail_once)
        log = partition.log
        assert log is not None
        partition.append(batch(), all_replicas=True)
        partition.append(batch(), all_replicas=True)
        await until(lambda: partition.log is None)
        assert (log.high_watermark, log.next_offset) == (1, 3)
        assert partition.check_leader() is ErrorCode.KAFKA_STORAGE_ERROR
        assert replicas.directories.online() == []

    with_replicas(tmp_path, work)


def test_a_broken_disk_takes_its_partitions_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(replicas: Replicas) -> None:
        partition = leader(replicas)
        log = partition.log
        with monkeypatch.context() as patched:
            patched.setattr(type(log), "append_as_leader", lambda *_, **__: _raise(OSError(errno.EIO, "I/O error")))
            with pytest.raises(ReplicationError, match="is offline") as refused:
                partition.append(batch(), all_replicas=True)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.check_leader() is ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.log is None
        with pytest.raises(ReplicationError, match="offline"):
            partition.read(0, 1000)

    with_replicas(tmp_path, work)


def test_a_deleted_topic_of_the_same_name_leaves_nothing_to_the_new_one(tmp_path: Path) -> None:
    async def work(replicas: Replicas) -> None:
        leader(replicas).append(batch(5), all_replicas=True)
        renewed = leader(replicas)
        assert renewed.high_watermark == 0
        assert renewed.log is not None
        assert renewed.log.next_offset == 0

    with_replicas(tmp_path, work)


def _raise(error: Exception) -> None:
    raise error
