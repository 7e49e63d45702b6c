"""Groups of the consumer protocol that Kafka 4.3.1 wrote: they load here, go on where they were, and what is written of
them here is what Kafka wrote."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import Uuid, parse_uuid
from ottla.coordinator.groups.consumer import records as consumer_records
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.records import value_of
from ottla.coordinator.key_values import KeyValue
from ottla.records import iter_batches, iter_records
from ottla.wire.codec import encode_versioned
from ottla.wire.messages.group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
)
from ottla.wire.schema import Data
from support.coordinators.consumer_members import Coordinated, told
from support.coordinators.fake_log import FakeLog
from support.coordinators.topics import FakeTopics
from support.kafka_process import Broker, kill, kraft_broker

pytestmark = pytest.mark.compat

SETTINGS = {"group.consumer.heartbeat.interval.ms": "500", "group.consumer.min.heartbeat.interval.ms": "500"}
WAIT_S = 60.0
Owned = set[tuple[str, int]]

_VALUES: dict[int, type[Data]] = {
    3: ConsumerGroupMetadataValue,
    5: ConsumerGroupMemberMetadataValue,
    6: ConsumerGroupTargetAssignmentMetadataValue,
    7: ConsumerGroupTargetAssignmentMemberValue,
    8: ConsumerGroupCurrentMemberAssignmentValue,
    16: ConsumerGroupRegularExpressionValue,
}


class TopicsOfKafka(FakeTopics):
    """By the ids that Kafka gave them."""

    def __init__(self, data: Path) -> None:
        super().__init__(orders=4, orders2=2)
        self._ids = {name: _topic_id(data / f"{name}-0") for name in ("orders", "orders2")}


class Written:
    """What Kafka left behind when it was killed, and what its clients owned then."""

    def __init__(self, data: Path, owned: dict[str, Owned]) -> None:
        self.owned = owned
        self.topics = TopicsOfKafka(data)
        segment = (data / "__consumer_offsets-0" / f"{0:020}.log").read_bytes()
        self.log = FakeLog()
        for batch in iter_batches(segment):
            self.log.put(0, bytearray(segment[batch.position : batch.position + batch.size_in_bytes]))
        self.latest: dict[bytes, bytes | None] = {}
        for record in iter_records(segment):
            value = None if record.value is None else bytes(record.value)
            self.latest[bytes(record.key or b"")] = value


def _topic_id(folder: Path) -> Uuid:
    lines = (folder / "partition.metadata").read_text(encoding="utf-8").splitlines()
    return parse_uuid(next(line.split()[1] for line in lines if line.startswith("topic_id:")))


def _owned(consumer: Consumer) -> Owned:
    return {(each.topic, each.partition) for each in consumer.assignment()}


def _groups_at_work(broker: Broker, admin: AdminClient) -> dict[str, Owned]:
    """A group with a static member and one that subscribes by a pattern; and one that a classic member began."""

    def joined(group: str, protocol: str, topic: str, **settings: str) -> Consumer:
        config: dict[str, Any] = {"bootstrap.servers": broker.address, "group.id": group, "group.protocol": protocol}
        consumer = Consumer({**config, "client.id": f"{group}-{protocol}-{topic}", "log_level": 0, **settings})
        consumer.subscribe([topic])
        return consumer

    def are_stable() -> bool:
        described = admin.describe_consumer_groups(["g", "h"]).values()
        return all(each.result().state == ConsumerGroupState.STABLE for each in described)

    def poll_until(consumers: list[Consumer], counts: list[int]) -> None:
        deadline = time.monotonic() + WAIT_S
        while [len(_owned(each)) for each in consumers] != counts or not are_stable():
            assert time.monotonic() < deadline, [_owned(each) for each in consumers]
            for each in consumers:
                each.poll(0.05)

    static = {"group.instance.id": "i", "group.remote.assignor": "range"}
    consumers = [joined("g", "consumer", "orders", **static), joined("g", "consumer", "^orders.*")]
    consumers.append(joined("h", "classic", "orders"))
    poll_until(consumers, [2, 4, 4])
    consumers.append(joined("h", "consumer", "orders"))
    poll_until(consumers, [2, 4, 2, 2])
    names = ["g-consumer-orders", "g-consumer-^orders.*", "h-classic-orders", "h-consumer-orders"]
    return {name: _owned(each) for name, each in zip(names, consumers, strict=True)}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    broker = kraft_broker(tmp_path_factory.mktemp("kafka") / "broker", SETTINGS)
    try:
        admin = AdminClient({"bootstrap.servers": broker.address})
        for made in admin.create_topics([NewTopic("orders", 4, 1), NewTopic("orders2", 2, 1)]).values():
            made.result()
        owned = _groups_at_work(broker, admin)
    finally:
        kill(broker.process)
    return Written(broker.data, owned)


def _by_client(coordinated: Coordinated) -> dict[str, Owned]:
    owned = {}
    for group_id in ("g", "h"):
        for member in coordinated.group(group_id).members.values():
            names = {(coordinated.topics.topic_name(topic) or "", index) for topic, index in member.standing.assigned}
            owned[member.subscription.client_id] = names
    return owned


def test_groups_of_kafka_load(written: Written) -> None:
    coordinated = Coordinated(log=written.log, topics=written.topics)
    assert _by_client(coordinated) == written.owned
    first, second = coordinated.group("g"), coordinated.group("h")
    assert (first.state_name, second.state_name) == ("Stable", "Stable")
    assert [each.topics for each in first.patterns.values()] == [{"orders", "orders2"}]
    assert list(first.static_members) == ["i"]
    assert (first.favourite_assignor(None, None), second.favourite_assignor(None, None)) == ("range", None)
    assert (second.classic_member_count, len(second.members)) == (1, 2)


def test_groups_of_kafka_go_on(written: Written) -> None:
    coordinated = Coordinated(log=written.log.copy(), topics=written.topics)
    for group_id in ("g", "h"):
        for member in list(coordinated.group(group_id).members.values()):
            standing, subscription = member.standing, member.subscription
            if subscription.classic is None:
                response = coordinated.heartbeat(
                    client_id=subscription.client_id,
                    group_id=group_id,
                    member_id=member.member_id,
                    member_epoch=standing.epoch,
                    instance_id=subscription.instance_id,
                    topic_partitions=told(set(standing.assigned)),
                )
                assert (response.error_code, response.assignment) == (ErrorCode.NONE, None)
    assert _by_client(coordinated) == written.owned


def test_what_is_written_of_a_group_is_what_kafka_wrote(written: Written) -> None:
    coordinated = Coordinated(log=written.log, topics=written.topics)
    compared = 0
    for group_id in ("g", "h"):
        for ours in _records(coordinated.group(group_id)):
            assert ours.value == _without_what_came_later(ours.key, written.latest[ours.key]), ours.key
            compared += 1
    assert compared == 2 * (2 + 3 * 2) + 1


def _records(group: ConsumerGroup) -> Iterator[KeyValue]:
    group_id = group.group_id
    yield consumer_records.group_record(group_id, group.epoch)
    yield consumer_records.target_epoch_record(group_id, group.target_epoch)
    for pattern, resolved in group.patterns.items():
        yield consumer_records.pattern_record(group_id, pattern, resolved)
    for member_id, member in group.members.items():
        yield consumer_records.member_record(group_id, member_id, member.subscription)
        yield consumer_records.target_record(group_id, member_id, group.target_of(member_id))
        yield consumer_records.standing_record(group_id, member_id, member.standing)


def _without_what_came_later(key: bytes, value: bytes | None) -> bytes:
    """Without the tagged fields that 4.1 and later add to 3.9's records, and in order: Kafka's is a hash map's."""
    assert value is not None
    kind = int.from_bytes(key[:2], "big")
    message = value_of(_VALUES[kind], value)
    for name, absent in (("metadata_hash", 0), ("assignment_timestamp", 0)):
        if hasattr(message, name):
            setattr(message, name, absent)
    for name in ("topic_partitions", "assigned_partitions", "partitions_pending_revocation"):
        for each in getattr(message, name, []):
            if isinstance(each, CurrentTopicPartitions):
                assert each.assignment_epochs
                pairs = sorted(zip(each.partitions, each.assignment_epochs, strict=True))
                each.assignment_epochs = [epoch for _, epoch in pairs]
            each.partitions.sort()
        getattr(message, name, []).sort(key=lambda each: each.topic_id)
    return encode_versioned(message, 0)
