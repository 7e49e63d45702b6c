"""Data directories that were changed between two runs of a broker: found again, or refused with what to do."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.clock import SystemClock
from ottla.broker.broker import Broker
from ottla.broker.configs.broker_config import BrokerConfig
from ottla.broker.startup import data_directory
from ottla.broker.startup.data_directory import DataDirectoryError, check_access, denial, fault_of_directory
from ottla.log.local_disk import LocalDisk
from ottla.zookeeper import paths
from support.brokers import Client, broker_in_loop


async def serve(place: Path, **overrides: str) -> tuple[int, list[str]]:
    """Starts and stops a broker without a set id, with a topic; its id, and the partitions that it leads."""
    async with broker_in_loop(place, broker_id="-1", **overrides) as broker:
        if broker.metadata.topic("orders") is None:
            await Client(broker).create_topic("orders", partitions=2)
        led = sorted(str(name) for name, one in broker.replicas.partitions.items() if one.is_leader)
        return broker.broker_id, led


ORDERS = ["orders-0", "orders-1"]


def test_log_directories_can_be_listed_in_another_order(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def start(*names: str) -> tuple[int, list[str]]:
        dirs = ",".join(str(tmp_path / name) for name in names)
        config = BrokerConfig({"log.dirs": dirs, "listeners": "PLAINTEXT://127.0.0.1:0"})
        broker = await Broker.start(config, LocalDisk(), SystemClock())
        if broker.metadata.topic("orders") is None:
            await Client(broker).create_topic("orders", partitions=2)
        led = sorted(str(name) for name, one in broker.replicas.partitions.items() if one.is_leader)
        await broker.stop()
        return broker.broker_id, led

    async def work() -> None:
        assert await start("a", "b") == (1001, ORDERS)
        assert await start("b", "a") == (1001, ORDERS)
        assert await start("new", "b", "a") == (1001, ORDERS)
        assert not (tmp_path / "b" / "zookeeper.db").exists()
        shutil.copy(tmp_path / "a" / "zookeeper.db", tmp_path / "b")
        with pytest.raises(DataDirectoryError, match=r"a/zookeeper\.db and .*b/zookeeper\.db exist; set ottla\.tree"):
            await start("new", "a", "b")

    asyncio.run(work())
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_a_missing_tree_is_reported_and_no_new_one_is_made(tmp_path: Path) -> None:
    async def work() -> None:
        await serve(tmp_path)
        tree = tmp_path / "data" / "zookeeper.db"
        (tmp_path / "kept").mkdir()
        for file in tree.parent.glob("zookeeper.db*"):
            file.rename(tmp_path / "kept" / file.name)
        reason = r"zookeeper\.db: this file holds the topics .* is missing, but there are 2 partitions in .*data/logs"
        for _ in range(2):
            with pytest.raises(DataDirectoryError, match=reason) as refused:
                await serve(tmp_path)
            assert "Restore the file from a backup, or set ottla.tree.file" in str(refused.value)
        assert not tree.exists()
        (tmp_path / "data" / "logs" / "meta.properties").rename(tmp_path / "kept" / "meta.properties")
        with pytest.raises(DataDirectoryError, match=reason):
            await serve(tmp_path)
        moved = str(tmp_path / "kept" / "zookeeper.db")
        assert await serve(tmp_path, ottla_tree_file=moved) == (1001, ORDERS)

    asyncio.run(work())


def test_a_tree_with_a_broken_node_is_reported(tmp_path: Path) -> None:
    async def work() -> None:
        async with broker_in_loop(tmp_path, broker_id="-1") as broker:
            await Client(broker).create_topic("orders")
            await broker.coordination.set(paths.topic("orders"), b"{")
        with pytest.raises(DataDirectoryError, match=r"zookeeper\.db: it cannot be used: .*orders.*; restore it from"):
            await serve(tmp_path)

    asyncio.run(work())


def test_a_broker_without_meta_properties_goes_on_as_the_one_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        await serve(tmp_path)
        (tmp_path / "data" / "logs" / "meta.properties").unlink()
        assert await serve(tmp_path) == (1001, ORDERS)
        assert "this one goes on as broker 1001" in caplog.text
        assert "meta.properties: it was missing beside partitions, and is written again for broker 1001" in caplog.text
        caplog.clear()
        shutil.rmtree(tmp_path / "data" / "logs")
        assert await serve(tmp_path) == (1001, ORDERS)
        assert "this one goes on as broker 1001" in caplog.text
        assert "2 partitions had no folder" in caplog.text
        caplog.clear()
        assert await serve(tmp_path) == (1001, ORDERS)
        assert not caplog.records

    asyncio.run(work())


def test_topics_of_another_broker_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        await serve(tmp_path)
        (tmp_path / "data" / "logs" / "meta.properties").unlink()
        async with broker_in_loop(tmp_path, broker_id="5"):
            pass
        assert "1 topic cannot be served, because this is broker 5 and their partitions belong to broker 1001" in (
            caplog.text
        )

    asyncio.run(work())


def test_a_failed_start_uses_up_no_broker_id(tmp_path: Path) -> None:
    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            for _ in range(2):
                with pytest.raises(OSError, match="cannot listen"):
                    await serve(tmp_path, listeners=f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}")
        assert await serve(tmp_path) == (1001, ORDERS)
        async with broker_in_loop(tmp_path, broker_id="-1") as broker:
            node = await broker.coordination.get(paths.BROKER_SEQUENCE)
            assert node is not None
            assert node.version == 1  # no other broker gets 1001

    asyncio.run(work())


# --- who may use it -------------------------------------------------------------------------------------------------


@pytest.fixture
def as_nobody(tmp_path: Path) -> Iterator[None]:
    """As another user where this process may become one; tests of root see no denied access."""
    me = os.geteuid()
    if me == 0:
        for path in (tmp_path, *tmp_path.parents[:-2]):
            path.chmod(0o755)
        os.seteuid(65534)
    yield
    os.seteuid(me)


@pytest.mark.usefixtures("as_nobody")
def test_a_directory_of_another_user_is_reported_with_both_users(tmp_path: Path) -> None:
    theirs = tmp_path if os.geteuid() == 65534 else Path("/proc")
    fault = fault_of_directory(theirs / "data")
    assert fault is not None
    assert str(fault).startswith(f"{theirs}: it belongs to user root, and the broker runs as ")
    assert "chown -R" in str(fault)
    with pytest.raises(DataDirectoryError, match="it belongs to user root"):
        check_access(theirs / "zookeeper.db", [theirs / "logs"])


def test_what_to_do_about_a_directory_of_another_user(tmp_path: Path) -> None:
    file = tmp_path / ".lock"
    file.touch()
    assert denial(file, "root", "ann") == (
        "it belongs to user root, and the broker runs as ann, who cannot write here. Run the broker as root, or give "
        f"the data to ann: chown -R ann {tmp_path}"
    )
    assert "not read-only" in denial(tmp_path, "ann", "ann")


def test_files_that_cannot_be_written_are_found_and_those_of_others_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("lost+found", "notes.txt", "zookeeper.db"):
        (tmp_path / name).touch()
    monkeypatch.setattr(data_directory, "_may", lambda path, _: path == tmp_path)
    assert fault_of_directory(tmp_path) is None
    for name in ("orders-0", "meta.properties"):
        (tmp_path / name).touch()
        fault = fault_of_directory(tmp_path)
        assert fault is not None
        assert fault.path == tmp_path / name
        (tmp_path / name).unlink()
    fault = fault_of_directory(tmp_path, "zookeeper.db*")
    assert fault is not None
    assert fault.path == tmp_path / "zookeeper.db"


def test_a_file_in_the_place_of_a_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(DataDirectoryError, match="data: this is a file, and a directory is needed"):
        check_access(tmp_path / "data" / "zookeeper.db", [tmp_path / "logs"])


def test_one_directory_of_several_may_be_out_of_order(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check_access(tmp_path / "zookeeper.db", [tmp_path / "file", tmp_path / "logs"])
    with pytest.raises(DataDirectoryError, match="file: this is a file"):
        check_access(tmp_path / "zookeeper.db", [tmp_path / "file"])
