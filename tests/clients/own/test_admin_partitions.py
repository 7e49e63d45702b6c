"""Our admin, partitions and brokers: offsets, records, producers, elections, moves, log directories."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.administer import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    MAX_TIMESTAMP,
    Admin,
    ElectionType,
    ListedOffset,
    NewTopic,
    Operation,
    Place,
    Replica,
    SomeRefusedError,
)
from ottla.client.errors import ClosedError
from support.clients.confluent_client import ConfluentClient
from support.clients.dialect import ProducerSettings, Record
from support.clients.expectations import START_MS
from support.clients.peers import Peer
from support.waiting import wait_until

COUNT = 10


@pytest.fixture
def admin(broker: Peer) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        yield admin


@pytest.fixture
def me(admin: Admin) -> int:
    """The id of the only broker."""
    (only,) = admin.describe_cluster().brokers
    return only.broker_id


@pytest.fixture
def full(admin: Admin, confluent: ConfluentClient, topic: str) -> TopicPartition:
    """A partition with records, whose highest timestamp is not the last; the next one is empty."""
    admin.create_topics([NewTopic(topic, 2)])
    times = [*range(0, 900, 100), 50]
    confluent.produce(
        topic,
        [Record(b"%d" % at, timestamp_ms=START_MS + at) for at in times],
        ProducerSettings(idempotent=True),
    )
    return TopicPartition(topic, 0)


def test_offsets_at_all_places(admin: Admin, full: TopicPartition) -> None:
    def at(place: Place) -> ListedOffset:
        return admin.list_offsets({full: place})[full]

    assert at(EARLIEST).offset == at(EARLIEST_LOCAL).offset == 0
    assert at(LATEST).offset == COUNT
    assert at(MAX_TIMESTAMP) == ListedOffset(8, START_MS + 800, 0)
    assert at(Place.at_time(START_MS + 201)) == ListedOffset(3, START_MS + 300, 0)
    assert at(Place.at_time(START_MS + 801)) == ListedOffset(None, None, None)
    empty = TopicPartition(full.topic, 1)
    both = admin.list_offsets({full: LATEST, empty: EARLIEST}, isolation_level="read_committed")
    assert {partition: one.offset for partition, one in both.items()} == {full: COUNT, empty: 0}


def test_offsets_of_what_is_not_there(admin: Admin, full: TopicPartition) -> None:
    beyond, absent = TopicPartition(full.topic, 2), TopicPartition(f"{full.topic}-absent", 0)
    with pytest.raises(SomeRefusedError) as refused:
        admin.list_offsets({full: LATEST, beyond: LATEST, absent: LATEST})
    assert {one: error.code for one, error in refused.value.errors.items()} == {
        beyond: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        absent: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert "the topic has partitions 0 to 1" in str(refused.value)
    assert refused.value.results[full].offset == COUNT
    with pytest.raises(ValueError, match="'serializable' is not an isolation level"):
        admin.list_offsets({full: LATEST}, isolation_level="serializable")


def test_records_are_deleted_from_the_beginning(admin: Admin, full: TopicPartition) -> None:
    assert admin.delete_records({full: 4}) == {full: 4}
    assert admin.list_offsets({full: EARLIEST})[full].offset == 4
    with pytest.raises(SomeRefusedError, match="OFFSET_OUT_OF_RANGE"):
        admin.delete_records({full: COUNT + 1})
    assert admin.delete_records({full: None}) == {full: COUNT}
    assert admin.list_offsets({full: EARLIEST})[full].offset == COUNT


def test_the_producers_of_a_partition_are_described(admin: Admin, full: TopicPartition, me: int) -> None:
    empty = TopicPartition(full.topic, 1)
    found = admin.describe_producers([full, empty])
    assert found[empty] == []
    (producer,) = found[full]
    assert (producer.producer_epoch, producer.last_sequence) == (0, COUNT - 1)
    assert producer.current_transaction_start_offset is None
    assert admin.describe_producers([full], broker_id=me) == {full: [producer]}


def test_elections_where_the_right_one_leads(admin: Admin, full: TopicPartition) -> None:
    beyond = TopicPartition(full.topic, 7)
    for kind in ElectionType:
        assert admin.elect_leaders(kind, [full]) == {full: False}
        with pytest.raises(SomeRefusedError) as refused:
            admin.elect_leaders(kind, [full, beyond])
        assert refused.value.errors[beyond].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert refused.value.results == {full: False}
    assert full not in admin.elect_leaders(ElectionType.PREFERRED)


def test_moves_between_brokers(admin: Admin, full: TopicPartition, me: int) -> None:
    admin.alter_partition_reassignments({full: [me]})
    wait_until(lambda: admin.list_partition_reassignments() == {}, "a reassignment does not end")
    assert admin.list_partition_reassignments([full]) == {}
    assert admin.describe_topics([full.topic])[full.topic].partitions[0].replicas == (me,)
    other = TopicPartition(full.topic, 1)
    with pytest.raises(SomeRefusedError) as refused:
        admin.alter_partition_reassignments({full: [me, 999], other: None})
    assert {one: error.code for one, error in refused.value.errors.items()} == {
        full: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        other: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    }


def test_log_directories(admin: Admin, full: TopicPartition, me: int) -> None:
    (directories,) = admin.describe_log_dirs().values()
    (directory,) = directories.values()
    assert directory.error is None
    assert directory.total_bytes is not None
    assert directory.usable_bytes is not None
    assert directory.total_bytes > directory.usable_bytes > 0
    assert directory.replicas[full].size > 0
    assert not directory.replicas[full].is_future
    some = admin.describe_log_dirs([me], partitions=[full])[me]
    assert {path: set(one.replicas) for path, one in some.items()} == {directory.path: {full}}
    here, nowhere = Replica(full, me), Replica(TopicPartition(full.topic, 9), me)
    places = admin.describe_replica_log_dirs([here, nowhere])
    assert (places[here].path, places[here].future_path) == (directory.path, None)
    assert places[here].size == directory.replicas[full].size
    assert places[nowhere].path is None
    admin.alter_replica_log_dirs({here: directory.path})
    with pytest.raises(SomeRefusedError) as refused:
        admin.alter_replica_log_dirs({here: "/no/such/directory"})
    assert refused.value.errors[here].code is ErrorCode.LOG_DIR_NOT_FOUND


def test_the_cluster_and_what_its_brokers_can_do(admin: Admin, broker: Peer, me: int) -> None:
    cluster = admin.describe_cluster()
    assert cluster.cluster_id
    assert cluster.controller_id == me
    assert cluster.authorized_operations is None
    (only,) = cluster.brokers
    assert f"{only.host}:{only.port}" == broker.bootstrap
    assert not only.is_fenced
    told = admin.describe_cluster(include_authorized_operations=True).authorized_operations
    assert told is not None
    assert Operation.CREATE in told
    assert Operation.READ not in told
    versions = admin.api_versions(me)
    assert versions == admin.api_versions()
    assert versions["Metadata"].highest >= 12
    assert versions["ApiVersions"].lowest == 0
    features = admin.describe_features(me)
    assert set(features.finalized) <= set(features.supported) | {"metadata.version", "kraft.version"}


def test_after_the_end_everything_is_refused(broker: Peer) -> None:
    admin = Admin(bootstrap_servers=broker.bootstrap)
    assert admin.describe_cluster().brokers
    admin.close()
    admin.close()
    with pytest.raises(ClosedError):
        admin.list_topics()
