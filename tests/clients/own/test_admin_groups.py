"""Our admin and groups, whose members are other clients'."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.administer import (
    Admin,
    GroupListing,
    GroupState,
    GroupType,
    NewTopic,
    OffsetAndMetadata,
    Operation,
    SomeRefusedError,
)
from support.clients.confluent_client import ConfluentClient
from support.clients.dialect import Record
from support.clients.peers import WITH_ZOOKEEPER, Peer
from support.groups.consumers import Consumed, GroupConsumer, Membership, join
from support.groups.flavours import CONFLUENT, Flavour

COUNT = 10
PEER = os.environ.get("OTTLA_TEST_PEER")


@pytest.fixture
def broker(group_broker: Peer) -> Peer:
    return group_broker


@pytest.fixture
def admin(broker: Peer) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        yield admin


# Kafka with ZooKeeper does not speak the newer protocol.
@pytest.fixture(params=[CONFLUENT[0]] + [CONFLUENT[3]] * (PEER != WITH_ZOOKEEPER), ids=str)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    chosen: Flavour = request.param
    return chosen


@pytest.fixture
def membership(admin: Admin, broker: Peer, flavour: Flavour, topic: str, confluent: ConfluentClient) -> Membership:
    """In a group of its own, subscribed to a topic of two partitions, the first of which has records."""
    admin.create_topics([NewTopic(topic, 2)])
    confluent.produce(topic, [Record(b"%d" % at) for at in range(COUNT)])
    return Membership(broker.bootstrap, f"group-{topic}", flavour, [topic])


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


def listed(admin: Admin, group: str, **filters: set[GroupState] | set[GroupType]) -> GroupListing | None:
    found = [one for one in admin.list_groups(**filters) if one.group_id == group]  # type: ignore[arg-type]
    return found[0] if found else None


def test_a_group_is_listed_and_described_from_its_first_member_to_its_end(
    admin: Admin, membership: Membership, topic: str
) -> None:
    group = membership.group
    kind = GroupType(membership.flavour.protocol)
    assert listed(admin, group) is None
    with at_work(membership):
        found = listed(admin, group)
        assert found is not None
        assert (found.state, found.type, found.protocol_type) == (GroupState.STABLE, kind, "consumer")
        assert not found.is_simple
        assert listed(admin, group, states={GroupState.EMPTY}) is None
        assert listed(admin, group, states={GroupState.STABLE}, types={kind}) == found
        described = admin.describe_consumer_groups([group], include_authorized_operations=True)[group]
        assert (described.type, described.state) == (kind, GroupState.STABLE)
        assert described.assignor == membership.flavour.strategy
        assert described.coordinator_id == found.coordinator_id
        assert described.authorized_operations is not None
        assert Operation.DELETE in described.authorized_operations
        (member,) = described.members
        assert (member.client_id, member.host, member.instance_id) == ("rdkafka", "/127.0.0.1", None)
        assert member.assignment == (TopicPartition(topic, 0), TopicPartition(topic, 1))
        assert member.subscribed_topics == (topic,)
        if kind is GroupType.CONSUMER:
            assert member.target_assignment == member.assignment
            assert member.epoch == described.epoch == described.assignment_epoch
        with pytest.raises(SomeRefusedError, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups([group])
    found = listed(admin, group)
    assert found is not None
    assert (found.state, found.type) == (GroupState.EMPTY, kind)
    admin.delete_consumer_groups([group])
    assert listed(admin, group) is None
    for ask in (admin.describe_consumer_groups, admin.describe_classic_groups, admin.delete_consumer_groups):
        with pytest.raises(SomeRefusedError) as refused:
            ask([group])
        assert refused.value.errors[group].code is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_are_altered_while_nobody_is_there(admin: Admin, membership: Membership, topic: str) -> None:
    group = membership.group
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with at_work(membership):
        with pytest.raises(SomeRefusedError) as refused:
            admin.alter_consumer_group_offsets(group, {first: 3})
        assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
        assert "the group has members" in str(refused.value)
        with pytest.raises(SomeRefusedError) as refused:
            admin.delete_consumer_group_offsets(group, [first])
        assert refused.value.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert {one: at.offset for one, at in admin.list_consumer_group_offsets(group).items()} == {first: COUNT}
    admin.alter_consumer_group_offsets(group, {first: 3, second: OffsetAndMetadata(0, "from the start", 0)})
    assert admin.list_consumer_group_offsets(group) == {
        first: OffsetAndMetadata(3, "", None),
        second: OffsetAndMetadata(0, "from the start", 0),
    }
    assert list(admin.list_consumer_group_offsets(group, [second, TopicPartition(topic, 5)])) == [second]
    assert list(admin.list_consumer_group_offsets(group, [first], require_stable=True)) == [first]
    consumer = join(membership)
    try:
        seen: list[int] = []
        while len(seen) < COUNT - 3:
            seen += [event.offset for event in consumer.poll(0.1) if isinstance(event, Consumed)]
        assert seen == list(range(3, COUNT))
    finally:
        consumer.close()
    admin.delete_consumer_group_offsets(group, [second])
    assert second not in admin.list_consumer_group_offsets(group)


def test_offsets_of_a_group_that_never_had_members(admin: Admin, topic: str) -> None:
    admin.create_topics([NewTopic(topic)])
    here, absent = TopicPartition(topic, 0), TopicPartition(f"{topic}-absent", 0)
    group = f"group-{topic}"
    assert admin.list_consumer_group_offsets(group) == {}
    with pytest.raises(SomeRefusedError) as refused:
        admin.alter_consumer_group_offsets(group, {here: 5, absent: 5})
    assert refused.value.errors.keys() == {absent}
    assert refused.value.results == {here: None}
    assert admin.list_consumer_group_offsets(group) == {here: OffsetAndMetadata(5, "", None)}
    found = listed(admin, group)
    assert found is not None
    assert (found.state, found.type, found.is_simple) == (GroupState.EMPTY, GroupType.CLASSIC, True)


@pytest.mark.parametrize("flavour", [CONFLUENT[0]], ids=str)
def test_static_members_are_removed_by_name_or_all_at_once(admin: Admin, membership: Membership) -> None:
    def members(group: str) -> list[str | None]:
        return [one.instance_id for one in admin.describe_classic_groups([group])[group].members]

    one, another = membership.group, f"{membership.group}-2"
    for group in (one, another):
        with at_work(replace(membership, group=group, instance="stays", session_ms=60_000)):
            pass
        assert members(group) == ["stays"]  # it left without a word, as static members do
    with pytest.raises(SomeRefusedError) as refused:
        admin.remove_members_from_consumer_group(one, ["nobody"])
    assert refused.value.errors["nobody"].code is ErrorCode.UNKNOWN_MEMBER_ID
    admin.remove_members_from_consumer_group(one, ["stays"])
    assert members(one) == []
    admin.remove_members_from_consumer_group(another)
    assert members(another) == []
