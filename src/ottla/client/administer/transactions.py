"""Transactions: list, describe, find hanging ones, abort them, fence producers (KIP-664, KIP-939).

A transaction is *hanging* if it is open in a partition but no coordinator knows it. Nobody will ever end it: consumers
with read_committed do not get past it, and the log is not compacted beyond it. `abort_transaction` ends it in one
partition. Do not use it for a transaction that a coordinator still knows: `fence_producers` aborts those in all
partitions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.administer.coordinators import CoordinatedArea, CoordinatorType
from ottla.client.administer.kafka_name import KafkaName
from ottla.client.administer.outcomes import SomeRefusedError, known, refusal
from ottla.client.administer.partitions import PartitionsArea, ProducerState
from ottla.client.administer.topics import TopicsArea
from ottla.client.errors import ArgumentError, RefusedError, raise_if_refused
from ottla.client.transactions.prepared import PreparedTransaction
from ottla.wire.messages.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.wire.messages.write_txn_markers import (
    TxnMarker,
    TxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

DEFAULT_MAX_TRANSACTION_TIMEOUT_S: Final = 900.0
"""Kafka's default of transaction.max.timeout.ms: no open transaction of a coordinator is older."""
TWO_PHASE_TIMEOUT_MS: Final = 2**31 - 1
"""The timeout of transactions with two-phase commit (KIP-939): none."""

_TRANSACTION_FEATURE: Final = "transaction.version"
_TRANSACTION_VERSION_2: Final = 2
_END_VERSION_1: Final = 4
_DURATION_SINCE: Final = 1
_PATTERN_SINCE: Final = 2
_FIRST_COORDINATOR_EPOCH: Final = 0
_PARTITIONS_AT_ONCE: Final = 500


