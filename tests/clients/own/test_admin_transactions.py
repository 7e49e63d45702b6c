"""Our admin and transactions: of a producer at work, of one that is gone, and one that no coordinator knows."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import confluent_kafka
import pytest

from ottla import AsyncAdmin, Producer
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.administer import LATEST, Admin, NewTopic, SomeRefusedError, TransactionState
from ottla.client.errors import ArgumentError, RefusedError, UnsupportedApiError
from support.clients.hanging import leave_hanging
from support.clients.peers import OTTLA, WITH_ZOOKEEPER, Peer, chosen_peer
from support.waiting import wait_until

WAIT_S = 30.0
TIMEOUT_MS = 45_000


@pytest.fixture
def admin(broker: Peer) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        yield admin


@pytest.fixture
def partition(admin: Admin, topic: str) -> TopicPartition:
    """The first of two."""
    admin.create_topics([NewTopic(topic, 2)])
    return TopicPartition(topic, 0)


@pytest.fixture
def transactional_id() -> str:
    return f"payments-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def producer(broker: Peer, transactional_id: str, partition: TopicPartition) -> confluent_kafka.Producer:
    """With an open transaction in the first partition."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": TIMEOUT_MS,
        }
    )
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(partition.topic, b"paid", partition=partition.partition)
    producer.flush(WAIT_S)
    return producer


def stable_offset(admin: Admin, partition: TopicPartition) -> int | None:
    return admin.list_offsets({partition: LATEST}, isolation_level="read_committed")[partition].offset


def test_an_open_transaction_and_its_end(
    admin: Admin, producer: confluent_kafka.Producer, transactional_id: str, partition: TopicPartition
) -> None:
    described = admin.describe_transactions([transactional_id])[transactional_id]
    assert described.state is TransactionState.ONGOING
    assert described.partitions == (partition,)
    assert described.timeout_ms == TIMEOUT_MS
    assert described.start_time_ms is not None
    assert not described.is_two_phase
    (writer,) = admin.describe_producers([partition])[partition]
    assert (writer.producer_id, writer.producer_epoch) == (described.producer_id, described.producer_epoch)
    assert writer.current_transaction_start_offset == stable_offset(admin, partition) == 0
    (listed,) = admin.list_transactions(producer_ids=[described.producer_id])
    assert (listed.transactional_id, listed.state) == (transactional_id, TransactionState.ONGOING)
    assert listed.coordinator_id == described.coordinator_id
    producer.commit_transaction(WAIT_S)

    def is_over() -> bool:
        return not admin.describe_transactions([transactional_id])[transactional_id].partitions

    wait_until(is_over, "the transaction does not end")
    ended = admin.describe_transactions([transactional_id])[transactional_id]
    assert ended.state is TransactionState.COMPLETE_COMMIT
    assert stable_offset(admin, partition) == 2


def test_filters(admin: Admin, producer: confluent_kafka.Producer, transactional_id: str) -> None:
    assert producer  # whose transaction is open

    def ids(**filters: object) -> list[str]:
        return [one.transactional_id for one in admin.list_transactions(**filters)]  # type: ignore[arg-type]

    assert transactional_id in ids()
    assert transactional_id in ids(states=[TransactionState.ONGOING, TransactionState.EMPTY])
    assert transactional_id not in ids(states=[TransactionState.COMPLETE_ABORT])
    assert ids(producer_ids=[2**40]) == []
    assert transactional_id in ids(min_duration=0.0)
    assert transactional_id not in ids(min_duration=3600.0)
    if chosen_peer() == WITH_ZOOKEEPER:
        with pytest.raises(UnsupportedApiError, match="too old to list transactions by a pattern"):
            ids(pattern="pay.*")
    else:
        assert ids(pattern=f"{transactional_id[:-1]}.") == [transactional_id]
        assert ids(pattern=transactional_id[:-1]) == []  # all of the id has to match
        with pytest.raises(RefusedError) as refused:
            ids(pattern="(")
        assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    with pytest.raises(ArgumentError, match="'Unknown'"):
        ids(states=[TransactionState.UNKNOWN])
    with pytest.raises(ArgumentError, match="min_duration"):
        ids(min_duration=-1.0)


def test_ids_that_nobody_used(admin: Admin, transactional_id: str) -> None:
    with pytest.raises(SomeRefusedError) as refused:
        admin.describe_transactions([transactional_id])
    assert refused.value.errors[transactional_id].code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    fenced = admin.fence_producers([transactional_id])[transactional_id]
    assert fenced.producer_epoch == 0


