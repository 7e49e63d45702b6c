"""Our admin and topics: made, looked at, given partitions, deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.client.administer import (
    Admin,
    AsyncAdmin,
    NewPartitions,
    NewTopic,
    Operation,
    SomeRefusedError,
    TopicDescription,
)
from ottla.client.errors import ClientError
from support.clients.peers import Peer
from support.waiting import wait_until


@pytest.fixture
def admin(strict_broker: Peer) -> Iterator[Admin]:
    with Admin(bootstrap_servers=strict_broker.bootstrap) as admin:
        yield admin


def names(admin: Admin, **options: bool) -> set[str]:
    return {topic.name for topic in admin.list_topics(**options)}


def test_a_topic_from_its_making_to_its_end(admin: Admin, topic: str) -> None:
    (me,) = (broker.broker_id for broker in admin.describe_cluster().brokers)
    created = admin.create_topics([NewTopic(topic, 3, 1, configs={"retention.ms": "5000"})])[topic]
    assert (created.name, created.partitions, created.replication_factor) == (topic, 3, 1)
    assert created.configs is not None
    assert created.configs["retention.ms"].value == "5000"
    # It can be used at once.
    described = admin.describe_topics([topic])[topic]
    assert (described.name, described.topic_id, described.is_internal) == (topic, created.topic_id, False)
    assert [(one.index, one.leader_id, one.replicas, one.in_sync, one.offline) for one in described.partitions] == [
        (index, me, (me,), (me,), ()) for index in range(3)
    ]
    assert described.replication_factor == 1
    assert topic in names(admin)
    admin.create_partitions({topic: 5})
    assert len(admin.describe_topics([topic])[topic].partitions) == 5
    admin.delete_topics([topic])
    wait_until(lambda: topic not in names(admin), "the deleted topic is still listed")


def test_partial_failures_are_reported_with_the_successes(admin: Admin, topic: str) -> None:
    other = f"{topic}-2"
    admin.create_topics([NewTopic(topic)])
    with pytest.raises(SomeRefusedError) as refused:
        admin.create_topics([NewTopic(topic), NewTopic(other), NewTopic("no/slash"), NewTopic(f"{topic}-3", 1, 77)])
    error = refused.value
    assert {name: one.code for name, one in error.errors.items()} == {
        topic: ErrorCode.TOPIC_ALREADY_EXISTS,
        "no/slash": ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"{topic}-3": ErrorCode.INVALID_REPLICATION_FACTOR,
    }
    assert [(name, one.name) for name, one in error.results.items()] == [(other, other)]
    assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert str(error).count("\n") == 2
    with pytest.raises(SomeRefusedError) as refused:
        admin.delete_topics([f"{topic}-missing", other])
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refused.value.results == {other: None}
    with pytest.raises(SomeRefusedError) as refused:
        admin.create_partitions({topic: 1, f"{topic}-missing": 2})
    assert {name: one.code for name, one in refused.value.errors.items()} == {
        topic: ErrorCode.INVALID_PARTITIONS,
        f"{topic}-missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    with pytest.raises(ClientError, match="is listed twice"):
        admin.create_topics([NewTopic(f"{topic}-4"), NewTopic(f"{topic}-4", 2)])
    with pytest.raises(SomeRefusedError) as refused:
        admin.describe_topics([topic, f"{topic}-missing"])
    assert list(refused.value.results) == [topic]


def test_only_checking_changes_nothing(admin: Admin, topic: str) -> None:
    checked = admin.create_topics([NewTopic(topic, 4)], validate_only=True)[topic]
    assert checked.partitions == 4
    assert topic not in names(admin)
    admin.create_topics([NewTopic(topic, 1)])
    admin.create_partitions({topic: 9}, validate_only=True)
    assert len(admin.describe_topics([topic])[topic].partitions) == 1
    with pytest.raises(SomeRefusedError, match="INVALID_CONFIG"):
        admin.create_topics([NewTopic(f"{topic}-2", configs={"retention.ms": "soon"})], validate_only=True)


def test_replicas_are_assigned_by_hand(admin: Admin, topic: str) -> None:
    (me,) = (broker.broker_id for broker in admin.describe_cluster().brokers)
    admin.create_topics([NewTopic(topic, assignments={0: [me], 1: [me]})])
    admin.create_partitions({topic: NewPartitions(3, [[me]])})
    assert len(admin.describe_topics([topic])[topic].partitions) == 3
    with pytest.raises(SomeRefusedError, match="INVALID_REPLICA_ASSIGNMENT"):
        admin.create_partitions({topic: NewPartitions(4, [[me, me]])})


def test_topics_are_found_by_their_ids(admin: Admin, topic: str) -> None:
    topic_id = admin.create_topics([NewTopic(topic, 2)])[topic].topic_id
    assert topic_id is not None
    described = admin.describe_topics_by_id([topic_id])[topic_id]
    assert (described.name, len(described.partitions)) == (topic, 2)
    admin.delete_topics_by_id([topic_id])
    wait_until(lambda: topic not in names(admin), "the deleted topic is still listed")
    for ask in (admin.describe_topics_by_id, admin.delete_topics_by_id):
        with pytest.raises(SomeRefusedError) as refused:
            ask([topic_id])
        # Kafka with ZooKeeper has the other code where it has just deleted the topic.
        codes = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert refused.value.errors[topic_id].code in codes


def test_partitions_come_in_pages_and_all_of_them(admin: Admin, topic: str) -> None:
    wanted = {f"{topic}-{number}": partitions for number, partitions in enumerate((5, 1, 4))}
    admin.create_topics(NewTopic(name, partitions) for name, partitions in wanted.items())

    def shape(topics: dict[str, TopicDescription]) -> dict[str, list[int]]:
        return {name: [one.index for one in each.partitions] for name, each in topics.items()}

    expected = {name: list(range(partitions)) for name, partitions in wanted.items()}
    for page_size in (1, 2, 3, 2000):
        assert shape(admin.describe_topics(wanted, page_size=page_size)) == expected


def test_authorized_operations_are_returned_on_request(admin: Admin, topic: str) -> None:
    admin.create_topics([NewTopic(topic)])
    described = admin.describe_topics([topic], include_authorized_operations=True)[topic]
    assert described.authorized_operations is not None
    assert {Operation.READ, Operation.WRITE, Operation.DELETE} <= described.authorized_operations
    assert Operation.CLUSTER_ACTION not in described.authorized_operations


def test_internal_topics_are_listed_only_if_asked_for(admin: Admin) -> None:
    with pytest.raises(SomeRefusedError, match="GROUP_ID_NOT_FOUND"):
        admin.describe_consumer_groups(["nobody"])  # which makes the topic of offsets
    assert "__consumer_offsets" not in names(admin)
    assert "__consumer_offsets" in names(admin, include_internal=True)


def test_the_same_from_asyncio(strict_broker: Peer, topic: str) -> None:
    async def scenario() -> None:
        async with AsyncAdmin({"bootstrap.servers": strict_broker.bootstrap}) as admin:
            made = [f"{topic}-{number}" for number in range(3)]
            await asyncio.gather(*(admin.create_topics([NewTopic(name)]) for name in made))
            assert set(await admin.describe_topics(made)) == set(made)
            assert set(made) <= {one.name for one in await admin.list_topics()}

    asyncio.run(asyncio.wait_for(scenario(), 60))
