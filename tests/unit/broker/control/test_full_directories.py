"""A full disk: the controller is told when it is found, and when there is room again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.base.ids import TopicPartition
from ottla.broker.control.full_directories import FullDirectories
from ottla.log.config import LogConfig
from ottla.log.directories import DirectoryOptions, LogDirectories
from ottla.log.local_disk import LocalDisk
from ottla.testing.manual_clock import ManualClock
from support.waiting import until

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogDirectories:
    monkeypatch.setattr("ottla.broker.control.full_directories._LEAST_S", 0.001)
    monkeypatch.setattr("ottla.broker.control.full_directories._LOOK_AGAIN_S", 0.001)
    paths = [tmp_path / "one", tmp_path / "other"]
    directories = LogDirectories(LocalDisk(), ManualClock(), paths, DirectoryOptions(1))
    directories.open(lambda _: LogConfig())
    directories.create(ORDERS, LogConfig())
    return directories


def test_full_and_not_full(directories: LogDirectories) -> None:
    async def work() -> None:
        told: list[bool] = []
        room = {directory.path: False for directory in directories.directories}
        full = FullDirectories(directories, lambda: tell(), lambda path: room[path])

        async def tell() -> None:
            told.append(full.holds(ORDERS))

        directory = directories.directory_of(ORDERS)
        assert directory is not None
        assert not full.holds(ORDERS)
        for _ in range(2):
            full.found(directory)
        assert full.holds(ORDERS)
        assert not full.holds(TopicPartition("orders", 1))
        await until(lambda: told)
        room[directory.path] = True
        await until(lambda: len(told) == 2)
        assert told == [True, False]
        full.found(directory)
        await until(lambda: len(told) == 4)
        await full.close()

    asyncio.run(work())
    directories.close()


@pytest.mark.parametrize("fails", [True, False])
def test_a_directory_that_fails_is_not_watched_any_more(directories: LogDirectories, *, fails: bool) -> None:
    async def work() -> None:
        told: list[None] = []

        async def tell() -> None:
            told.append(None)

        full = FullDirectories(directories, tell, lambda _: False)
        directory = directories.directory_of(ORDERS)
        assert directory is not None
        full.found(directory)
        await until(lambda: told)
        if fails:
            directories.take_offline(directory, "a test")
            await until(lambda: not full.holds(ORDERS))
        await full.close()
        assert len(told) == 1

    asyncio.run(work())
    directories.close()
