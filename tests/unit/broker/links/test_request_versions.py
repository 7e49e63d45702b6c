"""Versions that depend on what a request says."""

from __future__ import annotations

from ottla.base.ids import ZERO_UUID, Uuid
from ottla.broker.links.request_versions import as_of, highest_version
from ottla.wire.codec import decode, encode
from ottla.wire.messages.alter_partition import (
    AlterPartitionBrokerState,
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionTopic,
)
from ottla.wire.messages.fetch import FetchReplicaState, FetchRequest, FetchTopic, ForgottenTopic

ID = Uuid(bytes(range(16)))


def alter_partition(topic_id: Uuid) -> AlterPartitionRequest:
    members = [AlterPartitionBrokerState(broker_id=1, broker_epoch=10), AlterPartitionBrokerState(broker_id=2)]
    partition = AlterPartitionPartition(partition_index=0, leader_epoch=3, new_isr_with_epochs=members)
    topic = AlterPartitionTopic(topic_name="events", topic_id=topic_id, partitions=[partition])
    return AlterPartitionRequest(broker_id=1, topics=[topic])


def test_topics_with_ids_need_no_limit() -> None:
    assert highest_version(alter_partition(ID)) is None
    assert highest_version(FetchRequest(topics=[FetchTopic(topic="events", topic_id=ID)])) is None
    assert highest_version(FetchRequest()) is None


def test_topics_without_ids_are_named() -> None:
    assert highest_version(alter_partition(ZERO_UUID)) == 1
    named = FetchTopic(topic="events", topic_id=ZERO_UUID)
    assert highest_version(FetchRequest(topics=[FetchTopic(topic_id=ID), named])) == 12
    forgotten = ForgottenTopic(topic="events", topic_id=ZERO_UUID, partitions=[0])
    assert highest_version(FetchRequest(forgotten_topics_data=[forgotten])) == 12


def test_an_older_alter_partition_lists_the_isr_without_epochs() -> None:
    request = alter_partition(ZERO_UUID)
    read = decode(AlterPartitionRequest, 1, encode(as_of(request, 1), 1))
    assert read.topics[0].topic_name == "events"
    assert read.topics[0].partitions[0].new_isr == [1, 2]
    assert len(request.topics[0].partitions[0].new_isr_with_epochs) == 2, "the given request is changed"


def test_an_older_fetch_has_its_replica_id_elsewhere() -> None:
    request = FetchRequest(replica_state=FetchReplicaState(replica_id=2, replica_epoch=77))
    read = decode(FetchRequest, 12, encode(as_of(request, 12), 12))
    assert read.replica_id == 2
    assert request.replica_state is not None
    assert as_of(request, 15) is request
