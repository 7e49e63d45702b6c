"""The transaction coordinator of a broker: the runtime, and a method for each API.

Every method takes a request and returns the response, errors included. Those that producers call all the time return
the response itself if it need not wait, and a coroutine otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Final

from ottla.base.clock import Clock
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.seams import Caller, CoordinatorTopic, Timers
from ottla.coordinator.shards import ShardContext
from ottla.coordinator.transactions import description, operations
from ottla.coordinator.transactions.answers import (
    INIT_KNOWS_FENCED,
    OTHERS_KNOW_FENCED,
    answered,
    known_as,
    partitions_of,
    same_error,
    topic_results,
)
from ottla.coordinator.transactions.decisions import Decisions
from ottla.coordinator.transactions.operations import Initialization
from ottla.coordinator.transactions.seams import MarkerSender, OffsetsPartitions, ProducerIdSource
from ottla.coordinator.transactions.settings import TransactionNumbers, TransactionSettings
from ottla.coordinator.transactions.shard import TransactionCounts, TransactionShard
from ottla.coordinator.transactions.transaction import (
    NO_EPOCH,
    NO_ID,
    TWO_PHASE_TIMEOUT_MS,
    VERSION_2,
    ProducerIdentity,
)
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTransaction,
    AddPartitionsToTxnTransactionResponse,
)
from ottla.wire.messages.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

BATCHED_SINCE: Final = 4
"""The version of AddPartitionsToTxn that brokers use, for many transactions."""
_KNOWS_ABORTABLE: Final = 5
"""The version of AddPartitionsToTxn that knows TRANSACTION_ABORTABLE."""
_RAISES_EPOCH: Final = 5
"""The version of EndTxn that raises the epoch (KIP-890)."""
OLD_VERSION: Final = 0
"""The transaction version of producers that add partitions themselves."""

Errors = dict[TopicPartition, ErrorCode]


class TransactionCoordinatorService:
    """See the module. Owned by the loop."""

    def __init__(
        self,
        log: CoordinatorTopic,
        clock: Clock,
        timers: Timers,
        settings: TransactionSettings,
        producer_ids: ProducerIdSource,
        markers: MarkerSender,
        groups: OffsetsPartitions,
        partition_exists: Callable[[TopicPartition], bool],
    ) -> None:
        counts = self._counts = TransactionCounts()

        def make_shard(context: ShardContext) -> TransactionShard:
            return TransactionShard(context, settings, markers, counts)

        self.settings = settings
        self.runtime = CoordinatorRuntime("transaction coordinator", log, clock, timers, make_shard)
        self._decisions = Decisions(self.runtime, clock, timers, producer_ids, settings.completion_wait_ms)
        self._clock = clock
        self._groups = groups
        self.partition_exists = partition_exists

    # --- partitions -------------------------------------------------------------------------------------------------

    def lead(self, index: int, leader_epoch: int) -> None:
        """Called when this broker becomes the leader of that partition of `__transaction_state`."""
        self.runtime.lead(index, leader_epoch)

    def resign(self, index: int) -> None:
        """Called when this broker no longer leads the partition."""
        self.runtime.unload(index)

    def close(self) -> None:
        """Writes what is owed to the log, and answers every waiting request."""
        for shard in self.runtime.active_shards():
            shard.pay()
        self.runtime.close()

    # --- producers --------------------------------------------------------------------------------------------------

    async def init_producer_id(self, request: InitProducerIdRequest, caller: Caller) -> InitProducerIdResponse:
        """For requests with a transactional id."""
        try:
            asked = self._initialization(request)
            return await self._decisions.later(
                asked.transactional_id, lambda shard, new_id: operations.initialize(shard, asked, new_id)
            )
        except CoordinatorError as error:
            code = known_as(error.code, caller.version, INIT_KNOWS_FENCED)
            return InitProducerIdResponse(error_code=code, producer_epoch=NO_EPOCH)

    def _initialization(self, request: InitProducerIdRequest) -> Initialization:
        if not request.transactional_id:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, "The transactional id must not be empty.")
        expected = ProducerIdentity(request.producer_id, request.producer_epoch)
        if (expected.producer_id == NO_ID) != (expected.producer_epoch == NO_EPOCH):
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, "A producer id needs an epoch, and an epoch an id.")
        is_new = expected.producer_id == NO_ID
        if (request.enable2_pc or request.keep_prepared_txn) and not self.settings.two_phase_commit:
            raise CoordinatorError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transaction.two.phase.commit.enable is false."
            )
        if request.keep_prepared_txn and not is_new:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Only a new producer can keep a prepared transaction.")
        timeout_ms = TWO_PHASE_TIMEOUT_MS if request.enable2_pc else request.transaction_timeout_ms
        if not request.enable2_pc and not 0 < timeout_ms <= self.settings.max_timeout_ms:
            raise CoordinatorError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"The timeout must be between 1 and transaction.max.timeout.ms={self.settings.max_timeout_ms}.",
            )
        return Initialization(
            request.transactional_id, timeout_ms, None if is_new else expected, request.keep_prepared_txn
        )

    def add_partitions(
        self, request: AddPartitionsToTxnRequest, caller: Caller
    ) -> AddPartitionsToTxnResponse | Coroutine[Any, Any, AddPartitionsToTxnResponse]:
        """Of producers (v0-3) and of brokers (v4+, many transactions, possibly only to verify)."""
        version = caller.version
        if version >= BATCHED_SINCE:
            return self._add_many(request.transactions, version)
        topics = request.v3_and_below_topics
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=topics,
        )

        def response(errors: Errors) -> AddPartitionsToTxnResponse:
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topic_results(topics, errors))

        added = self._add_existing(transaction, version)
        return answered(lambda: added, response, lambda error: response(_all_of(transaction, error)))

    def _add_many(
        self, transactions: list[AddPartitionsToTxnTransaction], version: int
    ) -> AddPartitionsToTxnResponse | Coroutine[Any, Any, AddPartitionsToTxnResponse]:
        waiting = [self._add_existing(each, version) for each in transactions]

        def response(results: list[Errors]) -> AddPartitionsToTxnResponse:
            return AddPartitionsToTxnResponse(
                results_by_transaction=[
                    AddPartitionsToTxnTransactionResponse(
                        transactional_id=each.transactional_id, topic_results=topic_results(each.topics, errors)
                    )
                    for each, errors in zip(transactions, results, strict=True)
                ]
            )

        if not any(isinstance(each, Coroutine) for each in waiting):
            return response(waiting)  # type: ignore[arg-type]  # none is a coroutine

        async def gather() -> AddPartitionsToTxnResponse:
            # Together: one that waits for its previous transaction must not delay the others.
            return response(await asyncio.gather(*(_awaited(each) for each in waiting)))

        return gather()

    def _add_existing(
        self, transaction: AddPartitionsToTxnTransaction, version: int
    ) -> Errors | Coroutine[Any, Any, Errors]:
        """Adds or verifies the partitions of one transaction. If one does not exist, none is added."""
        partitions = partitions_of(transaction.topics)
        unknown = {each for each in partitions if not self.partition_exists(each)}
        if unknown:
            return {
                each: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if each in unknown else ErrorCode.OPERATION_NOT_ATTEMPTED
                for each in partitions
            }

        def known(errors: Errors) -> Errors:
            return {each: _known_to_adder(error, version) for each, error in errors.items()}

        identity = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
        return answered(
            lambda: self._added(
                transaction.transactional_id,
                identity,
                partitions,
                verify_only=transaction.verify_only,
                version=VERSION_2 if version >= BATCHED_SINCE else OLD_VERSION,
                # Not in a broker's request: it has the questions of other producers, and the broker asks again.
                waits=version < BATCHED_SINCE,
            ),
            known,
            lambda error: known(same_error(partitions, error)),
        )

    def confirm(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> Errors | Coroutine[Any, Any, Errors]:
        """Makes partitions that this broker leads part of the transaction, or only verifies that they are. Never raises
        `CoordinatorError`: every partition has its error."""
        identity = ProducerIdentity(producer_id, producer_epoch)
        asked = frozenset(partitions)
        return answered(
            lambda: self._added(transactional_id, identity, asked, verify_only=verify_only, version=VERSION_2),
            lambda errors: errors,
            lambda error: same_error(asked, error),
        )

    def _added(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        partitions: frozenset[TopicPartition],
        *,
        verify_only: bool,
        version: int,
        waits: bool = True,
    ) -> Errors | Coroutine[Any, Any, Errors]:
        _check_id(transactional_id)
        if verify_only:
            return self._decisions.now(
                transactional_id,
                lambda shard, _: operations.verify_partitions(shard, transactional_id, identity, partitions),
                waits=waits,
            )
        return self._decisions.now(
            transactional_id,
            lambda shard, _: operations.add_partitions(shard, transactional_id, identity, partitions, version),
            waits=waits,
        )

    def add_offsets(
        self, request: AddOffsetsToTxnRequest, caller: Caller
    ) -> AddOffsetsToTxnResponse | Coroutine[Any, Any, AddOffsetsToTxnResponse]:
        identity = ProducerIdentity(request.producer_id, request.producer_epoch)

        def added() -> Errors | Coroutine[Any, Any, Errors]:
            partition = self._groups.offsets_partition_of(request.group_id)
            return self._added(
                request.transactional_id, identity, frozenset((partition,)), verify_only=False, version=OLD_VERSION
            )

        def refused(error: ErrorCode) -> AddOffsetsToTxnResponse:
            return AddOffsetsToTxnResponse(error_code=known_as(error, caller.version, OTHERS_KNOW_FENCED))

        return answered(added, lambda _: AddOffsetsToTxnResponse(), refused)

    def end(self, request: EndTxnRequest, caller: Caller) -> EndTxnResponse | Coroutine[Any, Any, EndTxnResponse]:
        identity = ProducerIdentity(request.producer_id, request.producer_epoch)
        version = VERSION_2 if caller.version >= _RAISES_EPOCH else OLD_VERSION

        def ended() -> ProducerIdentity | Coroutine[Any, Any, ProducerIdentity]:
            _check_id(request.transactional_id)
            return self._decisions.now(
                request.transactional_id,
                lambda shard, new_id: operations.end(
                    shard, request.transactional_id, identity, new_id, committed=request.committed, version=version
                ),
            )

        def response(owner: ProducerIdentity) -> EndTxnResponse:
            return EndTxnResponse(producer_id=owner.producer_id, producer_epoch=owner.producer_epoch)

        def refused(error: ErrorCode) -> EndTxnResponse:
            return EndTxnResponse(error_code=known_as(error, caller.version, OTHERS_KNOW_FENCED))

        return answered(ended, response, refused)

    # --- operators --------------------------------------------------------------------------------------------------

    async def describe(self, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        described = [await self._described(each) for each in request.transactional_ids]
        return DescribeTransactionsResponse(transaction_states=described)

    async def _described(self, transactional_id: str) -> DescribedTransaction:
        try:
            _check_id(transactional_id)
            return await self.runtime.read(
                transactional_id, lambda shard: description.describe(shard, transactional_id)
            )
        except CoordinatorError as error:
            return DescribedTransaction(error_code=error.code, transactional_id=transactional_id)

    async def list(self, request: ListTransactionsRequest) -> ListTransactionsResponse:
        if self.runtime.is_loading:
            return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        try:
            includes, unknown = description.list_filter(request, self._clock.now_ms())
            parts = await self.runtime.read_all(lambda shard: description.listed(shard, includes))
        except CoordinatorError as error:
            return ListTransactionsResponse(error_code=error.code)
        return ListTransactionsResponse(
            unknown_state_filters=unknown, transaction_states=[each for part in parts for each in part]
        )

    def numbers(self) -> TransactionNumbers:
        """For metrics."""
        now_ms = self._clock.now_ms()
        shards = self.runtime.active_shards()
        # Snapshots: metrics are collected in another thread.
        known = [shard.transactions.get(each) for shard in shards for each in list(shard.open)]
        open_ones = [each for each in known if each is not None]
        return TransactionNumbers(
            open=len(open_ones),
            oldest_open_ms=max((now_ms - each.start_ms for each in open_ones), default=0),
            prepared=sum(each.is_two_phase for each in open_ones),
            completed_commits=self._counts.commits,
            completed_aborts=self._counts.aborts,
            timed_out=self._counts.timed_out,
            fenced=self._counts.fenced,
        )


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "The transactional id must not be empty.")


def _all_of(transaction: AddPartitionsToTxnTransaction, error: ErrorCode) -> Errors:
    return same_error(partitions_of(transaction.topics), error)


def _known_to_adder(error: ErrorCode, version: int) -> ErrorCode:
    """As the version of AddPartitionsToTxn knows it."""
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < _KNOWS_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return known_as(error, version, OTHERS_KNOW_FENCED)


async def _awaited(errors: Errors | Coroutine[Any, Any, Errors]) -> Errors:
    return await errors if isinstance(errors, Coroutine) else errors
