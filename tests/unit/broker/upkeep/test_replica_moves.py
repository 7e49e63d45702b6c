from __future__ import annotations

import asyncio
import errno
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from ottla.base.file_slice import FileSlice
from ottla.base.ids import TopicPartition, Uuid
from ottla.broker.upkeep.replica_moves import ReplicaMoves, moving_to
from ottla.log.config import LogConfig
from ottla.log.directories import DirectoryOptions, LogDirectories, LogDirectory
from ottla.log.errors import LogDirectoryError
from ottla.log.local_disk import LocalDisk
from ottla.log.partition_log import PartitionLog
from ottla.log.replica_move import ReplicaMove
from ottla.log.retention import apply_retention
from ottla.replication.delayed import DelayedOperation
from ottla.replication.environment import OnSynced
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.testing.manual_clock import ManualClock
from support.logs.batches import batch
from support.logs.checker import check, records_in
from support.replication.roles import lead
from support.waiting import until

NAME = TopicPartition("topic", 0)
TOPIC_ID = Uuid(bytes(range(16)))
LARGE = bytes(100_000)


class Place:
    """Two directories, one partition in the first, and what moves it."""

    def __init__(self, root: Path, config: LogConfig) -> None:
        paths = [root / "first", root / "second", root / "third"]
        self.clock = ManualClock()
        self.directories = LogDirectories(LocalDisk(), self.clock, paths, DirectoryOptions(1))
        self.directories.open(lambda _: config)
        self.replicas = Replicas(1, self.directories, asyncio.get_running_loop())
        self.partition = self.replicas.host(NAME, TOPIC_ID, config, is_new=True)
        lead(self.partition, leader_epoch=0, isr=(1,), replicas=(1,))
        self.moves = ReplicaMoves(self.directories, self.replicas)

    @property
    def first(self) -> LogDirectory:
        return self.directories.directories[0]

    @property
    def second(self) -> LogDirectory:
        return self.directories.directories[1]

    def append(self, count: int = 1, value: bytes = b"value") -> None:
        for _ in range(count):
            self.partition.append(batch([value]), all_replicas=True)

    async def until_moved(self) -> None:
        await until(lambda: not self.directories.moves)

    def folders(self, directory: LogDirectory) -> list[str]:
        return sorted(path.name for path in directory.path.iterdir() if path.is_dir())


@asynccontextmanager
async def place(root: Path, config: LogConfig | None = None) -> AsyncIterator[Place]:
    made = Place(root, config or LogConfig(segment_bytes=2_000_000))
    try:
        yield made
    finally:
        await made.moves.close()
        made.replicas.close()
        made.directories.close()


def offsets(partition: Partition) -> list[int]:
    assert partition.log is not None
    check(partition.log)
    return [record.offset for record in records_in(partition.log)]


def test_a_partition_is_written_to_while_it_moves(tmp_path: Path) -> None:
    async def run() -> None:
        async with place(tmp_path) as made:
            made.append(60, LARGE)
            made.moves.start(made.partition, made.second)
            while made.directories.moves:
                made.append(1, LARGE[:1000])
                await asyncio.sleep(0)
            made.append(5)
            log = made.partition.log
            assert log is made.directories.get(NAME)
            assert made.directories.directory_of(NAME) is made.second
            assert log is not None
            assert log.directory == made.second.path / "topic-0"
            assert offsets(made.partition) == list(range(log.next_offset))
            assert made.partition.high_watermark == log.next_offset > 65
            assert made.folders(made.second) == ["topic-0"]

    asyncio.run(run())


def test_users_of_the_old_replica_are_notified_first(tmp_path: Path) -> None:
    async def run() -> None:
        async with place(tmp_path) as made:
            told: list[tuple[PartitionLog, bool]] = []
            old = made.partition.log
            assert old is not None
            made.replicas.on_delete = lambda log: told.append((log, made.directories.get(NAME) is old))
            made.moves.start(made.partition, made.second)
            await made.until_moved()
            assert told == [(old, True)]

    asyncio.run(run())


def test_records_that_wait_for_the_disk_are_acknowledged(tmp_path: Path) -> None:
    async def run() -> None:
        async with place(tmp_path, LogConfig(flush_messages=1)) as made:
            made.append(3)
            made.moves.start(made.partition, made.second)
            made.append(3)
            await made.until_moved()
            made.append(3)
            await until(lambda: made.partition.high_watermark == 9)
            assert made.directories.online() == made.directories.directories

    asyncio.run(run())


