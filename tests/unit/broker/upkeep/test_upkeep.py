"""What a broker does from time to time, with intervals short enough to see it."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.base.clock import SystemClock
from ottla.base.ids import TopicPartition
from ottla.broker.configs.nodes import Settings
from ottla.broker.upkeep import upkeep as upkeep_module
from ottla.log.compaction import CleanedGroup, Compaction
from ottla.log.compaction.throttle import Throttle
from ottla.log.errors import CorruptRecordsError
from ottla.log.names import CLEANER_OFFSETS
from ottla.log.partition_log import PartitionLog
from ottla.log.retention import apply_retention
from ottla.records import Record, encode_batch
from ottla.replication.partition import Partition
from support.brokers import Client, batch_of, broker_in_loop, with_client
from support.waiting import until


def partition_of(client: Client) -> Partition:
    partition = client.broker.replicas.get("orders", 0)
    assert partition is not None
    return partition


def test_high_watermarks_and_recovery_points_are_written_down(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        partition_of(client).append(bytearray(batch_of(b"a", b"b")), all_replicas=True)
        path = tmp_path / "data" / "logs" / "replication-offset-checkpoint"
        await until(lambda: path.exists() and "orders 0 2" in path.read_text())

    with_client(tmp_path, work, replica_high_watermark_checkpoint_interval_ms="10")


def test_old_segments_are_deleted(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", segment_bytes="1000", retention_bytes="2000", file_delete_delay_ms="0")
        partition = partition_of(client)
        for _ in range(20):
            partition.append(bytearray(batch_of(b"x" * 500)), all_replicas=True)
        await until(lambda: partition.log is not None and partition.log.log_start_offset > 10)

    with_client(tmp_path, work, log_retention_check_interval_ms="10", log_initial_task_delay_ms="0")


def test_records_are_flushed_when_their_time_has_come(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", flush_ms="1")
        partition = partition_of(client)
        partition.append(bytearray(batch_of(b"a")), all_replicas=True)
        await until(lambda: partition.log is not None and partition.log.recovery_point == 1)

    with_client(tmp_path, work, log_flush_scheduler_interval_ms="10")


def test_a_closed_segment_is_flushed(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", segment_bytes="1000")
        partition = partition_of(client)
        for _ in range(3):
            partition.append(bytearray(batch_of(b"x" * 500)), all_replicas=True)
        await until(lambda: partition.log is not None and partition.log.recovery_point > 0)

    with_client(tmp_path, work)


def test_compacted_topics_keep_the_last_record_of_a_key(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic(
            "orders", cleanup_policy="compact", segment_bytes="2000", min_cleanable_dirty_ratio="0.01"
        )
        partition = partition_of(client)
        for number in range(50):
            record = Record(0, 1_700_000_000_000, b"key", b"%d" % number + bytes(400))
            partition.append(encode_batch([record]), all_replicas=True)
        log = partition.log
        assert log is not None
        size = log.size
        await until(lambda: log.size < size / 4)
        assert log.next_offset == 50

    with_client(tmp_path, work, log_cleaner_backoff_ms="10")


# --- what goes wrong ------------------------------------------------------------------------------------------------


def log_of(client: Client, topic: str) -> PartitionLog:
    partition = client.broker.replicas.get(topic, 0)
    assert partition is not None
    assert partition.log is not None
    return partition.log


def append_keyed(client: Client, topic: str, count: int, keys: int = 1) -> None:
    partition = client.broker.replicas.get(topic, 0)
    assert partition is not None
    for number in range(count):
        record = Record(0, SystemClock().now_ms(), b"key %d" % (number % keys), b"%d" % number + bytes(400))
        partition.append(encode_batch([record]), all_replicas=True)


def in_loop(work: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Has the loop do something, for a thread that waits for it."""
    loop = asyncio.get_running_loop()
    return lambda: asyncio.run_coroutine_threadsafe(work(), loop).result(30)


