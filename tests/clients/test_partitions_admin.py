"""What only some admin clients can ask: elections, reassignments, log directories, pages of partitions, producers."""

from __future__ import annotations

from uuid import UUID

import pytest
from confluent_kafka import ElectionType, TopicPartition

from ottla.base.error_codes import ErrorCode
from support.clients.confluent_client import ConfluentClient, result
from support.clients.dialect import ProducerSettings
from support.clients.expectations import numbered
from support.clients.kafka_python_client import KafkaPythonClient
from support.waiting import wait_until


def test_confluent_elects_no_leader_where_the_preferred_one_leads(confluent: ConfluentClient, topic: str) -> None:
    with confluent.admin() as admin:
        admin.create_topic(topic, partitions=2)
        asked = [TopicPartition(topic, partition) for partition in (0, 1, 7)]
        for kind in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
            answered = result(admin.library.elect_leaders(kind, asked))
            codes = {which.partition: error and error.code() for which, error in answered.items()}
            assert codes == {
                0: ErrorCode.ELECTION_NOT_NEEDED,
                1: ErrorCode.ELECTION_NOT_NEEDED,
                7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }


@pytest.mark.parametrize("election_type", [0, 1])
def test_kafka_python_elects_no_leader_where_the_preferred_one_leads(
    election_type: int, kafka_python: KafkaPythonClient, topic: str
) -> None:
    with kafka_python.admin() as admin:
        admin.create_topic(topic, partitions=2)
        answer = admin.library.elect_leaders(election_type, {topic: [0, 1]}, raise_errors=False)
    ((named, partitions),) = ((each.topic, each.partition_result) for each in answer.replica_election_results)
    assert named == topic
    assert {each.partition_id: each.error_code for each in partitions} == {
        0: ErrorCode.ELECTION_NOT_NEEDED,
        1: ErrorCode.ELECTION_NOT_NEEDED,
    }


def test_reassignments_on_one_broker(kafka_python: KafkaPythonClient, topic: str) -> None:
    with kafka_python.admin() as admin:
        admin.create_topic(topic)
        me = admin.cluster().controller
        assert admin.reassign(topic, 0, [me]) == ErrorCode.NONE
        assert admin.reassign(topic, 0, [me, 999]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert admin.reassign(topic, 0, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert admin.reassign(topic, 5, [me]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        wait_until(lambda: admin.library.list_partition_reassignments() == {}, "a reassignment does not end")
        assert admin.describe_topic(topic)[0].replicas == (me,)


def test_log_directories_tell_what_is_stored(kafka_python: KafkaPythonClient, topic: str) -> None:
    with kafka_python.admin() as admin:
        admin.create_topic(topic, partitions=2)
        kafka_python.produce(topic, numbered(100, partition=1))
        assert admin.stored_bytes(topic, 0) == 0
        assert admin.stored_bytes(topic, 1) > 100 * len("value 12key 12")
        ((everything,),) = (each["log_dirs"] for each in admin.library.describe_log_dirs())
    assert everything["error_code"] == ErrorCode.NONE
    assert everything["total_bytes"] > everything["usable_bytes"] > 0
    assert topic in {each["name"] for each in everything["topics"]}


def test_a_directory_that_is_not_there(kafka_python: KafkaPythonClient, topic: str) -> None:
    with kafka_python.admin() as admin:
        admin.create_topic(topic)
        me = admin.cluster().controller
        answered = admin.library.alter_replica_log_dirs({(topic, 0, me): "/no/such/directory"})
    assert [error.errno for error in answered.values()] == [ErrorCode.LOG_DIR_NOT_FOUND]


def test_partitions_are_described_in_pages(kafka_python: KafkaPythonClient, topic: str) -> None:
    with kafka_python.admin() as admin:
        admin.create_topic(topic, partitions=5)
        wait_until(lambda: len(admin.describe_topic(topic)) == 5, "not all partitions are there")
        me = admin.cluster().controller
        cursor: dict[str, object] | None = None
        pages: list[list[int]] = []
        while not pages or cursor is not None:
            answer = admin.library.describe_topic_partitions([topic], response_partition_limit=2, cursor=cursor)
            cursor = answer["next_cursor"]
            (described,) = answer["topics"]
            assert (described["name"], described["error_code"]) == (topic, ErrorCode.NONE)
            assert all(each["leader_id"] == me for each in described["partitions"])
            pages.append([each["partition_index"] for each in described["partitions"]])
    assert pages == [[0, 1], [2, 3], [4]]


def test_a_topic_is_found_and_deleted_by_its_id(kafka_python: KafkaPythonClient, topic: str) -> None:
    with kafka_python.admin() as admin:
        admin.create_topic(topic)
        (by_name,) = admin.library.describe_topics([topic])
        topic_id = UUID(by_name["topic_id"])
        (by_id,) = admin.library.describe_topics([topic_id])
        assert by_id == by_name
        admin.library.delete_topics([topic_id])
        wait_until(lambda: topic not in admin.topics(), "the deleted topic is still listed")


def test_the_producers_of_a_partition_are_described(kafka_python: KafkaPythonClient, topic: str) -> None:
    settings = ProducerSettings(idempotent=True)
    kafka_python.produce(topic, numbered(3), settings)
    kafka_python.produce(topic, numbered(5), settings)
    with kafka_python.admin() as admin:
        producers = admin.producers(topic, 0)
    assert len({each.producer_id for each in producers}) == 2
    assert sorted((each.producer_epoch, each.last_sequence) for each in producers) == [(0, 2), (0, 4)]
    # No transaction is open.
    assert {each.current_transaction_start_offset for each in producers} == {-1}
