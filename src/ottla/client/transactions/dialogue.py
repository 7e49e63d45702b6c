"""What a transactional producer and coordinators say to each other: one method per request.

Each method asks until there is an answer that will not pass: the coordinator is looked for again when it moved, and an
attempt that fails for a transient reason is repeated. There is no time limit here; callers set one. What is refused for
good raises `RefusedError`, and `error_of` says what that means for the transaction. Belongs to one loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, TypeVar

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.cluster import Backoff, Cluster, is_wrong_address, may_pass
from ottla.client.config import ProducerConfig
from ottla.client.errors import (
    BrokerConnectionError,
    FencedError,
    RefusedError,
    TransactionAbortableError,
    TransactionFatalError,
    UnsupportedApiError,
    raise_if_refused,
)
from ottla.client.membership.coordinator import CoordinatorLink, CoordinatorType, Lane
from ottla.client.membership.metadata import GroupMetadata
from ottla.client.offsets import OffsetAndMetadata
from ottla.client.transactions.identity import Identity
from ottla.client.transactions.states import TRANSACTION_VERSION_2
from ottla.net.client_connection import ClientConnection
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitTopic,
)

T = TypeVar("T")

CONCURRENT_BACKOFF_S: Final = 0.02
"""Wait after CONCURRENT_TRANSACTIONS: the coordinator finishes the previous transaction within milliseconds."""
_FEATURE: Final = "transaction.version"
_INIT_WITH_EPOCH: Final = 3
_INIT_TWO_PHASE: Final = 6
_ADD_PARTITIONS_OF_CLIENTS: Final = 3
_END_VERSION_1: Final = 4
_COMMIT_OFFSETS_VERSION_1: Final = 4
_NO_EPOCH: Final = -1
_NO_TIMEOUT_MS: Final = 2**31 - 1
_NO_PRODUCER: Final = Identity(-1, -1)

FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_ABORTABLE: Final = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
_FATAL_IN_PRODUCE: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
_REMEDIES: Final = {
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "set transaction.timeout.ms to at most transaction.max.timeout.ms of the "
    "broker",
    ErrorCode.INVALID_TXN_STATE: "the coordinator has ended the transaction, usually because it took longer than "
    "transaction.timeout.ms",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant this client WRITE on the transactional id",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the coordinator has forgotten this producer, or the id has expired",
}
Outcome = TransactionAbortableError | TransactionFatalError


class TransactionDialogue:
    """Of one producer with its transaction coordinator, and with the coordinators of groups."""

    def __init__(self, config: ProducerConfig, cluster: Cluster, transactional_id: str) -> None:
        self._config = config
        self._cluster = cluster
        self._id = transactional_id
        self._link = CoordinatorLink(cluster, transactional_id, CoordinatorType.TRANSACTION)
        self._groups: dict[str, CoordinatorLink] = {}
        self.version = 1
        """Of the transaction protocol, as the coordinator said when it was last connected to."""
        self.can_raise_epoch = False
        """Whether the coordinator gives a producer another epoch after an error (KIP-360)."""
        self.hindrance: Exception | None = None
        """Why the last attempt failed; None if it did not."""

    async def init_producer(
        self, before: Identity | None = None, *, keep_prepared: bool = False
    ) -> InitProducerIdResponse:
        """A new identity, which fences all earlier ones; with `before`, the next epoch of that one. Aborts the open
        transaction, or keeps it with `keep_prepared`."""
        is_two_phase = self._config.transaction_two_phase_commit_enable or keep_prepared
        producer_id, epoch = before or _NO_PRODUCER
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=_NO_TIMEOUT_MS if is_two_phase else self._config.transaction_timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            enable2_pc=is_two_phase,
            keep_prepared_txn=keep_prepared,
        )

        async def attempt() -> InitProducerIdResponse:
            connection = await self._connection()
            version = connection.version_for(
                InitProducerIdRequest, at_most=None if is_two_phase else _INIT_TWO_PHASE - 1
            )
            if is_two_phase and version < _INIT_TWO_PHASE:
                raise UnsupportedApiError(
                    f"{connection.address} does not support two-phase commit (KIP-939): leave out "
                    "transaction.two.phase.commit.enable; prepared transactions then have to be completed within "
                    "transaction.timeout.ms"
                )
            answer = await connection.send(request, InitProducerIdResponse, version=version)
            self._look_at(answer.error_code, self._subject)
            return answer

        return await self._retry(attempt)

    async def add_partitions(self, producer: Identity, partitions: Collection[TopicPartition]) -> None:
        """Makes the partitions part of the transaction. With version 2, only those whose leader does not."""
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for name, index in sorted(partitions):
            topics.setdefault(name, AddPartitionsToTxnTopic(name=name)).partitions.append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=list(topics.values()),
        )

        async def attempt() -> None:
            connection = await self._connection()
            version = connection.version_for(AddPartitionsToTxnRequest, at_most=_ADD_PARTITIONS_OF_CLIENTS)
            answer = await connection.send(request, AddPartitionsToTxnResponse, version=version)
            codes = {
                TopicPartition(topic.name, one.partition_index): ErrorCode.of(one.partition_error_code)
                for topic in answer.results_by_topic_v3_and_below
                for one in topic.results_by_partition
            }
            self._look_at_all(codes, "partition {} of the transaction")

        await self._retry(attempt)

    async def add_offsets(self, producer: Identity, group_id: str) -> None:
        """Makes the offsets of the group part of the transaction. With version 2, only if their coordinator does
        not."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=group_id,
        )

        async def attempt() -> None:
            answer = await (await self._connection()).send(request, AddOffsetsToTxnResponse)
            self._look_at(answer.error_code, f"offsets of group {group_id} in the transaction")

        await self._retry(attempt)

    async def commit_offsets(
        self,
        producer: Identity,
        version: int,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
    ) -> None:
        """Commits the offsets in the transaction: they count once it is committed."""
        link = self._groups.setdefault(group.group_id, CoordinatorLink(self._cluster, group.group_id))
        left = dict(offsets)

        async def attempt() -> None:
            connection = await link.connection(Lane.OFFSETS)
            at_most = None if version >= TRANSACTION_VERSION_2 else _COMMIT_OFFSETS_VERSION_1
            request_version = connection.version_for(TxnOffsetCommitRequest, at_most=at_most)
            if version >= TRANSACTION_VERSION_2 and request_version <= _COMMIT_OFFSETS_VERSION_1:
                await self.add_offsets(producer, group.group_id)
            request = TxnOffsetCommitRequest(
                transactional_id=self._id,
                group_id=group.group_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                generation_id=group.generation_id,
                member_id=group.member_id,
                group_instance_id=group.group_instance_id,
                topics=_topics(left),
            )
            answer = await connection.send(request, TxnOffsetCommitResponse, version=request_version)
            codes = {
                TopicPartition(topic.name, one.partition_index): ErrorCode.of(one.error_code)
                for topic in answer.topics
                for one in topic.partitions
            }
            for partition, code in codes.items():
                link.look_at(code)
                if not code:
                    left.pop(partition, None)
            _raise_worst(codes, f"group {group.group_id}: the offset of partition {{}}")

        await self._retry(attempt)

    async def end(self, producer: Identity, version: int | None, *, commit: bool) -> Identity:
        """Commits or aborts the transaction, which has that version of the protocol, or the one that the coordinator
        uses. Returns the identity of the next one."""
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commit,
        )

        async def attempt() -> Identity:
            connection = await self._connection()
            at_most = None if (version or self.version) >= TRANSACTION_VERSION_2 else _END_VERSION_1
            answer = await connection.send(
                request, EndTxnResponse, version=connection.version_for(EndTxnRequest, at_most=at_most)
            )
            self._look_at(answer.error_code, self._subject)
            if answer.producer_id == _NO_PRODUCER.producer_id:
                return producer
            return Identity(answer.producer_id, answer.producer_epoch)

        return await self._retry(attempt)

    # Within.

    @property
    def _subject(self) -> str:
        return f"transactional.id {self._id}"

    async def _connection(self) -> ClientConnection:
        connection = await self._link.connection(Lane.TRANSACTIONS)
        self.version = 2 if connection.finalized_features.get(_FEATURE, 0) >= TRANSACTION_VERSION_2 else 1
        served = connection.served.get(InitProducerIdRequest.api_key)
        self.can_raise_epoch = served is not None and served.high >= _INIT_WITH_EPOCH
        return connection

    def _look_at(self, code: int, subject: str) -> None:
        self._link.look_at(code)
        raise_if_refused(code, subject)

    def _look_at_all(self, codes: Mapping[TopicPartition, ErrorCode], subject: str) -> None:
        for code in codes.values():
            self._link.look_at(code)
        _raise_worst(codes, subject)

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        backoff = Backoff(self._cluster.options)
        while True:
            try:
                answer = await attempt()
            except (BrokerConnectionError, RefusedError) as error:
                self.hindrance = error
                if not may_pass(error) or (not self._cluster.brokers and is_wrong_address(error)):
                    raise
                is_concurrent = isinstance(error, RefusedError) and error.code is ErrorCode.CONCURRENT_TRANSACTIONS
                wait_s = CONCURRENT_BACKOFF_S if is_concurrent else backoff.next_s()
            else:
                self.hindrance = None
                return answer
            await asyncio.sleep(wait_s)


