"""`__consumer_offsets` between Kafka and Ottla: what Kafka 3.9.1 wrote is loaded, and Kafka's formatters read ours."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compat.once import Once
from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.partitioning import partition_for
from ottla.records import BatchView
from ottla.testing.broker import Broker
from support.controllers import admin_of
from support.coordinators.committers import Committers
from support.coordinators.fake_log import FakeLog
from support.kafka_process import java_command, stop, zookeeper, zookeeper_mode_broker
from support.waiting import wait_until

pytestmark = pytest.mark.compat

TOPIC = "__consumer_offsets"
PARTITIONS = 3
PATIENCE_S = 60.0
SIMPLE, MEMBERS, LEFT, DELETED, IN_TRANSACTIONS = "simple", "members", "left", "deleted", "in-transactions"
GROUPS = (SIMPLE, MEMBERS, LEFT, DELETED, IN_TRANSACTIONS)
NOTE = "a note"
NOTE_AS_SENT = f"{NOTE}\0"
"""confluent-kafka sends the end of its string, too."""
Offsets = dict[tuple[str, int], int]


# --- what groups do, wherever the broker is from ----------------------------------------------------------------------


def fill(admin: AdminClient, bootstrap: str) -> None:
    """Two topics with some records."""
    for future in admin.create_topics([NewTopic("t", 2, 1), NewTopic("u", 1, 1)]).values():
        future.result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        producer.produce("t", b"%d" % number, partition=number % 2)
    producer.produce("u", b"only")
    assert producer.flush(PATIENCE_S) == 0


def commit_without_members(bootstrap: str, group: str, offsets: Offsets, metadata: str = "") -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    places = [TopicPartition(topic, index, offset, metadata) for (topic, index), offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def join(bootstrap: str, group: str, **settings: Any) -> Consumer:
    """A member of a group that has everything, read and committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": f"client of {group}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **settings,
        }
    )
    consumer.subscribe(["t", "u"])
    seen = 0

    def read() -> bool:
        nonlocal seen
        message = consumer.poll(0.2)
        seen += message is not None and message.error() is None
        return seen == 21

    wait_until(read, "the committed offsets", PATIENCE_S)
    consumer.commit(asynchronous=False)
    return consumer


# --- Kafka's, loaded here -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Written:
    """What Kafka has in its directory, and what it told of it before it stopped."""

    partitions: list[list[bytes]]
    """The batches of each."""
    offsets: dict[str, Offsets]
    member_ids: list[str]


def written_by_kafka(place: Path) -> Written:
    settings = {"offsets.topic.num.partitions": str(PARTITIONS), "group.initial.rebalance.delay.ms": "0"}
    with zookeeper(place / "zookeeper") as address:
        broker = zookeeper_mode_broker(place / "broker", address, 1, settings)
        try:
            admin = admin_of(broker)
            fill(admin, broker.address)
            commit_without_members(broker.address, SIMPLE, {("t", 0): 3, ("t", 1): 4}, NOTE)
            commit_without_members(broker.address, SIMPLE, {("t", 0): 5})
            commit_without_members(broker.address, DELETED, {("t", 0): 5})
            for future in admin.delete_consumer_groups([DELETED]).values():
                future.result(PATIENCE_S)
            join(broker.address, LEFT).close()
            commit_in_transactions(broker.address)
            member = join(broker.address, MEMBERS, **{"group.instance.id": "static"})
            (described,) = [each.result(PATIENCE_S) for each in admin.describe_consumer_groups([MEMBERS]).values()]
            offsets = {group: told_by(admin, group) for group in GROUPS}
            ids = [each.member_id for each in described.members]
        finally:
            stop(broker.process)
        member.close()
    partitions = [batches_in(broker.data / f"{TOPIC}-{index}") for index in range(PARTITIONS)]
    return Written(partitions, offsets, ids)


