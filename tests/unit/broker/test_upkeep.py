"""What a broker does from time to time, with intervals short enough to see it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from brokers import Client, batch_of, with_client
from ottla.records import Record, encode_batch
from ottla.replication.partition import Partition


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


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
