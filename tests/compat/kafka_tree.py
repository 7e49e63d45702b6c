"""A real Kafka 3.9.1 on a real ZooKeeper in which ours has written too: what it makes of our nodes, and what it writes.

Some nodes of ours are there before Kafka starts, others come while it runs.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from confluent_kafka.cimpl import NewPartitions, NewTopic

from ottla.base.coordination import Create
from ottla.base.ids import Uuid, random_uuid
from ottla.zookeeper import paths, znodes
from ottla.zookeeper.client.tree import ZooKeeperTree
from ottla.zookeeper.paths import ConfigKind
from ottla.zookeeper.znodes import BrokerRegistration, Endpoint, PartitionLeader, ReplicaAssignment, TopicAssignment
from support.controllers import admin_of
from support.kafka_process import Broker, free_port, java_command, stop, zookeeper, zookeeper_mode_broker
from support.trees.servers import connected

T = TypeVar("T")

CLUSTER_ID = "b3R0bGEtdHJlZXMtYnktdQ"
CONTROLLER_EPOCH = 41
LEADER_EPOCH = 7
BEFORE = "ours.before"
LIVE = "ours.live"
USER = "CN=al ice/é*~"
PATIENCE_S = 60.0
_URL_SAFE = str.maketrans("+/", "-_")
"""librdkafka shows ids in another alphabet than Kafka."""

CONFIGS = {
    "cleanup.policy": "compact,delete",
    "retention.ms": "1000000",
    "segment.bytes": "1000000",
    "max.message.bytes": "70000",
    "min.insync.replicas": "1",
    "compression.type": "zstd",
    "message.timestamp.type": "LogAppendTime",
    "delete.retention.ms": "5",
    "follower.replication.throttled.replicas": "*",
}


@dataclass(slots=True)
class KafkaTree:
    """What was seen, until Kafka stopped."""

    topic_ids: dict[str, Uuid]
    nodes: dict[str, bytes] = field(default_factory=dict)
    cluster_id: str = ""
    seen_ids: dict[str, str] = field(default_factory=dict)
    seen_partitions: dict[str, dict[int, tuple[int, ...]]] = field(default_factory=dict)
    consumed: dict[str, list[bytes]] = field(default_factory=dict)
    retention: list[str] = field(default_factory=list)
    brokers: list[str] = field(default_factory=list)


def make_kafka_tree(place: Path) -> KafkaTree:
    with zookeeper(place / "zookeeper") as address:
        seen = KafkaTree({BEFORE: random_uuid(), LIVE: random_uuid()})
        asyncio.run(_write_before(address, seen.topic_ids[BEFORE]))
        broker = zookeeper_mode_broker(place / "broker", address, 1, {"broker.rack": "the rack"})
        try:
            asyncio.run(_live(address, broker, seen))
        finally:
            stop(broker.process)
    return seen


# --- what ours writes -----------------------------------------------------------------------------------------------


async def _write_before(address: str, topic_id: Uuid) -> None:
    async with connected(address) as tree:
        await paths.ensure_persistent_paths(tree)
        await tree.create(paths.CLUSTER_ID, znodes.encode_cluster_id(CLUSTER_ID), parents=True)
        await tree.create(paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(CONTROLLER_EPOCH))
        led, without_leader = (PartitionLeader(leader, LEADER_EPOCH, (1,), CONTROLLER_EPOCH) for leader in (1, -1))
        await tree.transact(
            [
                *_topic_nodes(BEFORE, topic_id, {"retention.ms": "123456789"}),
                Create(paths.partitions(BEFORE)),
                *(Create(paths.partition(BEFORE, index)) for index in range(2)),
                Create(paths.partition_state(BEFORE, 0), led.encode()),
                Create(paths.partition_state(BEFORE, 1), without_leader.encode()),
            ]
        )


def _topic_nodes(name: str, topic_id: Uuid, config: dict[str, str]) -> list[Create]:
    assignment = TopicAssignment(topic_id, {index: ReplicaAssignment((1,)) for index in range(2)})
    return [
        Create(paths.config(ConfigKind.TOPICS, name), znodes.encode_config(config)),
        Create(paths.topic(name), assignment.encode()),
    ]


async def _live(address: str, broker: Broker, seen: KafkaTree) -> None:
    admin = await asyncio.to_thread(admin_of, broker)
    async with connected(address) as tree:
        await tree.transact(_topic_nodes(LIVE, seen.topic_ids[LIVE], {"retention.ms": "1111"}))
        seen.seen_partitions = await _until(lambda: _led_partitions(admin), lambda found: len(found) == 2)
        seen.seen_ids = await asyncio.to_thread(_ids, admin)
        seen.cluster_id = str(admin.list_topics(timeout=10).cluster_id)
        for topic in (BEFORE, LIVE):
            seen.consumed[topic] = await asyncio.to_thread(_through, broker, topic)
        await _change_config(tree, admin, seen)
        await _register_broker(tree, admin, seen)
        await asyncio.to_thread(_let_kafka_write, admin, broker)
        seen.nodes = await _walk(tree, "/")


async def _change_config(tree: ZooKeeperTree, admin: AdminClient, seen: KafkaTree) -> None:
    seen.retention.append(await asyncio.to_thread(_retention, admin))
    await tree.set(paths.config(ConfigKind.TOPICS, LIVE), znodes.encode_config({"retention.ms": "2222"}))
    change = znodes.encode_config_change(f"{ConfigKind.TOPICS}/{LIVE}")
    await tree.create(paths.CONFIG_CHANGE_PREFIX, change, sequential=True)
    seen.retention.append(await _until(lambda: _retention(admin), lambda found: found == "2222"))


async def _register_broker(tree: ZooKeeperTree, admin: AdminClient, seen: KafkaTree) -> None:
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", free_port())
    registration = BrokerRegistration((endpoint,), time.time_ns() // 1_000_000)
    await tree.create(paths.broker(2), registration.encode(), ephemeral=True)
    seen.brokers = await _until(lambda: _brokers(admin), lambda found: len(found) == 2)
    assert seen.brokers[1] == f"127.0.0.1:{endpoint.port}"
    await tree.delete(paths.broker(2))
    await _until(lambda: _brokers(admin), lambda found: len(found) == 1)


# --- what Kafka says and writes -------------------------------------------------------------------------------------


async def _until(ask: Callable[[], T], is_right: Callable[[T], bool]) -> T:
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        found = await asyncio.to_thread(ask)
        if is_right(found):
            return found
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"Kafka still says {found!r}")
        await asyncio.sleep(0.2)


def _led_partitions(admin: AdminClient) -> dict[str, dict[int, tuple[int, ...]]]:
    """The replicas of all partitions of our topics, if all have leaders."""
    topics = admin.list_topics(timeout=10).topics
    return {
        name: {index: tuple(each.replicas) for index, each in topic.partitions.items()}
        for name, topic in topics.items()
        if name in (BEFORE, LIVE) and topic.partitions and all(each.leader == 1 for each in topic.partitions.values())
    }


def _ids(admin: AdminClient) -> dict[str, str]:
    answers = admin.describe_topics(TopicCollection([BEFORE, LIVE]))
    return {name: str(answer.result().topic_id).translate(_URL_SAFE) for name, answer in answers.items()}


def _brokers(admin: AdminClient) -> list[str]:
    brokers = admin.list_topics(timeout=10).brokers
    return [f"{brokers[each].host}:{brokers[each].port}" for each in sorted(brokers)]


def _retention(admin: AdminClient) -> str:
    (answer,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, LIVE)]).values()
    return str(answer.result()["retention.ms"].value)


def _through(broker: Broker, topic: str) -> list[bytes]:
    """Produces to both partitions, and reads what is there."""
    producer = Producer({"bootstrap.servers": broker.address})
    for number in range(20):
        producer.produce(topic, b"%d" % number, partition=number % 2)
    producer.flush(PATIENCE_S)
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "unused", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(2)])
    found: list[bytes] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(found) < 20 and time.monotonic() < deadline_s:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
    consumer.close()
    return sorted(found, key=int)


def _let_kafka_write(admin: AdminClient, broker: Broker) -> None:
    topics = [NewTopic("theirs", 3, 1, config=CONFIGS), NewTopic("theirs.many", 60, 1), NewTopic("theirs.gone", 1, 1)]
    _wait(admin.create_topics(topics))
    _wait(admin.create_partitions([NewPartitions("theirs", 14)]))
    _wait(admin.delete_topics(["theirs.gone"]))
    for resource in (
        _setting(ResourceType.TOPIC, "theirs", {"flush.ms": "77", "unclean.leader.election.enable": "true"}),
        _setting(ResourceType.BROKER, "1", {"log.cleaner.threads": "2", "log.retention.ms": "-1"}),
    ):
        _wait(admin.incremental_alter_configs([resource]))
    # What librdkafka cannot ask for.
    _configure(broker, "background.threads=12", "--entity-type", "brokers", "--entity-default")
    of_user = ("--entity-type", "users", "--entity-name", USER, "--entity-type", "clients", "--entity-default")
    _configure(broker, "producer_byte_rate=1024", *of_user)
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    _wait(admin.alter_user_scram_credentials([UserScramCredentialUpsertion(USER, credential, b"secret")]))
    producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True})
    producer.produce("theirs", b"value", b"key")
    producer.flush(PATIENCE_S)


def _setting(kind: ResourceType, name: str, config: dict[str, str]) -> ConfigResource:
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()]
    return ConfigResource(kind, name, incremental_configs=entries)


def _configure(broker: Broker, setting: str, *entity: str) -> None:
    arguments = ["--bootstrap-server", broker.address, "--alter", "--add-config", setting, *entity]
    command = java_command("3.9.1", "kafka.admin.ConfigCommand", *arguments)
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)} failed:\n{result.stdout}{result.stderr}")


def _wait(answers: Mapping[Any, Future[Any]]) -> None:
    for answer in answers.values():
        answer.result(PATIENCE_S)


async def _walk(tree: ZooKeeperTree, path: str) -> dict[str, bytes]:
    node = await tree.get(path)
    found = {} if node is None else {path: node.data}
    for name in await tree.children(path):
        found |= await _walk(tree, f"{path.rstrip('/')}/{name}")
    return found