def test_a_fenced_producer_cannot_commit(
    admin: Admin, producer: confluent_kafka.Producer, transactional_id: str, partition: TopicPartition
) -> None:
    before = admin.describe_transactions([transactional_id])[transactional_id]
    fenced = admin.fence_producers([transactional_id])[transactional_id]
    assert fenced.producer_id == before.producer_id
    assert fenced.producer_epoch > before.producer_epoch
    wait_until(lambda: stable_offset(admin, partition) == 2, "the transaction is not aborted")
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        producer.commit_transaction(WAIT_S)
    assert caught.value.args[0].fatal()


def test_a_hanging_transaction_is_found_and_aborted(
    admin: Admin, broker: Peer, producer: confluent_kafka.Producer, partition: TopicPartition
) -> None:
    assert producer  # whose transaction is open as well, and no part of what hangs
    producer_id = 900_000 + uuid.uuid4().int % 90_000
    leave_hanging(admin, broker.bootstrap, partition, producer_id)
    leave_hanging(admin, broker.bootstrap, TopicPartition(partition.topic, 1), producer_id)
    (found,) = admin.find_hanging_transactions([partition], max_transaction_timeout=0.0)
    assert (found.partition, found.transactional_id) == (partition, None)
    assert (found.producer.producer_id, found.producer.current_transaction_start_offset) == (producer_id, 1)
    assert admin.find_hanging_transactions([partition]) == []  # too young
    (broker_id,) = [one.broker_id for one in admin.describe_cluster().brokers]
    everywhere = admin.find_hanging_transactions(broker_id=broker_id, max_transaction_timeout=0.0)
    assert {one.partition.partition for one in everywhere if one.producer.producer_id == producer_id} == {0, 1}
    admin.abort_transaction(partition, start_offset=1)
    assert admin.find_hanging_transactions([partition], max_transaction_timeout=0.0) == []
    other = TopicPartition(partition.topic, 1)
    admin.abort_transaction(other, producer_id=producer_id)
    assert stable_offset(admin, other) == 4
    with pytest.raises(RefusedError, match="no open transaction starts at offset 1"):
        admin.abort_transaction(partition, start_offset=1)


def test_aborting_with_the_wrong_epoch(admin: Admin, broker: Peer, partition: TopicPartition) -> None:
    producer_id = 800_000 + uuid.uuid4().int % 90_000
    leave_hanging(admin, broker.bootstrap, partition, producer_id)
    admin.abort_transaction(partition, producer_id=producer_id, producer_epoch=5, coordinator_epoch=3)
    with pytest.raises(SomeRefusedError) as refused:
        admin.abort_transaction(partition, producer_id=producer_id, producer_epoch=4, coordinator_epoch=3)
    assert refused.value.errors[partition].code is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(SomeRefusedError) as refused:
        admin.abort_transaction(partition, producer_id=producer_id, producer_epoch=5, coordinator_epoch=2)
    assert refused.value.errors[partition].code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    with pytest.raises(ArgumentError, match="either start_offset or producer_id"):
        admin.abort_transaction(partition)
    with pytest.raises(SomeRefusedError) as refused:
        admin.abort_transaction(TopicPartition(partition.topic, 9), start_offset=0)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_same_in_asyncio(broker: Peer, producer: confluent_kafka.Producer, transactional_id: str) -> None:
    assert producer

    async def scenario() -> None:
        async with AsyncAdmin(bootstrap_servers=broker.bootstrap) as admin:
            described = await admin.describe_transactions([transactional_id])
            assert described[transactional_id].state is TransactionState.ONGOING
            await admin.fence_producers([transactional_id])

    asyncio.run(scenario())


@pytest.mark.skipif(chosen_peer() != OTTLA, reason="Kafka 4.3 has two-phase commit only with unstable APIs enabled")
def test_fencing_aborts_a_transaction_without_a_timeout(
    admin: Admin, broker: Peer, transactional_id: str, partition: TopicPartition
) -> None:
    with Producer(
        bootstrap_servers=broker.bootstrap,
        transactional_id=transactional_id,
        transaction_two_phase_commit_enable=True,
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(partition.topic, b"prepared", partition=partition.partition)
        producer.prepare_transaction()
    described = admin.describe_transactions([transactional_id])[transactional_id]
    assert (described.state, described.is_two_phase) == (TransactionState.ONGOING, True)
    assert admin.find_hanging_transactions([partition], max_transaction_timeout=0.0) == []
    admin.fence_producers([transactional_id])
    wait_until(lambda: stable_offset(admin, partition) == 2, "the transaction is not aborted")
    assert admin.describe_producers([partition])[partition][0].current_transaction_start_offset is None