class TransactionState(KafkaName):
    """The state of a transactional id at its coordinator."""

    UNKNOWN = "Unknown"
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction that has not ended in all its partitions."""
        return self in (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id, and what its coordinator says about it."""

    transactional_id: str
    producer_id: int
    state: TransactionState
    coordinator_id: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id with its transaction. `start_time_ms` is None if there is none; `partitions` are those that
    have no marker yet."""

    transactional_id: str
    coordinator_id: int
    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    partitions: tuple[TopicPartition, ...]

    @property
    def is_two_phase(self) -> bool:
        """Whether the transaction does not time out, because its producer uses two-phase commit."""
        return self.timeout_ms == TWO_PHASE_TIMEOUT_MS

    @classmethod
    def of(cls, transaction: DescribedTransaction, coordinator_id: int) -> TransactionDescription:
        return cls(
            transaction.transactional_id,
            coordinator_id,
            TransactionState(transaction.transaction_state),
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.transaction_timeout_ms,
            known(transaction.transaction_start_time_ms),
            tuple(
                sorted(TopicPartition(topic.topic, index) for topic in transaction.topics for index in topic.partitions)
            ),
        )


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """An open transaction in a partition that no coordinator will end. `transactional_id` is None if no coordinator
    knows the producer."""

    partition: TopicPartition
    producer: ProducerState
    transactional_id: str | None


@dataclass(frozen=True, slots=True)
class FencedProducer:
    """The producer id and epoch that producers of a transactional id would continue with. All earlier ones are
    fenced."""

    producer_id: int
    producer_epoch: int


class TransactionsArea(PartitionsArea, TopicsArea, CoordinatedArea):
    """Operations on transactions."""

    async def list_transactions(
        self,
        *,
        states: Collection[TransactionState] = (),
        producer_ids: Collection[int] = (),
        min_duration: float | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """All transactional ids by name; or those in one of these states, with one of these producer ids, with a
        transaction that has been open for at least `min_duration` seconds, and whose whole id matches the regular
        expression `pattern` (RE2 syntax).

        With states and `min_duration`, brokers compare when the last transaction began, even if it has ended."""
        if min_duration is not None and min_duration < 0:
            raise ArgumentError(f"min_duration must be at least 0 seconds, not {min_duration!r}")
        if min_duration is not None and not states:
            states = [state for state in TransactionState if state.is_open]
        since, why = (_DURATION_SINCE, "list transactions by duration") if min_duration is not None else (0, "")
        since, why = (_PATTERN_SINCE, "list transactions by a pattern") if pattern else (since, why)
        request = ListTransactionsRequest(
            state_filters=[*map(str, states)],
            producer_id_filters=[*producer_ids],
            duration_filter=-1 if min_duration is None else round(min_duration * 1000),
            transactional_id_pattern=pattern or None,
        )

        async def attempt() -> dict[str, TransactionListing]:
            await self._cluster.refresh()
            found: dict[str, TransactionListing] = {}
            for broker_id in list(self._cluster.brokers):
                answer = await self._ask(broker_id, request, ListTransactionsResponse, since=since, why=why)
                raise_if_refused(answer.error_code, f"the transactions of broker {broker_id}")
                if answer.unknown_state_filters:
                    unknown = ", ".join(map(repr, answer.unknown_state_filters))
                    raise ArgumentError(f"broker {broker_id} does not know the transaction states {unknown}")
                for one in answer.transaction_states:
                    state = TransactionState(one.transaction_state)
                    found[one.transactional_id] = TransactionListing(
                        one.transactional_id, one.producer_id, state, broker_id
                    )
            return found

        return [one for _, one in sorted((await self._cluster.retry(attempt)).items())]

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """What the coordinators know about these transactional ids."""

        async def attempt(broker_id: int, some: list[str]) -> dict[str, TransactionDescription | RefusedError]:
            request = DescribeTransactionsRequest(transactional_ids=some)
            answer = await self._ask(broker_id, request, DescribeTransactionsResponse)
            return {
                one.transactional_id: refusal(one.error_code, f"transactional id {one.transactional_id}")
                or TransactionDescription.of(one, broker_id)
                for one in answer.transaction_states
            }

        return await self._settle_at_coordinators(transactional_ids, attempt, kind=CoordinatorType.TRANSACTION)

    async def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, FencedProducer]:
        """Fences all producers with these transactional ids, and aborts their open transactions."""

        async def attempt(broker_id: int, some: list[str]) -> dict[str, FencedProducer | RefusedError]:
            found: dict[str, FencedProducer | RefusedError] = {}
            for transactional_id in some:
                request = InitProducerIdRequest(
                    transactional_id=transactional_id, transaction_timeout_ms=self._timeout_ms
                )
                answer = await self._ask(broker_id, request, InitProducerIdResponse)
                refused = refusal(answer.error_code, f"transactional id {transactional_id}")
                found[transactional_id] = refused or FencedProducer(answer.producer_id, answer.producer_epoch)
            return found

        return await self._settle_at_coordinators(transactional_ids, attempt, kind=CoordinatorType.TRANSACTION)

    async def complete_transactions(self, prepared: Iterable[PreparedTransaction], *, commit: bool) -> None:
        """Commits or aborts transactions that `Producer.prepare_transaction` has prepared. Can be repeated with the
        same outcome. The error of a transaction that is not open any more is INVALID_PRODUCER_EPOCH, PRODUCER_FENCED or
        INVALID_PRODUCER_ID_MAPPING; of one that was ended with the opposite outcome, INVALID_TXN_STATE."""
        by_id = {one.transactional_id: one for one in prepared if not one.is_empty}

        async def attempt(broker_id: int, some: list[str]) -> dict[str, RefusedError | None]:
            connection = await self._connection(broker_id)
            is_version_2 = connection.finalized_features.get(_TRANSACTION_FEATURE, 0) >= _TRANSACTION_VERSION_2
            version = connection.version_for(EndTxnRequest, at_most=None if is_version_2 else _END_VERSION_1)

            async def end(one: PreparedTransaction) -> RefusedError | None:
                request = EndTxnRequest(
                    transactional_id=one.transactional_id,
                    producer_id=one.producer_id,
                    producer_epoch=one.producer_epoch,
                    committed=commit,
                )
                answer = await connection.send(request, EndTxnResponse, version=version)
                return refusal(answer.error_code, f"transactional id {one.transactional_id}")

            answers = await asyncio.gather(*(end(by_id[name]) for name in some))
            return dict(zip(some, answers, strict=True))

        await self._settle_at_coordinators(by_id, attempt, kind=CoordinatorType.TRANSACTION)

    async def find_hanging_transactions(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        broker_id: int | None = None,
        max_transaction_timeout: float = DEFAULT_MAX_TRANSACTION_TIMEOUT_S,
    ) -> list[HangingTransaction]:
        """The open transactions in these partitions (default: all partitions of the broker, or of the cluster) that no
        coordinator knows. The partition's leader is asked, or the given broker.

        Only transactions without a write for `max_transaction_timeout` seconds are looked at; use the brokers' highest
        transaction.max.timeout.ms. A transaction that ends while it is being looked at is not returned.
        """
        if max_transaction_timeout < 0:
            raise ArgumentError(f"max_transaction_timeout must be at least 0 seconds, not {max_transaction_timeout!r}")
        wanted = sorted(await self._partitions_on(broker_id) if partitions is None else set(partitions))
        written_before_ms = time.time() * 1000 - max_transaction_timeout * 1000
        suspects = await self._open_transactions(wanted, broker_id, written_before_ms)
        if not suspects:
            return []
        producer_ids = sorted({producer.producer_id for _, producer in suspects})
        ids = {one.producer_id: one.transactional_id for one in await self.list_transactions(producer_ids=producer_ids)}
        descriptions = await self._describe_existing(ids.values())
        hanging = []
        for partition, producer in suspects:
            transactional_id = ids.get(producer.producer_id)
            description = None if transactional_id is None else descriptions.get(transactional_id)
            if description is None or partition not in description.partitions:
                hanging.append(HangingTransaction(partition, producer, transactional_id))
        # One that its coordinator has ended in the meantime is gone from the partition by now, or will be in a moment.
        still_open = {
            (partition, producer.producer_id, producer.current_transaction_start_offset)
            for partition, producer in await self._open_transactions(
                sorted({one.partition for one in hanging}), broker_id, written_before_ms
            )
        }
        return [
            one
            for one in hanging
            if (one.partition, one.producer.producer_id, one.producer.current_transaction_start_offset) in still_open
        ]

    async def abort_transaction(
        self,
        partition: TopicPartition,
        *,
        start_offset: int | None = None,
        producer_id: int | None = None,
        producer_epoch: int | None = None,
        coordinator_epoch: int | None = None,
    ) -> None:
        """Aborts a hanging transaction in this partition: the one that starts at `start_offset`, or the open one of
        `producer_id`.

        The epochs are looked up in the partition. Brokers before Kafka 3.0 cannot be asked: give the producer id and
        both epochs. Aborting a transaction that its coordinator still knows would tear it apart.
        """
        if (start_offset is None) == (producer_id is None):
            raise ArgumentError("give either start_offset or producer_id")
        if producer_id is not None and producer_epoch is not None and coordinator_epoch is not None:
            epoch, its_coordinator = producer_epoch, coordinator_epoch
        else:
            found = await self._open_transaction(partition, start_offset, producer_id)
            producer_id = found.producer_id
            epoch = found.producer_epoch if producer_epoch is None else producer_epoch
            seen = found.coordinator_epoch if coordinator_epoch is None else coordinator_epoch
            its_coordinator = -1 if seen is None else seen
        marker = TxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=False,
            topics=[TxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
            # Unknown until a first marker was written. No coordinator has a lower epoch than this.
            coordinator_epoch=max(its_coordinator, _FIRST_COORDINATOR_EPOCH),
        )

        async def attempt(leader_id: int, some: list[TopicPartition]) -> dict[TopicPartition, RefusedError | None]:
            del some  # it is this one
            answer = await self._ask(leader_id, WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
            return {
                (name := TopicPartition(topic.name, one.partition_index)): refusal(
                    one.error_code, f"producer id {producer_id} in partition {name}"
                )
                for answered in answer.markers
                for topic in answered.topics
                for one in topic.partitions
            }

        await self._settle_at_leaders([partition], attempt)

    # What they have in common.

    async def _open_transaction(
        self, partition: TopicPartition, start_offset: int | None, producer_id: int | None
    ) -> ProducerState:
        for one in (await self.describe_producers([partition]))[partition]:
            begins = one.current_transaction_start_offset
            if begins is not None and (begins == start_offset or one.producer_id == producer_id):
                return one
        which = f"starts at offset {start_offset}" if producer_id is None else f"belongs to producer id {producer_id}"
        reason = f"no open transaction {which}"
        raise RefusedError(ErrorCode.INVALID_TXN_STATE, f"partition {partition}", reason)

    async def _partitions_on(self, broker_id: int | None) -> list[TopicPartition]:
        """All partitions with a replica on the broker; or simply all."""
        return [
            TopicPartition(topic.name, one.index)
            for topic in await self.list_topics(include_internal=True)
            for one in topic.partitions
            if broker_id is None or broker_id in one.replicas
        ]

    async def _open_transactions(
        self, partitions: list[TopicPartition], broker_id: int | None, written_before_ms: float
    ) -> list[tuple[TopicPartition, ProducerState]]:
        """Those with no write since then."""
        found: list[tuple[TopicPartition, ProducerState]] = []
        for start in range(0, len(partitions), _PARTITIONS_AT_ONCE):
            some = partitions[start : start + _PARTITIONS_AT_ONCE]
            for partition, producers in (await self.describe_producers(some, broker_id=broker_id)).items():
                found += [
                    (partition, one)
                    for one in producers
                    if one.current_transaction_start_offset is not None
                    and (one.last_timestamp is None or one.last_timestamp <= written_before_ms)
                ]
        return found

    async def _describe_existing(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """Without those that have expired since they were listed."""
        try:
            return await self.describe_transactions(transactional_ids)
        except SomeRefusedError as error:
            for one in error.errors.values():
                if one.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    raise
            return error.results