class Watch(DelayedOperation[Partition]):
    """Notes the high watermark whenever it is woken."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def is_ready(self, key: Partition) -> bool:
        self.seen.append(key.high_watermark)
        return False

    def complete(self) -> None:
        pass


def test_a_move_wakes_callers_that_wait_for_records_that_it_flushed(tmp_path: Path) -> None:
    """The sync of the old log may end after the move, when the high watermark has risen without it."""

    async def run() -> None:
        async with place(tmp_path, LogConfig(flush_messages=1)) as made:
            made.replicas.environment.wait_for_disk = lambda *_: None
            made.append(3)
            watch = Watch()
            made.replicas.produces.wait(watch, [made.partition], 60.0)
            made.moves.start(made.partition, made.second)
            await made.until_moved()
            await asyncio.sleep(0)
            assert watch.seen == [3]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("code", "offline"), [(errno.EIO, ["first"]), (errno.ENOENT, []), (errno.EBADF, []), (errno.ENOSPC, [])]
)
def test_an_error_of_the_old_log_is_blamed_on_the_directory_it_lay_in(
    tmp_path: Path, code: int, offline: list[str]
) -> None:
    async def run() -> None:
        async with place(tmp_path, LogConfig(flush_messages=1)) as made:
            held: list[tuple[PartitionLog, OnSynced]] = []
            made.replicas.environment.wait_for_disk = lambda log, _, callback: held.append((log, callback))
            made.append()
            made.moves.start(made.partition, made.second)
            await made.until_moved()
            ((old, callback),) = held
            callback(old, OSError(code, "it failed"))
            assert [each.path.name for each in made.directories.directories if each.failure] == offline
            assert offsets(made.partition) == [0]

    asyncio.run(run())


def test_a_source_that_cannot_be_read_is_blamed_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, "it failed")

    async def run() -> None:
        async with place(tmp_path) as made:
            made.append(2, LARGE)
            monkeypatch.setattr(FileSlice, "read", fail)
            made.moves.start(made.partition, made.second)
            await made.until_moved()
            assert [each.path.name for each in made.directories.directories if each.failure] == ["first"]

    asyncio.run(run())


@pytest.mark.skipif(sys.platform != "linux", reason="open files are looked up in /proc")
def test_a_move_closes_segments_that_wait_for_their_removal(tmp_path: Path) -> None:
    async def run() -> None:
        config = LogConfig(segment_bytes=1000, retention_bytes=500)
        async with place(tmp_path, config) as made:
            made.append(60)
            assert sum(apply_retention(log) for log in made.directories.logs()) > 3
            made.moves.start(made.partition, made.second)
            await made.until_moved()
            made.clock.advance_ms(config.file_delete_delay_ms)
            made.directories.remove_due()
            assert made.folders(made.first) == []
            assert [name for name in open_files() if str(made.first.path) in name] == [str(made.first.path / ".lock")]

    asyncio.run(run())


def open_files() -> list[str]:
    names = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that the listing itself needed
            names.append(str(descriptor.readlink()))
    return names


def test_where_it_is_nothing_is_done(tmp_path: Path) -> None:
    async def run() -> None:
        async with place(tmp_path) as made:
            log = made.partition.log
            made.moves.start(made.partition, made.first)
            assert made.directories.moves == {}
            assert made.partition.log is log

    asyncio.run(run())


class Gate:
    """Holds every copy until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_open = threading.Event()
        self.reached = threading.Event()
        copy = ReplicaMove.copy

        def held(move: ReplicaMove, piece: object) -> None:
            self.reached.set()
            assert self.is_open.wait(30)
            copy(move, piece)  # type: ignore[arg-type]

        monkeypatch.setattr(ReplicaMove, "copy", held)


def test_a_second_wish_for_the_same_place_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        gate = Gate(monkeypatch)
        async with place(tmp_path) as made:
            made.append(2, LARGE)
            made.moves.start(made.partition, made.second)
            (move,) = made.directories.moves.values()
            assert moving_to(made.directories, made.second) == {NAME: move}
            assert moving_to(made.directories, made.first) == {}
            await until(gate.reached.is_set)
            made.moves.start(made.partition, made.second)
            assert list(made.directories.moves.values()) == [move]
            gate.is_open.set()
            await made.until_moved()
            assert made.folders(made.second) == ["topic-0"]

    asyncio.run(run())


@pytest.mark.parametrize("wish", [0, 2])
def test_another_wish_replaces_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wish: int) -> None:
    async def run() -> None:
        gate = Gate(monkeypatch)
        async with place(tmp_path) as made:
            made.append(2, LARGE)
            made.moves.start(made.partition, made.second)
            await until(gate.reached.is_set)
            target = made.directories.directories[wish]
            made.moves.start(made.partition, target)
            gate.is_open.set()
            await made.until_moved()
            await until(lambda: not made.folders(made.second))
            assert made.directories.directory_of(NAME) is target
            assert offsets(made.partition) == [0, 1]

    asyncio.run(run())


def test_a_partition_that_is_deleted_is_not_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        gate = Gate(monkeypatch)
        async with place(tmp_path) as made:
            made.append(2, LARGE)
            made.moves.start(made.partition, made.second)
            await until(gate.reached.is_set)
            made.replicas.delete(NAME)
            gate.is_open.set()
            await until(lambda: not made.folders(made.second))
            assert made.directories.get(NAME) is None

    asyncio.run(run())


def test_a_stop_gives_up_what_is_not_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        gate = Gate(monkeypatch)
        async with place(tmp_path) as made:
            made.append(2, LARGE)
            made.moves.start(made.partition, made.second)
            await until(gate.reached.is_set)
            closing = asyncio.create_task(made.moves.close())
            await asyncio.sleep(0)
            gate.is_open.set()
            await closing
            assert made.folders(made.second) == []
            assert made.directories.directory_of(NAME) is made.first

    asyncio.run(run())


@pytest.mark.parametrize(("code", "is_offline"), [(errno.EIO, True), (errno.ENOSPC, False)])
def test_a_target_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, is_offline: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, "it failed")

    async def run() -> None:
        async with place(tmp_path) as made:
            made.append(2, LARGE)
            monkeypatch.setattr(ReplicaMove, "copy", fail)
            made.moves.start(made.partition, made.second)
            await made.until_moved()
            assert (made.second.failure is not None) is is_offline
            assert "topic-0 could not be moved to" in caplog.text
            made.append()
            assert offsets(made.partition) == [0, 1, 2]
            assert made.directories.directory_of(NAME) is made.first
            assert is_offline or made.folders(made.second) == []

    asyncio.run(run())


def test_a_target_that_fails_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left")

    async def run() -> None:
        async with place(tmp_path) as made:
            monkeypatch.setattr(ReplicaMove, "__init__", fail)
            with pytest.raises(LogDirectoryError, match="No space left"):
                made.moves.start(made.partition, made.second)
            assert made.directories.moves == {}

    asyncio.run(run())
