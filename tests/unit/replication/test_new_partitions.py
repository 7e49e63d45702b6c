"""Partitions that are announced first and made later, or when somebody asks for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from ottla.base.clock import SystemClock
from ottla.base.ids import TopicPartition, random_uuid
from ottla.log.config import LogConfig
from ottla.log.directories import DirectoryOptions, LogDirectories
from ottla.log.local_disk import LocalDisk
from ottla.log.new_logs import NewLogs
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas

CONFIG = LogConfig()
TOPIC_ID = random_uuid()
NAMES = [TopicPartition("orders", index) for index in range(40)]


def with_replicas(tmp_path: Path, work: Callable[[Replicas, list[TopicPartition]], Coroutine[Any, Any, None]]) -> None:
    """`work` is also given a list that grows by each partition that is hosted."""

    async def run() -> None:
        directories = LogDirectories(LocalDisk(), SystemClock(), [tmp_path / "logs"], DirectoryOptions(broker_id=1))
        directories.open(lambda _: CONFIG)
        replicas = Replicas(1, directories, asyncio.get_running_loop())
        hosted: list[TopicPartition] = []
        replicas.on_hosted = lambda partition: hosted.append(partition.name)
        try:
            await work(replicas, hosted)
        finally:
            replicas.close()
            directories.close()

    asyncio.run(run())


class HeldThread:
    """Lets the thread that makes logs wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_at_work = threading.Event()
        self.may_go_on = threading.Event()
        make = NewLogs.make

        def held(new: NewLogs) -> None:
            self.is_at_work.set()
            assert self.may_go_on.wait(30)
            make(new)

        monkeypatch.setattr(NewLogs, "make", held)

    async def begun(self) -> None:
        while not self.is_at_work.is_set():
            await asyncio.sleep(0.001)


def folders(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "logs").iterdir() if path.is_dir()}


def test_one_that_cannot_be_hosted_keeps_no_other_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = NewLogs.make

    def broken(new: NewLogs) -> None:
        make(new)
        raise ValueError("a bug")

    async def work(replicas: Replicas, hosted: list[TopicPartition]) -> None:
        def refuse_one(partition: Partition) -> None:
            if partition.name == NAMES[3]:
                raise ValueError("a bug")
            hosted.append(partition.name)

        replicas.on_hosted = refuse_one
        replicas.expect(NAMES, TOPIC_ID, CONFIG)
        await replicas.expected.settled()
        assert hosted == [name for name in NAMES if name != NAMES[3]]
        assert not replicas.expected

    monkeypatch.setattr(NewLogs, "make", broken)
    with_replicas(tmp_path, work)


def test_expected_partitions_are_made_soon(tmp_path: Path) -> None:
    async def work(replicas: Replicas, hosted: list[TopicPartition]) -> None:
        replicas.expect(NAMES, TOPIC_ID, CONFIG)
        assert (len(replicas.partitions), folders(tmp_path)) == (0, set())
        assert NAMES[0] in replicas.expected
        await replicas.expected.settled()
        assert hosted == NAMES
        assert folders(tmp_path) == {str(name) for name in NAMES}
        assert {partition.topic_id for partition in replicas.partitions.values()} == {TOPIC_ID}
        assert not replicas.expected

    with_replicas(tmp_path, work)


def test_partitions_that_are_announced_while_the_last_ones_end_are_made_too(tmp_path: Path) -> None:
    async def work(replicas: Replicas, hosted: list[TopicPartition]) -> None:
        def announce_more(partition: Partition) -> None:
            hosted.append(partition.name)
            if partition.name == NAMES[0]:  # after the task's end, before anybody is told of it
                asyncio.get_running_loop().call_soon(replicas.expect, [NAMES[1]], TOPIC_ID, CONFIG)

        replicas.on_hosted = announce_more
        replicas.expect([NAMES[0]], TOPIC_ID, CONFIG)
        for _ in range(3):
            await replicas.expected.settled()
            await asyncio.sleep(0)
        assert hosted == NAMES[:2]
        assert len(replicas.expected) == 0

    with_replicas(tmp_path, work)


def test_a_partition_that_is_asked_for_is_made_at_once(tmp_path: Path) -> None:
    async def work(replicas: Replicas, hosted: list[TopicPartition]) -> None:
        replicas.expect(NAMES, TOPIC_ID, CONFIG)
        partition = replicas.get("orders", 7)
        assert partition is not None
        assert partition.log is not None
        assert (hosted, folders(tmp_path)) == ([NAMES[7]], {"orders-7"})
        assert replicas.get("orders", 40) is None
        await replicas.expected.settled()
        assert replicas.get("orders", 7) is partition
        assert sorted(hosted) == NAMES

    with_replicas(tmp_path, work)


def test_many_that_are_asked_for_do_not_hold_up_the_loop(tmp_path: Path) -> None:
    async def work(replicas: Replicas, _: list[TopicPartition]) -> None:
        replicas.expect([TopicPartition("wide", index) for index in range(250)], TOPIC_ID, CONFIG)
        found = [replicas.get("wide", index) is not None for index in range(250)]
        assert found == [True] * 100 + [False] * 150
        await asyncio.sleep(0)
        assert replicas.get("wide", 249) is not None  # in the next turn
        await replicas.expected.settled()
        assert len(replicas.partitions) == 250

    with_replicas(tmp_path, work)


def test_one_that_is_in_the_thread_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldThread(monkeypatch)

    async def work(replicas: Replicas, hosted: list[TopicPartition]) -> None:
        replicas.expect(NAMES, TOPIC_ID, CONFIG)
        await held.begun()
        threading.Timer(0.01, held.may_go_on.set).start()
        partition = replicas.get("orders", 0)
        assert partition is not None
        assert partition.log is not None
        assert hosted == NAMES[: len(hosted)]
        await replicas.expected.settled()
        assert hosted == NAMES

    with_replicas(tmp_path, work)


@pytest.mark.parametrize("in_thread", [False, True])
def test_partitions_can_be_deleted_before_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_thread: bool
) -> None:
    held = HeldThread(monkeypatch)

    async def work(replicas: Replicas, _: list[TopicPartition]) -> None:
        replicas.expect(NAMES, TOPIC_ID, CONFIG)
        if in_thread:
            await held.begun()
        replicas.let_go(NAMES)
        threading.Timer(0.01, held.may_go_on.set).start()
        await replicas.delete_many(NAMES)
        await replicas.expected.settled()
        assert (len(replicas.partitions), len(replicas.expected)) == (0, 0)
        assert all(name.endswith("-delete") for name in folders(tmp_path))
        replicas.expect(NAMES, random_uuid(), CONFIG)
        assert replicas.get("orders", 3) is not None

    with_replicas(tmp_path, work)


def test_a_stop_leaves_the_rest_to_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldThread(monkeypatch)

    async def work(replicas: Replicas, _: list[TopicPartition]) -> None:
        replicas.expect(NAMES, TOPIC_ID, CONFIG)
        await held.begun()
        threading.Timer(0.01, held.may_go_on.set).start()

    with_replicas(tmp_path, work)
    assert 0 < len(folders(tmp_path)) < len(NAMES)


def test_without_a_directory_they_are_hosted_offline(tmp_path: Path) -> None:
    async def work(replicas: Replicas, hosted: list[TopicPartition]) -> None:
        replicas.directories.take_offline(replicas.directories.directories[0], "the disk is gone")
        replicas.expect(NAMES, TOPIC_ID, CONFIG)
        await replicas.expected.settled()
        assert hosted == NAMES
        assert {partition.log for partition in replicas.partitions.values()} == {None}

    with_replicas(tmp_path, work)
