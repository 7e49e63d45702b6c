"""A full disk, on a file system of its own: appends are refused, reads go on, and with space everything does."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from faults.load import create_topic, read_all
from ottla.base.clock import SystemClock
from ottla.testing.broker import Broker
from ottla.zookeeper.local_tree import LocalTree
from ottla.zookeeper.tree_file import TreeFile
from support.waiting import wait_until


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "ottla-test", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a file system can be mounted by root only: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def send(bootstrap: str, topic: str, value: bytes) -> KafkaError | None:
    """What became of it. Without retries, so that the first answer counts."""
    outcome: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 60_000, "retries": 0, "log_level": 0})
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: outcome.append(error))
    producer.flush(60)
    return outcome[0]


def fill_up(disk: Path) -> Path:
    """To the last byte that a file can have."""
    filling = disk / "filling"
    with suppress(OSError):
        descriptor = os.open(filling, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            for size in (65536, 1):
                with suppress(OSError):
                    while True:
                        os.write(descriptor, bytes(size))
        finally:
            os.close(descriptor)
    return filling


def test_a_full_disk_is_reported_and_survived(small_disk: Path, tmp_path: Path) -> None:
    with Broker({"log.dirs": str(small_disk / "logs")}, directory=tmp_path / "broker") as broker:
        create_topic(broker.bootstrap, "orders")
        create_topic(broker.bootstrap, "others")
        assert send(broker.bootstrap, "orders", b"first") is None
        filling = fill_up(small_disk)
        error = send(broker.bootstrap, "orders", b"x" * 100_000)
        assert error is not None
        assert error.code() == KafkaError.KAFKA_STORAGE_ERROR
        assert [value for _, value in read_all(broker.bootstrap, "orders")] == [b"first"]
        said = [line for line in broker.output.splitlines() if "the disk is full" in line]
        assert 1 <= len(said) <= 5  # not one for each who runs into it
        filling.unlink()
        assert send(broker.bootstrap, "orders", b"second") is None
        assert [value for _, value in read_all(broker.bootstrap, "orders")] == [b"first", b"second"]
        broker.restart()
        assert [value for _, value in read_all(broker.bootstrap, "orders")] == [b"first", b"second"]
        assert "Traceback" not in broker.output


def test_a_broker_whose_tree_shares_the_full_disk_can_be_cleared_stopped_and_started(
    small_disk: Path, tmp_path: Path
) -> None:
    logs = small_disk / "data" / "logs"
    settings = {"ottla.data.dir": str(small_disk / "data"), "log.dirs": str(logs)}
    with Broker(settings, directory=tmp_path / "broker") as broker:
        for topic in ("orders", "doomed"):
            create_topic(broker.bootstrap, topic)
            assert send(broker.bootstrap, topic, b"first") is None
        wait_for_reserve(small_disk / "data")
        filling = fill_up(small_disk)
        error = send(broker.bootstrap, "orders", b"x" * 100_000)
        assert error is not None
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        entry = ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, "orders", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(60)
        admin.delete_topics(["doomed"])["doomed"].result(60)
        assert [value for _, value in read_all(broker.bootstrap, "orders")] == [b"first"]
        fill_up(small_disk)
        broker.stop()
        assert (logs / ".kafka_cleanshutdown").exists()
        fill_up(small_disk)
        broker.start()
        assert [value for _, value in read_all(broker.bootstrap, "orders")] == [b"first"]
        assert not (logs / "doomed-0").exists()
        filling.unlink()
        assert send(broker.bootstrap, "orders", b"second") is None
        assert [value for _, value in read_all(broker.bootstrap, "orders")] == [b"first", b"second"]
        assert "Traceback" not in broker.output
        assert "is offline" not in broker.output


def wait_for_reserve(data: Path) -> None:
    """The tree makes it when it has nothing else to do."""
    wait_until(lambda: any(path.stat().st_size > 2**20 for path in data.glob("*-wal")), "no reserve was made")


def test_a_tree_goes_on_in_its_reserve_however_often_it_is_changed(small_disk: Path) -> None:
    """Others take whatever is freed in between."""

    async def work() -> None:
        place = small_disk / "tree.db"
        file = TreeFile.open(place)
        assert file.fill_reserve()
        file.close()
        fill_up(small_disk)
        for _ in range(2):
            tree = await LocalTree.open(place, SystemClock())
            fill_up(small_disk)
            try:
                for number in range(600):  # more than the write-ahead log holds at once
                    await tree.create(f"/node{number % 100}", bytes(300))
                    await tree.delete(f"/node{number % 100}")
                assert await tree.children("/") == []
            finally:
                await tree.close()
            fill_up(small_disk)

    asyncio.run(work())
