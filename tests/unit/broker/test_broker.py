"""A whole broker: starts, stops, comes back with what it had, and refuses to start on what it cannot have."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ottla.base.clock import SystemClock
from ottla.base.config import ConfigError
from ottla.base.ids import format_uuid
from ottla.broker.broker import Broker
from ottla.broker.configs.broker_config import BrokerConfig
from ottla.broker.lone_member import LoneMember
from ottla.broker.startup.registration import Registrar
from ottla.controller.wanted_topics import NewPartitionCount, WantedTopic
from ottla.log.checkpoints import CleanShutdownFile
from ottla.log.local_disk import LocalDisk
from ottla.log.partition_log import PartitionLog
from ottla.wire.framing import request_frame
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from ottla.zookeeper import paths
from ottla.zookeeper.local_tree import LocalTree
from ottla.zookeeper.tree_file import TreeFileError
from support.brokers import Client, batch_of, broker_in_loop, with_client
from support.trees.contract import Events
from support.trees.servers import connected


def test_a_restart_brings_everything_back(tmp_path: Path) -> None:
    async def work() -> None:
        async with broker_in_loop(tmp_path) as broker:
            client = Client(broker)
            await client.create_topic("orders", partitions=3, retention_ms="1234567")
            partition = broker.replicas.get("orders", 1)
            assert partition is not None
            partition.append(bytearray(batch_of(b"a", b"b")), all_replicas=True)
            cluster_id, before = broker.metadata.cluster_id, broker.metadata.topic("orders")
        async with broker_in_loop(tmp_path) as broker:
            assert broker.metadata.cluster_id == cluster_id
            after = broker.metadata.topic("orders")
            assert before is not None
            assert after is not None
            assert after.topic_id == before.topic_id
            partition = broker.replicas.get("orders", 1)
            assert partition is not None
            assert partition.high_watermark == 2
            assert partition.log is not None
            assert partition.log.config.retention_ms == 1234567
            assert format_uuid(after.topic_id) in (partition.log.directory / "partition.metadata").read_text()

    asyncio.run(work())


def test_a_broker_is_registered_while_it_runs(tmp_path: Path) -> None:
    async def work() -> None:
        async with broker_in_loop(tmp_path) as broker:
            node = await broker.coordination.get(paths.broker(1))
            assert node is not None
            assert str(broker.ready.listeners[0].port).encode() in node.data
            assert node.owner == broker.coordination.session_id

    asyncio.run(work())


def test_a_registration_that_was_not_ephemeral_is_replaced(tmp_path: Path) -> None:
    """Left by an earlier version of Ottla, which was killed."""

    async def work() -> None:
        tree = await LocalTree.open(tmp_path / "data" / "zookeeper.db", SystemClock())
        await tree.create(paths.broker(1), b"old", parents=True)
        await tree.close()
        async with broker_in_loop(tmp_path) as broker:
            node = await broker.coordination.get(paths.broker(1))
            assert node is not None
            assert node.owner == broker.coordination.session_id

    asyncio.run(work())


def test_the_id_of_a_running_broker_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            broker_in_loop(tmp_path, ottla_zookeeper_port="0") as broker,
            connected(f"127.0.0.1:{broker.zookeeper_port}") as other,
        ):
            await other.create(paths.broker(2), b"", ephemeral=True)
            registrar = Registrar(broker.coordination, 2, expiry_s=-4.9)
            with pytest.raises(ConfigError, match="another running broker is registered with the id 2"):
                await registrar.register([], None)

    asyncio.run(work())


def test_other_programs_use_the_tree_of_a_broker(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            broker_in_loop(tmp_path, ottla_zookeeper_port="0") as broker,
            connected(f"127.0.0.1:{broker.zookeeper_port}") as other,
        ):
            events = Events()
            assert await other.children(paths.BROKER_IDS) == ["1"]
            await other.children(paths.TOPICS, events)
            await broker.controller.create_topic(WantedTopic("orders", 1, 1))
            await events.count(1)
            assert await other.children(paths.TOPICS) == ["orders"]

    asyncio.run(work())


def test_a_tree_that_cannot_be_served_undoes_the_start(tmp_path: Path) -> None:
    async def work() -> None:
        async with broker_in_loop(tmp_path / "first", ottla_zookeeper_port="0") as first:
            with pytest.raises(OSError, match="address already in use"):
                async with broker_in_loop(tmp_path / "second", ottla_zookeeper_port=str(first.zookeeper_port)):
                    pass
        async with broker_in_loop(tmp_path / "second"):
            pass

    asyncio.run(work())


def test_a_broker_without_an_id_is_given_one_and_keeps_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with broker_in_loop(tmp_path, broker_id="-1") as broker:
            assert broker.broker_id == 1001
        async with broker_in_loop(tmp_path, broker_id="-1") as broker:
            assert broker.broker_id == 1001

    asyncio.run(work())


def test_clients_get_the_address_of_the_listener_they_came_through(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        told = {}
        for listener in ("INSIDE", "OUTSIDE"):
            each = Client(client.broker)
            each.connection.listener = listener
            response = await each.ask(MetadataRequest(topics=[]), MetadataResponse, 9)
            told[listener] = [(node.host, node.port) for node in response.brokers]
        ports = {each.name: each.port for each in client.broker.ready.listeners}
        assert told == {"INSIDE": [("127.0.0.1", ports["INSIDE"])], "OUTSIDE": [("broker.example", 1234)]}

    with_client(
        tmp_path,
        work,
        listeners="INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        advertised_listeners="INSIDE://127.0.0.1:0,OUTSIDE://broker.example:1234",
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        inter_broker_listener_name="INSIDE",
    )


def test_two_brokers_cannot_share_their_data(tmp_path: Path) -> None:
    async def work() -> None:
        async with broker_in_loop(tmp_path):
            with pytest.raises(TreeFileError, match="another process"):
                async with broker_in_loop(tmp_path):
                    pass
        async with broker_in_loop(tmp_path):  # the failed start left nothing behind
            pass

    asyncio.run(work())


def test_a_port_that_is_taken_is_reported_and_releases_the_rest(tmp_path: Path) -> None:
    async def work() -> None:
        async with broker_in_loop(tmp_path / "first") as first:
            port = first.ready.listeners[0].port
            config = BrokerConfig(
                {
                    "broker.id": "1",
                    "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                    "ottla.data.dir": str(tmp_path / "second"),
                }
            )
            with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}"):
                await Broker.start(config, LocalDisk(), SystemClock())
        async with broker_in_loop(tmp_path / "second"):
            pass

    asyncio.run(work())


@pytest.mark.parametrize(
    "step", ["lone_member.LoneMember.opened", "topic_host.TopicHost.apply_topic", "broker.Broker._start_metrics"]
)
def test_a_start_that_fails_late_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("a late failure")

    async def work() -> None:
        async with broker_in_loop(tmp_path) as broker:
            await Client(broker).create_topic("orders")
        before = set(asyncio.all_tasks()), set(threading.enumerate())
        with monkeypatch.context() as patch:
            patch.setattr(f"ottla.broker.{step}", fail)
            with pytest.raises(ValueError, match="a late failure"):
                async with broker_in_loop(tmp_path):
                    pass
        assert asyncio.all_tasks() == before[0]
        left = {thread.name for thread in set(threading.enumerate()) - before[1]}
        assert {name for name in left if name.startswith("ottla")} == set()
        async with broker_in_loop(tmp_path) as broker:
            assert broker.replicas.get("orders", 0) is not None

    asyncio.run(work())


def test_logs_of_no_topic_are_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with broker_in_loop(tmp_path) as broker:
            await Client(broker).create_topic("orders")
            await broker.coordination.delete_trees([paths.topic("orders")])
        async with broker_in_loop(tmp_path) as broker:
            assert broker.metadata.topic("orders") is None
            assert "1 logs belong to no topic" in caplog.text
        assert any(path.name == "orders-0" for path in (tmp_path / "data" / "logs").iterdir())

    asyncio.run(work())


def test_the_logs_of_a_topic_go_whose_deletion_was_interrupted(tmp_path: Path) -> None:
    async def work() -> None:
        async with broker_in_loop(tmp_path) as broker:
            await Client(broker).create_topic("orders", partitions=2)
            await Client(broker).create_topic("others")
            await broker.coordination.create(paths.deleted_topic("orders"))  # and here it crashed
        async with broker_in_loop(tmp_path) as broker:
            assert list(broker.metadata.topics) == ["others"]
            assert [str(log.partition) for log in broker.directories.logs()] == ["others-0"]
            assert await broker.coordination.children(paths.DELETE_TOPICS) == []
        folders = {path.name for path in (tmp_path / "data" / "logs").iterdir() if path.is_dir()}
        assert not {"orders-0", "orders-1"} & folders

    asyncio.run(work())


def test_partitions_without_folders_are_made_at_the_next_start_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with broker_in_loop(tmp_path) as broker:
            await broker.controller.create_topic(WantedTopic("orders", 3, 1))
            broker.replicas.expected.close()  # as if it had been killed here
        assert not list((tmp_path / "data" / "logs").glob("orders-*"))
        async with broker_in_loop(tmp_path) as broker:
            assert len(list(broker.directories.logs())) == 3
            assert "3 partitions had no folder" in caplog.text
            assert "orders-0, orders-1, orders-2" in caplog.text
            caplog.clear()
            partition = broker.replicas.get("orders", 2)
            assert partition is not None
            assert partition.is_leader
            partition.append(bytearray(batch_of(b"a")), all_replicas=True)
        async with broker_in_loop(tmp_path):
            assert "had no folder" not in caplog.text

    asyncio.run(work())


def test_a_new_partition_has_the_config_that_its_topic_has_by_then(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.broker.controller.create_topic(WantedTopic("orders", 2, 1))
        await client.broker.configs.alter_topics({"orders": lambda _: {"max.message.bytes": "77"}})
        await client.broker.replicas.expected.settled()
        sizes = {log.config.max_message_bytes for log in client.broker.directories.logs()}
        assert sizes == {77}

    with_client(tmp_path, work)


def test_a_partition_that_is_asked_for_while_its_topic_grows_gets_its_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker gives way to requests while it goes through the partitions that the topic had before."""
    monkeypatch.setattr("ottla.broker.topic_host._PARTITIONS_AT_A_TIME", 2)

    async def work(client: Client) -> None:
        broker = client.broker
        await client.create_topic("orders", partitions=2)
        growing = asyncio.create_task(broker.controller.grow_topics([NewPartitionCount("orders", 3)]))
        while (partition := broker.replicas.get("orders", 2)) is None:
            await asyncio.sleep(0)
        assert not growing.done()
        await growing
        assert partition.is_leader
        assert partition is broker.replicas.get("orders", 2)

    with_client(tmp_path, work)


