"""Groups as admin clients see and change them: listed, described, deleted, and their offsets moved and forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, ConsumerGroupType, TopicPartition

from ottla.base.error_codes import ErrorCode
from support.clients.aiokafka_client import AiokafkaClient
from support.clients.confluent_client import ConfluentClient, only_result, result
from support.clients.dialect import Record, refused
from support.clients.expectations import START_MS
from support.clients.kafka_python_client import KafkaPythonClient
from support.clients.peers import Peer
from support.groups.consumers import Consumed, GroupConsumer, MakeTopic, Membership, join
from support.groups.flavours import CONFLUENT, Flavour
from support.waiting import wait_until

COUNT = 10


@pytest.fixture(params=[CONFLUENT[0], CONFLUENT[3]], ids=str)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    chosen: Flavour = request.param
    return chosen


@pytest.fixture(autouse=True)
def _records(topic: str, make_topic: MakeTopic, confluent: ConfluentClient) -> None:
    make_topic(topic, 2)
    confluent.produce(topic, [Record(b"%d" % at, timestamp_ms=START_MS + at) for at in range(COUNT)])


@contextmanager
def at_work(membership: Membership) -> Iterator[GroupConsumer]:
    """A group with one member, which has consumed and committed all there is."""
    consumer = join(membership)
    try:
        seen = 0
        while seen < COUNT:
            seen += sum(isinstance(event, Consumed) for event in consumer.poll(0.1))
        consumer.commit()
        yield consumer
    finally:
        consumer.close()


class Groups:
    """What confluent's admin client says."""

    def __init__(self, confluent: ConfluentClient) -> None:
        with confluent.admin() as admin:
            self._admin = admin.library

    def listed(self, group: str, **filters: Any) -> tuple[ConsumerGroupState, ConsumerGroupType] | None:
        found = result(self._admin.list_consumer_groups(**filters)).valid
        states = [(each.state, each.type) for each in found if each.group_id == group]
        return states[0] if states else None

    def described(self, group: str) -> Any:
        return only_result(self._admin.describe_consumer_groups([group]))

    def offsets(self, group: str) -> dict[tuple[str, int], int]:
        found = only_result(self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
        return {(each.topic, each.partition): each.offset for each in found.topic_partitions}

    def alter_offset(self, group: str, topic: str, offset: int) -> int:
        """The error code."""
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])
        (altered,) = only_result(self._admin.alter_consumer_group_offsets([wanted])).topic_partitions
        return 0 if altered.error is None else int(altered.error.code())

    def delete(self, group: str) -> None:
        only_result(self._admin.delete_consumer_groups([group]))


@pytest.fixture
def groups(confluent: ConfluentClient) -> Groups:
    return Groups(confluent)


def test_a_group_is_listed_and_described_from_its_first_member_to_its_end(
    membership: Membership, topic: str, groups: Groups
) -> None:
    group = membership.group
    kind = {"classic": ConsumerGroupType.CLASSIC, "consumer": ConsumerGroupType.CONSUMER}[membership.flavour.protocol]
    assert groups.listed(group) is None
    with at_work(membership):
        assert groups.listed(group) == (ConsumerGroupState.STABLE, kind)
        assert groups.listed(group, states={ConsumerGroupState.EMPTY}) is None
        assert groups.listed(group, types={kind}) is not None
        described = groups.described(group)
        assert (described.state, described.type) == (ConsumerGroupState.STABLE, kind)
        assert described.partition_assignor == membership.flavour.strategy
        (member,) = described.members
        assert (member.client_id, member.host) == ("rdkafka", "/127.0.0.1")
        assigned = [(each.topic, each.partition) for each in member.assignment.topic_partitions]
        assert assigned == [(topic, 0), (topic, 1)]
        with refused(ErrorCode.NON_EMPTY_GROUP):
            groups.delete(group)
    assert groups.listed(group) == (ConsumerGroupState.EMPTY, kind)
    assert groups.offsets(group) == {(topic, 0): COUNT}
    groups.delete(group)
    assert groups.listed(group) is None
    assert groups.described(group).state == ConsumerGroupState.DEAD
    assert groups.offsets(group) == {}
    with refused(ErrorCode.GROUP_ID_NOT_FOUND):
        groups.delete(group)


def test_offsets_are_moved_while_nobody_is_there_and_the_group_goes_on_from_them(
    membership: Membership, topic: str, groups: Groups
) -> None:
    with at_work(membership):
        assert groups.alter_offset(membership.group, topic, 3) == ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.offsets(membership.group) == {(topic, 0): COUNT}
    assert groups.alter_offset(membership.group, topic, 3) == 0
    assert groups.offsets(membership.group) == {(topic, 0): 3}
    consumer = join(membership)
    try:
        seen: list[int] = []
        while len(seen) < COUNT - 3:
            seen += [event.offset for event in consumer.poll(0.1) if isinstance(event, Consumed)]
        assert seen == list(range(3, COUNT))
    finally:
        consumer.close()


