"""A full disk, on a file system of its own: appends are refused, reads go on, and with space everything does."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from faults.load import create_topic, read_all
from ottla.testing.broker import Broker


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


def test_a_full_disk_is_told_and_survived(small_disk: Path, tmp_path: Path) -> None:
    with Broker({"log.dirs": str(small_disk / "logs")}, directory=tmp_path / "broker") as broker:
        create_topic(broker.bootstrap, "orders")
        create_topic(broker.bootstrap, "others")
        assert send(broker.bootstrap, "orders", b"first") is None
        filling = small_disk / "filling"
        with filling.open("wb") as file:
            try:
                while True:
                    file.write(bytes(65536))
                    file.flush()
            except OSError:
                pass
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
