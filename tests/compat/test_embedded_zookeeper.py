"""Programs made for Apache ZooKeeper use the embedded one: Kafka's zookeeper-shell, and brokers of Kafka 3.9.1."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.zookeeper import paths
from ottla.zookeeper.znodes import BrokerRegistration, ControllerRegistration, PartitionLeader, TopicAssignment
from support.kafka_process import java_command, stop, zookeeper_mode_broker
from support.trees.contract import existing
from support.trees.server_process import server_process
from support.trees.servers import connected

pytestmark = pytest.mark.compat


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_process(tmp_path_factory.mktemp("embedded")) as address:
        yield address


def shell(address: str, *commands: str) -> str:
    command = java_command("3.9.1", "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka", "-server", address)
    done = subprocess.run(
        command, input="\n".join([*commands, "quit"]), capture_output=True, text=True, timeout=120, check=False
    )
    return done.stdout + done.stderr


def test_zookeeper_shell(address: str) -> None:
    told = shell(
        address,
        "create /shell data",
        "create -s /shell/n- x",
        "create -e /shell/mine y",
        "ls -s /shell",
        "get -s /shell",
        "set /shell changed",
        "stat -w /shell",
        "set /shell again",
        "getAcl /shell",
        "addWatch -m PERSISTENT /shell",
        "deleteall /shell/n-0000000000",
        "sync /shell",
        "getAllChildrenNumber /",
        "getEphemerals",
        "whoami",
        "delete /missing",
    )
    for expected in (
        "Created /shell",
        "Created /shell/n-0000000000",
        "[mine, n-0000000000]",
        "cversion = 2",
        "numChildren = 2",
        "dataLength = 4",
        "type:NodeDataChanged path:/shell",
        "'world,'anyone",
        "type:NodeChildrenChanged path:/shell",
        "Sync is OK",
        "[/shell/mine]",
        "Node does not exist: /missing",
    ):
        assert expected in told, f"{expected!r} is missing in:\n{told}"


@pytest.mark.parametrize("word", ["ruok", "srvr", "stat", "mntr", "isro", "cons"])
def test_four_letters(address: str, word: str) -> None:
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(word.encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    expected = {"ruok": "imok", "isro": "rw", "mntr": "zk_server_state\tstandalone\n", "cons": "recved="}
    assert expected.get(word, "Mode: standalone\n") in answer


def test_brokers_of_kafka(address: str, tmp_path: Path) -> None:
    """Two brokers of Apache Kafka 3.9.1 form a cluster on it: registration, election, topics, failover of the
    controller when its broker goes."""
    settings = {"zookeeper.session.timeout.ms": "6000"}
    brokers = [zookeeper_mode_broker(tmp_path / str(each), f"{address}/kafka", each, settings) for each in (1, 2)]
    try:
        bootstrap = ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("orders", 4, 2)])["orders"].result(60)
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        for number in range(100):
            producer.produce("orders", str(number).encode())
        assert producer.flush(60) == 0
        asyncio.run(asyncio.wait_for(_look(f"{address}/kafka"), 60))
        leader = asyncio.run(asyncio.wait_for(_controller(f"{address}/kafka"), 60))
        stop(brokers[leader - 1].process)
        asyncio.run(asyncio.wait_for(_until_controller(f"{address}/kafka", 3 - leader), 60))
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        read = 0
        while read < 100:
            message = consumer.poll(60)
            assert message is not None, f"only {read} of 100 records came"
            if message.error() is None:
                read += 1
        consumer.close()
    finally:
        for broker in brokers:
            stop(broker.process)


async def _look(address: str) -> None:
    async with connected(address) as tree:
        assert await tree.children(paths.BROKER_IDS) == ["1", "2"]
        node = await existing(tree, paths.broker(1))
        assert node.owner != 0
        assert BrokerRegistration.decode(paths.broker(1), node.data).endpoints[0].host == "127.0.0.1"
        topic = TopicAssignment.decode("", (await existing(tree, paths.topic("orders"))).data)
        assert {len(each.replicas) for each in topic.partitions.values()} == {2}
        for partition in range(4):
            path = paths.partition_state("orders", partition)
            assert len(PartitionLeader.decode(path, (await existing(tree, path)).data).isr) == 2


async def _controller(address: str) -> int:
    async with connected(address) as tree:
        return ControllerRegistration.decode("", (await existing(tree, paths.CONTROLLER)).data).broker_id


async def _until_controller(address: str, broker_id: int) -> None:
    async with connected(address) as tree:
        while True:
            changed = asyncio.Event()
            node = await tree.get(paths.CONTROLLER, lambda _, changed=changed: changed.set())  # type: ignore[misc]
            if node is not None and ControllerRegistration.decode("", node.data).broker_id == broker_id:
                return
            await changed.wait()
