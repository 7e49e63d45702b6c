"""Our admin on two brokers of Apache Kafka 3.9.1: what one broker alone cannot show."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat.own_client.test_leader_moves import IDS, TwoBrokers, two_brokers
from ottla import Admin, TopicPartition
from ottla.client.administer import (
    LATEST,
    ConfigResource,
    ElectionType,
    NewTopic,
    PartitionDescription,
    Replica,
    SomeRefusedError,
)
from support.waiting import wait_until

pytestmark = pytest.mark.compat

TOPIC = "moving"
PARTITION = TopicPartition(TOPIC, 0)
GROUPS = [f"group-{number}" for number in range(5)]
FIRST, SECOND = IDS


def described(admin: Admin) -> PartitionDescription:
    return admin.describe_topics([TOPIC])[TOPIC].partitions[0]


def test_what_takes_more_than_one_broker(tmp_path: Path) -> None:
    with two_brokers(tmp_path) as cluster, Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        assert [one.broker_id for one in admin.describe_cluster().brokers] == list(IDS)
        admin.create_topics([NewTopic(TOPIC, assignments={0: [FIRST], 1: [SECOND]})])
        _each_broker_is_asked_for_what_it_has(admin)
        _a_partition_is_moved_and_gets_another_leader(admin)
        _groups_are_found_at_their_coordinators(admin)
        _a_broker_that_is_gone_is_told(cluster, admin)


def _each_broker_is_asked_for_what_it_has(admin: Admin) -> None:
    other = TopicPartition(TOPIC, 1)
    assert {one: at.offset for one, at in admin.list_offsets({PARTITION: LATEST, other: LATEST}).items()} == {
        PARTITION: 0,
        other: 0,
    }
    assert admin.delete_records({PARTITION: None, other: None}) == {PARTITION: 0, other: 0}
    places = admin.describe_replica_log_dirs(Replica(one, broker_id) for one in (PARTITION, other) for broker_id in IDS)
    assert {replica for replica, place in places.items() if place.path} == {
        Replica(PARTITION, FIRST),
        Replica(other, SECOND),
    }
    resources = [*map(ConfigResource.broker, IDS)]
    configs = admin.describe_configs(resources, keys=["broker.id"])
    assert [configs[one]["broker.id"].value for one in resources] == [*map(str, IDS)]


def _a_partition_is_moved_and_gets_another_leader(admin: Admin) -> None:
    with pytest.raises(SomeRefusedError, match="INVALID_REPLICA_ASSIGNMENT"):
        admin.alter_partition_reassignments({PARTITION: [FIRST, 77]})
    admin.alter_partition_reassignments({PARTITION: [SECOND, FIRST]})
    wait_until(lambda: not admin.list_partition_reassignments([PARTITION]), "the move does not end")
    wait_until(lambda: set(described(admin).in_sync) == set(IDS), "the new replica does not catch up")
    assert (described(admin).replicas, described(admin).leader_id) == ((SECOND, FIRST), FIRST)
    assert admin.elect_leaders(ElectionType.PREFERRED, [PARTITION]) == {PARTITION: True}
    wait_until(lambda: described(admin).leader_id == SECOND, "the elected one does not lead")
    assert admin.elect_leaders(ElectionType.PREFERRED, [PARTITION]) == {PARTITION: False}
    assert admin.list_offsets({PARTITION: LATEST})[PARTITION].offset == 0


def _groups_are_found_at_their_coordinators(admin: Admin) -> None:
    for group in GROUPS:
        admin.alter_consumer_group_offsets(group, {PARTITION: 0})
    listed = admin.list_groups()
    assert [one.group_id for one in listed] == sorted(GROUPS)
    assert {name: one.coordinator_id for name, one in admin.describe_consumer_groups(GROUPS).items()} == {
        one.group_id: one.coordinator_id for one in listed
    }
    admin.delete_consumer_groups(GROUPS)
    assert admin.list_groups() == []


def _a_broker_that_is_gone_is_told(cluster: TwoBrokers, admin: Admin) -> None:
    cluster.kill(SECOND)
    wait_until(lambda: len(admin.describe_cluster().brokers) == 1, "a dead broker is still listed")
    wait_until(lambda: described(admin).leader_id == FIRST, "nobody leads")
    assert described(admin).offline == (SECOND,)
    assert admin.list_offsets({PARTITION: LATEST})[PARTITION].offset == 0
    admin.create_topics([NewTopic("later", 1, 1)])  # whoever was the controller