def _raise_worst(codes: Mapping[TopicPartition, ErrorCode], subject: str) -> None:
    """Raises what will not pass first, and of that what another partition is not the reason for."""
    refused = {partition: code for partition, code in codes.items() if code}
    by_weight = sorted(
        refused.items(), key=lambda item: (item[1].retriable, item[1] is ErrorCode.OPERATION_NOT_ATTEMPTED, item[0])
    )
    for partition, code in by_weight:
        raise RefusedError(code, subject.format(partition))


def _topics(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[TxnOffsetCommitTopic]:
    topics: dict[str, TxnOffsetCommitTopic] = {}
    for (name, index), offset in offsets.items():
        topics.setdefault(name, TxnOffsetCommitTopic(name=name)).partitions.append(
            TxnOffsetCommitPartition(
                partition_index=index,
                committed_offset=offset.offset,
                committed_leader_epoch=_NO_EPOCH if offset.leader_epoch is None else offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    return list(topics.values())


# What errors mean.


def error_of(error: Exception, transactional_id: str) -> Outcome:
    """What an error of a coordinator means for the transaction."""
    if isinstance(error, RefusedError):
        if error.code in FENCED:
            return fenced(transactional_id, error)
        if error.code in _ABORTABLE:
            return abortable(error)
    return fatal(error)


def error_of_batch(error: Exception, transactional_id: str) -> Outcome:
    """What it means that a batch could not be sent. An old epoch is not fatal here (KIP-588): the coordinator, which
    is asked to abort next, knows whether the producer is fenced."""
    if isinstance(error, UnsupportedApiError):
        return fatal(error)
    if isinstance(error, RefusedError):
        if error.code is ErrorCode.PRODUCER_FENCED:
            return fenced(transactional_id, error)
        if error.code in _FATAL_IN_PRODUCE:
            return fatal(error)
    return abortable(error)


def fenced(transactional_id: str, cause: Exception) -> FencedError:
    reason = "another producer with this id was initialised, or the transaction took longer than transaction.timeout.ms"
    return _because(
        FencedError(f"the producer with transactional.id {transactional_id!r} is fenced: {reason}. Close it"), cause
    )


def abortable(cause: Exception) -> TransactionAbortableError:
    told = str(cause).rstrip(".")
    return _because(TransactionAbortableError(f"{told}. Call abort_transaction(), then try again"), cause)


def fatal(cause: Exception) -> TransactionFatalError:
    told = str(cause).rstrip(".")
    remedy = _REMEDIES.get(cause.code) if isinstance(cause, RefusedError) else None
    hint = f": {remedy}" if remedy else ""
    return _because(TransactionFatalError(f"{told}{hint}. Close this producer and create another one"), cause)


AnyOutcome = TypeVar("AnyOutcome", TransactionAbortableError, TransactionFatalError, FencedError)


def _because(error: AnyOutcome, cause: Exception) -> AnyOutcome:
    error.__cause__ = cause
    return error