def test_a_partition_that_is_made_while_its_topic_changes_gets_the_new_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.broker.topic_host._PARTITIONS_AT_A_TIME", 2)

    async def work(client: Client) -> None:
        broker = client.broker
        topic = await broker.controller.create_topic(WantedTopic("orders", 2, 1))
        assert broker.replicas.get("orders", 1) is not None
        assert len(broker.replicas.expected) == 1
        later = replace(topic, partitions=tuple(replace(each, leader_epoch=7) for each in topic.partitions))
        assert isinstance(broker.member, LoneMember)
        changing = asyncio.create_task(broker.member.topic_host.apply_topic(later, new_partitions=frozenset()))
        await asyncio.sleep(0)
        partition = broker.replicas.get("orders", 0)
        assert not changing.done()
        await changing
        assert partition is not None
        assert partition.leader_epoch == 7

    with_client(tmp_path, work)


def test_a_change_of_config_reaches_the_logs_at_once(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        partition = client.broker.replicas.get("orders", 0)
        assert partition is not None
        assert partition.log is not None
        client.broker.configs.note_topic("orders", {"max.message.bytes": "77"})
        assert partition.log.config.max_message_bytes == 77

    with_client(tmp_path, work)


def test_partitions_of_a_failed_directory_have_no_leader_until_the_next_start(tmp_path: Path) -> None:
    async def leader_told(broker: Broker) -> int:
        response = await Client(broker).ask(MetadataRequest(topics=None), MetadataResponse, 9)
        return response.topics[0].partitions[0].leader_id

    async def work() -> None:
        async with broker_in_loop(tmp_path) as broker:
            await Client(broker).create_topic("orders")
            assert await leader_told(broker) == 1
            broker.directories.take_offline(broker.directories.directories[0], "the disk is gone")
            async with asyncio.timeout(30):
                while await leader_told(broker) != -1:
                    await asyncio.sleep(0.01)
        async with broker_in_loop(tmp_path) as broker:
            assert await leader_told(broker) == 1

    asyncio.run(work())


def test_a_directory_that_fails_during_the_stop_leaves_the_others_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    places = [tmp_path / name for name in ("a", "b", "c")]
    flush = PartitionLog.flush

    def fail_in_first(log: PartitionLog) -> None:
        if log.directory.parent == places[0]:
            raise OSError(errno.EIO, "it failed")
        flush(log)

    async def work() -> None:
        async with broker_in_loop(tmp_path, log_dirs=",".join(map(str, places))) as broker:
            await Client(broker).create_topic("orders", partitions=3)
            monkeypatch.setattr(PartitionLog, "flush", fail_in_first)

    asyncio.run(work())
    assert [CleanShutdownFile(LocalDisk(), place).exists() for place in places] == [False, True, True]
    assert f"log directory {places[0]} is offline" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(("code", "is_offline"), [(errno.EIO, True), (errno.ENOSPC, False)])
def test_a_directory_that_cannot_flush_what_a_crash_left_does_not_keep_the_broker_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, *, is_offline: bool
) -> None:
    places = [tmp_path / name for name in ("a", "b")]
    flush = PartitionLog.flush

    def fail_in_first(log: PartitionLog) -> None:
        if log.directory.parent == places[0]:
            raise OSError(code, "it failed")
        flush(log)

    async def work() -> None:
        setting = ",".join(map(str, places))
        async with broker_in_loop(tmp_path, log_dirs=setting) as broker:
            await Client(broker).create_topic("orders", partitions=2, flush_messages="1")
            for partition in broker.replicas.partitions.values():
                partition.append(memoryview(bytearray(batch_of(b"a"))), all_replicas=True)
        for place in places:  # as after a crash
            CleanShutdownFile(LocalDisk(), place).remove()
            (place / "recovery-point-offset-checkpoint").unlink()
        with monkeypatch.context() as patch:
            patch.setattr(PartitionLog, "flush", fail_in_first)
            async with broker_in_loop(tmp_path, log_dirs=setting) as broker:
                assert [directory.failure is not None for directory in broker.directories.directories] == [
                    is_offline,
                    False,
                ]
                served = {
                    partition.log and partition.log.directory.parent
                    for partition in broker.replicas.partitions.values()
                }
                assert served == {None if is_offline else places[0], places[1]}

    asyncio.run(work())