def test_offsets_of_a_group_that_never_had_members(group_id: str, topic: str, groups: Groups) -> None:
    assert groups.alter_offset(group_id, topic, 5) == 0
    assert groups.offsets(group_id) == {(topic, 0): 5}
    assert groups.listed(group_id) == (ConsumerGroupState.EMPTY, ConsumerGroupType.CLASSIC)
    groups.delete(group_id)
    assert groups.offsets(group_id) == {}


def test_kafka_python_sees_and_changes_groups(
    membership: Membership, topic: str, kafka_python: KafkaPythonClient, groups: Groups
) -> None:
    from kafka import TopicPartition as Place
    from kafka.admin import OffsetSpec, OffsetTimestamp

    group, protocol = membership.group, membership.flavour.protocol
    place = Place(topic, 0)
    with kafka_python.admin() as client:
        admin = client.library

        def reset(to: Any) -> int:
            code = admin.reset_group_offsets(group, {place: to})[place]["error"].errno
            return int(code)

        with at_work(membership):
            listed = [each for each in admin.list_groups() if each["group_id"] == group]
            assert listed == [
                {"group_id": group, "protocol_type": "consumer", "group_state": "Stable", "group_type": protocol}
            ]
            described = admin.describe_groups([group])[group]
            # The old request knows classic groups alone.
            assert described["group_state"] == ("Stable" if protocol == "classic" else "Dead")
            assert (described["error"] is None) == (protocol == "classic")
            assert reset(OffsetSpec.EARLIEST) == ErrorCode.UNKNOWN_MEMBER_ID
            assert admin.delete_group_offsets(group, [place])[place].errno == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            assert admin.delete_groups([group]) == {group: "NonEmptyGroupError"}
        for spec, offset in (
            (OffsetSpec.EARLIEST, 0),
            (OffsetTimestamp(START_MS + 7), 7),
            (4, 4),
            (OffsetSpec.LATEST, COUNT),
        ):
            assert reset(spec) == 0
            assert admin.list_group_offsets([group])[group][place].offset == offset
        assert admin.delete_group_offsets(group, [place])[place].errno == 0
        assert groups.offsets(group) == {}
        assert admin.delete_groups([group]) == {group: "OK"}
        assert admin.delete_groups([group]) == {group: "GroupIdNotFoundError"}


@pytest.mark.parametrize("flavour", [CONFLUENT[0]], ids=str)
def test_a_static_member_is_removed_by_its_name(
    membership: Membership, kafka_python: KafkaPythonClient, groups: Groups
) -> None:
    from kafka.admin import MemberToRemove

    group = membership.group
    with at_work(replace(membership, instance="stays", session_ms=60_000)):
        pass
    # It left without a word, as static members do.
    assert [member.group_instance_id for member in groups.described(group).members] == ["stays"]
    with kafka_python.admin() as admin:
        for name, code in (("nobody", ErrorCode.UNKNOWN_MEMBER_ID), ("stays", ErrorCode.NONE)):
            removed = admin.library.remove_group_members(group, [MemberToRemove(group_instance_id=name)])
            assert removed[name].errno == code
    assert groups.described(group).members == []
    assert groups.listed(group) == (ConsumerGroupState.EMPTY, ConsumerGroupType.CLASSIC)


@pytest.mark.parametrize("flavour", [CONFLUENT[0]], ids=str)
def test_aiokafka_sees_groups(membership: Membership, topic: str, broker: Peer) -> None:
    group = membership.group
    with at_work(membership), AiokafkaClient(broker.bootstrap).admin() as client:
        admin: Any = client
        assert (group, "consumer") in admin._run(admin._admin.list_consumer_groups())
        (described,) = admin._run(admin._admin.describe_consumer_groups([group]))
        ((code, name, state, protocol_type, protocol, members),) = described.groups
        assert (code, name, state, protocol_type, protocol) == (0, group, "Stable", "consumer", "range")
        assert len(members) == 1
        offsets = admin._run(admin._admin.list_consumer_group_offsets(group))
        assert {(each.topic, each.partition): at.offset for each, at in offsets.items()} == {(topic, 0): COUNT}


def test_a_topic_that_is_deleted_takes_its_offsets_along(
    membership: Membership, topic: str, confluent: ConfluentClient, groups: Groups
) -> None:
    with at_work(membership):
        pass
    assert groups.offsets(membership.group) == {(topic, 0): COUNT}
    with confluent.admin() as admin:
        admin.delete_topic(topic)
    wait_until(lambda: groups.offsets(membership.group) == {}, "the offsets of a deleted topic are kept")