def before_cleaning(monkeypatch: pytest.MonkeyPatch, call: int, do: Callable[[], None]) -> None:
    """Has the worker of a compaction do something before it cleans its next group for the so manieth time."""
    real, calls = Compaction.clean_next, iter(range(1, 1000))

    def clean_next(compaction: Compaction) -> CleanedGroup | None:
        if next(calls) == call:
            do()
        return real(compaction)

    monkeypatch.setattr(Compaction, "clean_next", clean_next)


COMPACTED = {"cleanup_policy": "compact", "segment_bytes": "2000", "min_cleanable_dirty_ratio": "0.01"}


def test_retention_of_one_bad_log_does_not_end_that_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def retain(log: PartitionLog) -> int:
        if log.partition.topic == "bad":
            raise CorruptRecordsError("its active segment cannot be read")
        return apply_retention(log)

    async def work(client: Client) -> None:
        upkeep = client.broker._upkeep
        for topic in ("bad", "good"):
            await client.create_topic(topic, segment_bytes="1000", retention_ms="1")
            partition = client.broker.replicas.get(topic, 0)
            assert partition is not None
            for _ in range(5):
                partition.append(bytearray(batch_of(b"x" * 500)), all_replicas=True)
        monkeypatch.setattr(upkeep_module, "apply_retention", retain)
        for _ in range(3):
            await upkeep._retain()
        assert log_of(client, "good").size == 0
        assert upkeep.stats.not_retained == [log_of(client, "bad").directory]
        assert upkeep.stats.failures == {"retention": 3}
        await client.broker.controller.delete_topic("bad")
        assert upkeep.stats.not_retained == []

    with_client(tmp_path, work)
    assert len([line for line in caplog.messages if "bad-0: old records cannot be deleted" in line]) == 1


