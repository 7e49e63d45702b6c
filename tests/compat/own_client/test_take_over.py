"""A prepared transaction that a new process takes over (KIP-939), at the level of requests: what the old owner can do.

Kafka 4.3.1 refuses `keepPreparedTxn`, also with two-phase commit and unstable APIs enabled. So there is nothing to be
compatible with, but for what partitions do: a batch with the epoch of the transaction that is open in the partition is
appended without asking the coordinator. Nothing but the marker tells a partition of a new owner.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from differential.connection import Connection
from ottla import Admin
from ottla.base.error_codes import ErrorCode
from ottla.client.administer import NewTopic
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.produce import ProducePartition, ProduceRequest, ProduceResponse, ProduceTopic
from ottla.wire.registry import apis
from ottla.wire.schema import Request, Response
from support.brokers import batch_of
from support.clients.peers import Peer
from support.waiting import wait_until

pytestmark = pytest.mark.compat

NONE = ErrorCode.NONE
_TRY_AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
_NOT_LED_YET = (*_TRY_AGAIN, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""Soon after a topic is created; nothing was appended then."""


class Owner:
    """A process that uses the transactional id, which is the name of the topic."""

    def __init__(self, broker: Peer, topic: str) -> None:
        self._connection = Connection(int(broker.bootstrap.rpartition(":")[2]))
        self._topic = topic
        self._sequences: dict[int, int] = {}
        self.producer_id, self.producer_epoch = -1, -1

    def close(self) -> None:
        self._connection.close()

    def _ask(self, request: Request, version: int) -> Response:
        number = self._connection.send(request, version)
        return self._connection.receive(apis()[request.api_key], version, number, 30.0)

    def find(self) -> None:
        """Makes the broker create the coordinator's topic, and waits for it."""

        def is_found() -> bool:
            answer = self._ask(FindCoordinatorRequest(key=self._topic, key_type=1), 3)
            assert isinstance(answer, FindCoordinatorResponse)
            return answer.error_code == NONE

        wait_until(is_found, "there is no coordinator")

    def init(self, *, keeps: bool) -> tuple[ErrorCode, tuple[int, int]]:
        """The error, and the transaction that is open."""
        answers: list[InitProducerIdResponse] = []

        def is_answered() -> bool:
            request = InitProducerIdRequest(
                transactional_id=self._topic,
                transaction_timeout_ms=2**31 - 1,
                enable2_pc=True,
                keep_prepared_txn=keeps,
            )
            answer = self._ask(request, 6)
            assert isinstance(answer, InitProducerIdResponse)
            answers.append(answer)
            return answer.error_code not in _TRY_AGAIN

        wait_until(is_answered, "InitProducerId is not answered")
        answer = answers[-1]
        if not answer.error_code:
            self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        return ErrorCode.of(answer.error_code), (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)

    def produce(self, index: int) -> ErrorCode:
        sequence = self._sequences.setdefault(index, 0)
        records = batch_of(
            b"value",
            transactional=True,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
        )
        self._sequences[index] += 1
        request = ProduceRequest(
            acks=-1,
            timeout_ms=20_000,
            transactional_id=self._topic,
            topic_data=[
                ProduceTopic(name=self._topic, partition_data=[ProducePartition(index=index, records=records)])
            ],
        )
        codes: list[ErrorCode] = []

        def is_answered() -> bool:
            answer = self._ask(request, 12)
            assert isinstance(answer, ProduceResponse)
            codes.append(ErrorCode.of(answer.responses[0].partition_responses[0].error_code))
            return codes[-1] not in _NOT_LED_YET

        wait_until(is_answered, "Produce is not answered")
        return codes[-1]

    def commit(self) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self._topic,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=True,
        )
        answer = self._ask(request, 5)
        assert isinstance(answer, EndTxnResponse)
        return ErrorCode.of(answer.error_code)


@pytest.fixture
def owners(broker: Peer, topic: str) -> Iterator[tuple[Owner, Owner]]:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 2)])
    both = Owner(broker, topic), Owner(broker, topic)
    both[0].find()
    yield both
    for owner in both:
        owner.close()


@pytest.mark.parametrize("broker", ["kafka-4.3.1"], indirect=True)
def test_kafka_has_no_take_over(owners: tuple[Owner, Owner]) -> None:
    old, new = owners
    assert old.init(keeps=False)[0] is NONE
    assert old.produce(0) is NONE
    assert new.init(keeps=True)[0] is ErrorCode.UNSUPPORTED_VERSION
    # The transaction and its owner are as they were.
    assert old.produce(0) is NONE
    assert old.produce(1) is NONE
    assert old.commit() is NONE


@pytest.mark.parametrize("broker", ["ottla"], indirect=True)
def test_the_old_owner_after_a_take_over(owners: tuple[Owner, Owner]) -> None:
    """`tests/unit/broker/transactions/test_owners.py` shows the rest."""
    old, new = owners
    assert old.init(keeps=False)[0] is NONE
    assert old.produce(0) is NONE
    assert new.init(keeps=True) == (NONE, (old.producer_id, old.producer_epoch))
    assert new.producer_epoch == old.producer_epoch + 1
    assert old.produce(0) is NONE
    assert old.produce(1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert old.commit() is ErrorCode.PRODUCER_FENCED
    assert new.commit() is NONE