def test_no_request_is_begun_while_the_rest_of_the_broker_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would wait for what it changes: a topic could be made beside logs that are being closed."""
    asked = b"".join(request_frame(MetadataRequest(topics=[]), 9, 7, "test"))

    async def work() -> None:
        async with broker_in_loop(tmp_path) as broker:
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.ready.listeners[0].port)
            writer.write(asked)
            assert await reader.read(4096)
            answers: list[bytes] = []

            async def ask_once_more() -> None:
                with suppress(ConnectionError):
                    writer.write(asked)
                    answers.append(await reader.read(4096))

            monkeypatch.setattr(broker.controller, "close", ask_once_more)
        writer.close()
        assert answers in ([], [b""])

    asyncio.run(asyncio.wait_for(work(), 60))


def test_moves_end_before_the_upkeep_that_they_tell_of_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []

    async def work() -> None:
        async with broker_in_loop(tmp_path) as broker:
            for name, part in (("moves", broker.replica_moves), ("upkeep", broker._upkeep)):
                for method in ("close", "stop"):
                    if (end := getattr(part, method, None)) is not None:
                        monkeypatch.setattr(part, method, partial(_noting, ended, name, end))

    asyncio.run(work())
    assert ended == ["moves", "upkeep"]


async def _noting(ended: list[str], name: str, end: Callable[[], Awaitable[None]]) -> None:
    await end()
    ended.append(name)


def test_a_step_of_the_stop_that_fails_does_not_keep_the_logs_from_being_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise RuntimeError("it failed")

    async def work() -> None:
        async with broker_in_loop(tmp_path) as broker:
            await Client(broker).create_topic("orders")
            monkeypatch.setattr(broker.producer_ids, "close", fail)
            directory = broker.directories.directories[0].path
        assert CleanShutdownFile(LocalDisk(), directory).exists()
        assert "handing out producer ids" in caplog.text

    asyncio.run(work())


def test_a_broker_that_lost_all_its_directories_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    places = [tmp_path / name for name in ("a", "b")]

    async def work() -> None:
        async with broker_in_loop(tmp_path, log_dirs=",".join(map(str, places))) as broker:
            first, second = broker.directories.directories
            broker.directories.take_offline(first, "it failed")
            assert not broker.has_failed.is_set()
            broker.directories.take_offline(second, "it failed, too")
            assert broker.has_failed.is_set()
            assert f"all its log directories have failed: {places[0]}, {places[1]}" in caplog.text

    asyncio.run(work())