def test_a_damaged_log_is_retained_like_the_others(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        for topic in ("bad", "good"):
            await client.create_topic(topic, segment_bytes="1000", retention_ms="1")
            partition = client.broker.replicas.get(topic, 0)
            assert partition is not None
            for _ in range(5):
                partition.append(bytearray(batch_of(b"x" * 500)), all_replicas=True)
        with log_of(client, "bad").active.path.open("r+b") as file:
            file.seek(8)
            file.write(b"\xff" * 4)
        await client.broker._upkeep._retain()
        assert log_of(client, "good").size == log_of(client, "bad").size == 0
        assert client.broker.directories.directories[0].failure is None

    with_client(tmp_path, work)


def test_retention_waits_for_the_compaction_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(client: Client) -> None:
        upkeep = client.broker._upkeep
        settings = {**COMPACTED, "cleanup_policy": "compact,delete", "retention_bytes": "6000"}
        await client.create_topic("orders", 1, **settings)
        append_keyed(client, "orders", 50, keys=50)
        log = log_of(client, "orders")
        kept: list[bool] = []

        async def retain() -> None:
            before = log.segments
            await upkeep._retain()
            kept.append(log.segments == before)

        before_cleaning(monkeypatch, 2, in_loop(retain))
        await upkeep._compactor.compact()
        assert kept == [True]
        assert client.broker.directories.directories[0].failure is None
        assert log.size <= 6000 + 2000
        assert log.log_start_offset > 0
        cleaner = upkeep._compactor._cleaner
        assert cleaner.cleaned_offsets(log.directory.parent).get(log.partition) is not None

    with_client(tmp_path, work, log_cleaner_backoff_ms="1000000", log_retention_check_interval_ms="1000000")


def test_segments_that_the_broker_itself_takes_away_are_no_failure_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", 1, **COMPACTED)
        append_keyed(client, "orders", 20, keys=20)
        log = log_of(client, "orders")

        async def delete() -> None:
            log.delete_segments(list(log.segments[:2]))

        before_cleaning(monkeypatch, 1, in_loop(delete))
        compactor = client.broker._upkeep._compactor
        await compactor.compact()
        assert client.broker.directories.directories[0].failure is None
        assert not compactor._cleaner.uncleanable
        assert not compactor.is_compacting(log)
        await compactor.compact()
        assert compactor._cleaner.cleaned_offsets(log.directory.parent).get(log.partition) is not None

    with_client(tmp_path, work, log_cleaner_backoff_ms="1000000")


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_pass_that_fails_keeps_no_other_from_being_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    async def work(client: Client) -> None:
        for topic in ("first", "second"):
            await client.create_topic(topic, 1, **COMPACTED)
            append_keyed(client, topic, 20)
        sizes = {topic: log_of(client, topic).size for topic in ("first", "second")}
        failed: list[str] = []

        def fail() -> None:
            failed.append("once")
            raise OSError(number, "the disk says no")

        before_cleaning(monkeypatch, 1, fail)
        await client.broker._upkeep._compactor.compact()
        directory = client.broker.directories.directories[0]
        assert failed
        if number == errno.EIO:
            assert directory.failure is not None
        else:
            assert directory.failure is None
            assert sum(log_of(client, topic).size < sizes[topic] / 2 for topic in sizes) == 1

    with_client(tmp_path, work, log_cleaner_backoff_ms="1000000")


def test_tasks_go_on_after_an_unforeseen_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(client: Client) -> None:
        broker = client.broker
        stats, directories = broker._upkeep.stats, broker.directories
        await client.create_topic("orders", flush_ms="1")
        names = {"checkpoint": "checkpoint_later", "removal": "remove_later", "flush": "logs"}
        done: set[str] = set()
        for task, name in names.items():
            real, calls = getattr(directories, name), iter(range(1000))

            def once(task: str = task, real: Any = real, calls: Iterator[int] = calls) -> Any:
                if next(calls) == 0:
                    raise ValueError("a bug")
                done.add(task)
                return real()

            monkeypatch.setattr(directories, name, once)
        await until(lambda: done == set(names))
        assert sum(stats.failures.values()) == 3
        assert stats.failures["checkpoint"] == stats.failures["removal"] == 1
        monkeypatch.undo()

    monkeypatch.setattr(upkeep_module, "_REMOVAL_S", 0.01)
    quick = {
        "replica_high_watermark_checkpoint_interval_ms": "10",
        "log_flush_scheduler_interval_ms": "10",
        "log_cleaner_backoff_ms": "1000000",
    }
    with_client(tmp_path, work, **quick)


# --- partitions that go ---------------------------------------------------------------------------------------------


def test_a_deleted_topic_leaves_no_cleaned_offset_though_nothing_was_compacted_since_the_start(tmp_path: Path) -> None:
    offsets = tmp_path / "data" / "logs" / CLEANER_OFFSETS

    async def work() -> None:
        async with broker_in_loop(tmp_path, log_cleaner_backoff_ms="1000000") as broker:
            client = Client(broker)
            for topic in ("orders", "others"):
                await client.create_topic(topic, 1, **COMPACTED)
                append_keyed(client, topic, 20)
            await broker._upkeep._compactor.compact()
            assert "orders 0" in offsets.read_text()
        async with broker_in_loop(tmp_path, log_cleaner_backoff_ms="1000000") as broker:
            await broker.controller.delete_topic("orders")
            await until(lambda: "orders" not in offsets.read_text())
            assert "others 0" in offsets.read_text()
        offsets.write_text("0\n2\nothers 0 5\ngone 3 7\n")
        async with broker_in_loop(tmp_path, log_cleaner_backoff_ms="1000000"):
            await until(lambda: "gone" not in offsets.read_text())

    asyncio.run(work())


# --- settings that change -------------------------------------------------------------------------------------------


def setting(**settings: str) -> Callable[[Settings], Settings]:
    return lambda before: {**before, **{key.replace("_", "."): text for key, text in settings.items()}}


def test_options_of_compaction_hold_without_a_restart(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        configs, compactor = client.broker.configs, client.broker._upkeep._compactor
        await client.create_topic("orders", 1, **COMPACTED)
        append_keyed(client, "orders", 20)
        log = log_of(client, "orders")
        size = log.size
        await configs.alter_broker(
            None,
            setting(
                log_cleaner_backoff_ms="1",
                log_cleaner_dedupe_buffer_size="4194304",
                log_cleaner_io_max_bytes_per_second="1e9",
                log_cleaner_io_buffer_size="1000",
                log_cleaner_io_buffer_load_factor="0.5",
                log_cleaner_threads="2",
            ),
        )
        await until(lambda: log.size < size / 2)
        options = compactor._cleaner._options
        assert (options.dedupe_buffer_bytes, options.io_buffer_bytes, options.threads) == (4194304, 1000, 2)
        assert (options.load_factor, options.max_io_bytes_per_second) == (0.5, 1e9)

    with_client(tmp_path, work, log_cleaner_backoff_ms="1000000")


def test_as_many_logs_are_compacted_at_a_time_as_there_are_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(2, timeout=30)

    async def work(client: Client) -> None:
        for topic in ("first", "second"):
            await client.create_topic(topic, 1, **COMPACTED)
            append_keyed(client, topic, 20)
        await client.broker.configs.alter_broker(1, setting(log_cleaner_threads="2"))
        real, met = Compaction.clean_next, set[str]()

        def clean_next(compaction: Compaction) -> CleanedGroup | None:
            if compaction.partition.topic not in met:
                met.add(compaction.partition.topic)
                together.wait()
            return real(compaction)

        monkeypatch.setattr(Compaction, "clean_next", clean_next)
        compactor = client.broker._upkeep._compactor
        await compactor.compact()
        offsets = compactor._cleaner.cleaned_offsets(log_of(client, "first").directory.parent)
        await until(lambda: all(offsets.get(TopicPartition(topic, 0)) for topic in ("first", "second")))

    with_client(tmp_path, work, log_cleaner_backoff_ms="1000000")
    assert not together.broken


def test_a_broker_stops_soon_though_its_compaction_is_slow_on_purpose(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", 1, **COMPACTED)
        append_keyed(client, "orders", 20)
        log = log_of(client, "orders")
        compacting = asyncio.ensure_future(client.broker._upkeep._compactor.compact())
        await until(lambda: client.broker._upkeep._compactor.is_compacting(log))
        await client.broker._upkeep.stop()
        compacting.cancel()

    with_client(tmp_path, work, log_cleaner_backoff_ms="1000000", log_cleaner_io_max_bytes_per_second="1")


def test_a_broker_stops_soon_though_its_scrub_is_slow_on_purpose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_waiting = threading.Event()
    real = Throttle.spend

    def spend(throttle: Throttle, size: int, *args: Any) -> None:
        is_waiting.set()
        real(throttle, size, *args)

    monkeypatch.setattr(Throttle, "spend", spend)

    async def work(client: Client) -> None:
        await client.create_topic("orders", segment_bytes="1000")
        append_keyed(client, "orders", 5)
        await until(is_waiting.is_set)
        await client.broker._upkeep.stop()

    settings = {"ottla_log_scrub_bytes_per_second": "1", "ottla_log_scrub_interval_ms": "10"}
    with_client(tmp_path, work, **settings, log_initial_task_delay_ms="0", log_cleaner_backoff_ms="1000000")


def test_producers_are_forgotten_as_the_setting_says_now(tmp_path: Path) -> None:
    async def work() -> None:
        async with broker_in_loop(tmp_path) as broker:
            client = Client(broker)
            await client.create_topic("orders")
            await broker.configs.alter_broker(None, setting(producer_id_expiration_ms="12345"))
            await client.create_topic("later")
            assert {log.producers.expiration_ms for log in broker.directories.logs()} == {12345}
        async with broker_in_loop(tmp_path) as broker:
            assert {log.producers.expiration_ms for log in broker.directories.logs()} == {12345}

    asyncio.run(work())


def test_damage_is_found_in_what_nobody_reads(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", segment_bytes="1000")
        partition = partition_of(client)
        for _ in range(5):
            partition.append(bytearray(batch_of(b"x" * 500)), all_replicas=True)
        log = partition.log
        assert log is not None
        path = log.segments[0].path
        content = bytearray(path.read_bytes())
        content[200] ^= 1
        path.write_bytes(content)
        await until(lambda: f"{path} is damaged at byte 0" in caplog.text)  # a thread counts, then writes it
        assert log.damages.count == 1
        assert partition.read(1, 1000, committed_only=False, to_log_end=False, min_one=True).slice is not None

    with_client(tmp_path, work, ottla_log_scrub_interval_ms="10", log_initial_task_delay_ms="0")