def commit_in_transactions(bootstrap: str) -> None:
    """One that is committed, and one that is aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "x"})
    producer.init_transactions(PATIENCE_S)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": IN_TRANSACTIONS, "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    for offset, is_committed in ((6, True), (9, False)):
        producer.begin_transaction()
        producer.produce("u", b"in a transaction")
        places = [TopicPartition("t", 0, offset), TopicPartition("t", 1, offset)]
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), PATIENCE_S)
        if is_committed:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
    consumer.close()


def told_by(admin: AdminClient, group: str) -> Offsets:
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(each.topic, each.partition): each.offset for each in future.result(PATIENCE_S).topic_partitions}


def batches_in(folder: Path) -> list[bytes]:
    batches = []
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        at = 0
        while at < len(data):
            size = BatchView(data, at).size_in_bytes
            batches.append(data[at : at + size])
            at += size
    return batches


@pytest.fixture(scope="session")
def written(once: Once) -> Written:
    return once("offsets topic of Kafka", written_by_kafka)


def loaded(written: Written, group: str) -> Committers:
    """The coordinator of the partition that holds the group."""

    async def load() -> Committers:
        log = FakeLog()
        for batch in written.partitions[partition_for(group, PARTITIONS)]:
            log.put(0, bytearray(batch))
        groups = Committers(log)
        while groups.coordinator.runtime.is_loading:
            await asyncio.sleep(0)
        return groups

    return asyncio.run(asyncio.wait_for(load(), PATIENCE_S))


@pytest.mark.parametrize("group", GROUPS)
def test_offsets_of_kafka_are_found_as_kafka_tells_them(written: Written, group: str) -> None:
    groups = loaded(written, group)
    assert asyncio.run(asyncio.wait_for(groups.offsets(group), PATIENCE_S)) == written.offsets[group]
    assert (group in groups.shard.groups) == (group != DELETED)


def test_what_kafka_told_is_what_the_groups_did(written: Written) -> None:
    assert written.offsets[SIMPLE] == {("t", 0): 5, ("t", 1): 4}
    assert written.offsets[IN_TRANSACTIONS] == {("t", 0): 6, ("t", 1): 6}
    assert written.offsets[DELETED] == {}
    assert len(written.offsets[MEMBERS]) == 3


def test_groups_of_kafka_are_found(written: Written) -> None:
    group = loaded(written, MEMBERS).shard.groups[MEMBERS]
    assert isinstance(group, ClassicGroup)
    assert (group.state_name, group.protocol_type, list(group.members)) == ("Stable", "consumer", written.member_ids)
    assert group.subscribes_to("t")
    left = loaded(written, LEFT).shard.groups[LEFT]
    assert (left.state_name, left.protocol_type, left.is_empty) == ("Empty", "consumer", True)
    simple = loaded(written, SIMPLE).shard.groups[SIMPLE]
    assert (simple.state_name, simple.protocol_type) == ("Empty", "")


def test_metadata_and_leader_epochs_of_kafka_are_found(written: Written) -> None:
    stored = loaded(written, SIMPLE).shard.offsets.topics_of(SIMPLE)["t"]
    found = [stored.get(index) for index in (0, 1)]
    assert [each and (each.offset, each.leader_epoch, each.metadata) for each in found] == [
        (5, -1, "\0"),
        (4, -1, NOTE_AS_SENT),
    ]


# --- ours, read by Kafka ----------------------------------------------------------------------------------------------


def formatted(version: str, formatter: str, bootstrap: str) -> list[dict[str, Any]]:
    """What Kafka's console consumer prints of our topic."""
    command = java_command(
        version,
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", TOPIC, "--partition", "0", "--offset", "earliest"),
        *("--timeout-ms", "5000", "--formatter", f"org.apache.kafka.tools.consumer.{formatter}"),
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "Error" not in done.stderr.replace("Error processing message, terminating consumer process", "")
    return list(documents(done.stdout))


def documents(text: str) -> Iterator[dict[str, Any]]:
    """They follow each other without anything between them."""
    at = text.find("{")
    while at >= 0:
        document, at = json.JSONDecoder().raw_decode(text, at)
        yield document
        at = text.find("{", at)


def done_by_groups(place: Path) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """What each formatter of each version read."""
    settings = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
    with Broker(settings, directory=place / "ours") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        fill(admin, broker.bootstrap)
        commit_without_members(broker.bootstrap, SIMPLE, {("t", 0): 5}, NOTE)
        join(broker.bootstrap, LEFT).close()
        for future in admin.delete_consumer_groups([SIMPLE]).values():
            future.result(PATIENCE_S)
        return {
            version: {
                formatter: formatted(version, formatter, broker.bootstrap)
                for formatter in ("OffsetsMessageFormatter", "GroupMetadataMessageFormatter")
            }
            for version in ("3.9.1", "4.3.1")
        }


@pytest.fixture(scope="session")
def read_by_kafka(once: Once) -> dict[str, dict[str, list[dict[str, Any]]]]:
    return once("offsets topic of ours", done_by_groups)


@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
def test_kafkas_formatter_reads_our_offsets(
    read_by_kafka: dict[str, dict[str, list[dict[str, Any]]]], version: str
) -> None:
    found = read_by_kafka[version]["OffsetsMessageFormatter"]
    first = found[0]
    assert first["key"]["data"] == {"group": SIMPLE, "topic": "t", "partition": 0}
    value = first["value"]
    assert value["version"] == 3
    assert (value["data"]["offset"], value["data"]["metadata"]) == (5, NOTE_AS_SENT)
    of_left = {
        (each["key"]["data"]["topic"], each["key"]["data"]["partition"]): each["value"]["data"]["offset"]
        for each in found
        if each["key"]["data"]["group"] == LEFT
    }
    assert of_left == {("t", 0): 10, ("t", 1): 10, ("u", 0): 1}
    deleted = [each for each in found if each["key"]["data"]["group"] == SIMPLE and not each.get("value")]
    assert len(deleted) == 1


@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
def test_kafkas_formatter_reads_our_groups(
    read_by_kafka: dict[str, dict[str, list[dict[str, Any]]]], version: str
) -> None:
    found = read_by_kafka[version]["GroupMetadataMessageFormatter"]
    of_left = [each["value"] for each in found if each["key"]["data"]["group"] == LEFT]
    assert {value["version"] for value in of_left} == {3}
    stable, empty = of_left[-2]["data"], of_left[-1]["data"]
    (member,) = stable["members"]
    assert (stable["protocolType"], stable["generation"], member["clientId"]) == ("consumer", 1, f"client of {LEFT}")
    assert member["memberId"] == stable["leader"]
    assert (empty["members"], empty["generation"]) == ([], 2)
    deleted = [each for each in found if each["key"]["data"]["group"] == SIMPLE and not each.get("value")]
    assert len(deleted) == 1
