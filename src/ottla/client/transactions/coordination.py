"""A producer's transactions: ties the states, the dialogue with the coordinator, and the sender together.

The coroutines are the calls of the user, in the loop, one at a time. Each has max.block.ms. A call that was interrupted
or took too long can be made again: it goes on where it was, because what it asks of the coordinator can be asked twice.

Records are taken only while a transaction is open. To cost nothing for each record, that is not asked when one is sent:
the gate (the accumulator) takes no records by the fast way unless a transaction is open, and the general way asks
`check_open`. States change under the gate's lock, so that no record gets in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, Final, Protocol, TypeVar

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.arguments import checks_arguments
from ottla.client.cluster import Cluster
from ottla.client.config import ProducerConfig
from ottla.client.errors import (
    ArgumentError,
    CallTimeoutError,
    ClientError,
    ClosedError,
    FencedError,
    OttlaError,
    RefusedError,
    TransactionAbortedError,
    TransactionError,
    TransactionFatalError,
    TransactionStateError,
    UnsupportedApiError,
)
from ottla.client.membership.metadata import GroupMetadata
from ottla.client.offsets import OffsetAndMetadata, checked_offsets
from ottla.client.transactions.dialogue import (
    FENCED,
    Outcome,
    TransactionDialogue,
    error_of,
    error_of_batch,
    fatal,
)
from ottla.client.transactions.identity import Identity
from ottla.client.transactions.prepared import PreparedTransaction
from ottla.client.transactions.states import TRANSACTION_VERSION_2, State, TransactionStates

_logger = logging.getLogger(__name__)

T = TypeVar("T")
_NOT_THE_OWNER: Final = FENCED | {ErrorCode.INVALID_PRODUCER_ID_MAPPING}


class Gate(Protocol):
    """What lets records in: the accumulator."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held while a record is taken, unless it goes the fast way."""

    def enable(self) -> None:
        """Records can go the fast way, without asking whether a transaction is open."""

    def disable(self) -> None:
        """They cannot."""


@checks_arguments("send_offsets", "complete", "change_id")
class ProducerTransactions:
    """Of one producer. Made anywhere; `start` and the coroutines belong to the loop."""

    def __init__(self, config: ProducerConfig, transactional_id: str, gate: Gate) -> None:
        self._config = config
        self._id = transactional_id
        self._gate = gate
        self._states = TransactionStates(transactional_id)
        self._started: TransactionDialogue | None = None
        self._cluster: Cluster | None = None
        self._look: Callable[[], None] = _nothing
        self._finish: Callable[[], Awaitable[None]] = _nothing_to_finish
        self._added: set[TopicPartition] = set()
        """Partitions that are known to be part of the transaction: the coordinator added them, or, with version 2, a
        broker acknowledged records."""
        self._adding = asyncio.Lock()
        """Held while the coordinator is asked to add partitions."""
        self._calling = asyncio.Lock()
        """Held by the call that is under way."""

    def start(self, cluster: Cluster, look: Callable[[], None], finish: Callable[[], Awaitable[None]]) -> None:
        """`look` makes the sender look at what there is to send; `finish` waits until nothing is left."""
        self._started = TransactionDialogue(self._config, cluster, self._id)
        self._cluster = cluster
        self._look, self._finish = look, finish

    @property
    def _dialogue(self) -> TransactionDialogue:
        if self._started is None:
            raise ClientError("the producer was not started")
        return self._started

    # In any thread.

    def begin(self) -> None:
        """Opens a transaction, without asking anybody."""
        with self._gate.lock:
            self._states.check_beginning()
            self._added = set()
            # The gate first: if Ctrl-C comes in between, an open gate alone lets no record in.
            self._gate.enable()
            self._states.begin()

    def check_open(self, call: str) -> None:
        """Raises unless a transaction is open and can take more."""
        self._states.check_in_transaction(call)

    def raise_error(self) -> None:
        """Raises what the open transaction failed for."""
        self._states.raise_error()

    @property
    def transactional_id(self) -> str:
        return self._id

    @property
    def is_initialized(self) -> bool:
        return self._states.state not in (State.UNINITIALIZED, State.INITIALIZING)

    @property
    def is_unfinished(self) -> bool:
        """Whether the transaction is neither ended nor prepared; it may have failed."""
        return self._states.state not in (State.READY, State.PREPARED)

    @property
    def is_committing(self) -> bool:
        """Whether the coordinator may have been told to commit, and has not answered."""
        return self._states.state is State.COMMITTING and self._states.is_decided

    @property
    def can_abort(self) -> bool:
        """Whether there is a transaction that this producer may still abort, and that is not left to others."""
        return self._states.is_open and not self._states.is_decided

    # For the sender.

    @property
    def identity(self) -> Identity | None:
        return self._states.identity

    @property
    def is_version_2(self) -> bool:
        return self._states.version >= TRANSACTION_VERSION_2

    @property
    def drops_records(self) -> bool:
        """Whether what was not sent yet is not to be sent any more."""
        return self._states.drops_records

    @property
    def is_fatal(self) -> bool:
        return self._states.state is State.FATAL_ERROR

    def has_part(self, partition: TopicPartition) -> bool:
        """Whether records can be sent to the partition: with version 2, they make it part of the transaction."""
        return self.is_version_2 or partition in self._added

    def is_known_part(self, partition: TopicPartition) -> bool:
        """Whether records can be sent to a leader without version 2, which does not make the partition part of the
        transaction: it may have joined the cluster, or become the leader, after the transaction began."""
        return partition in self._added

    def acknowledged(self, partition: TopicPartition) -> None:
        """A broker has records of the transaction for the partition."""
        self._added.add(partition)

    def sends(self) -> None:
        """A request with records of the transaction is about to be sent."""
        self._states.is_started = True

    async def add_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Makes them part of the transaction; does not raise."""
        async with self._adding:
            states = self._states
            if states.identity is None or states.drops_records:
                return
            try:
                await self._or_doubt(self._dialogue.add_partitions(states.identity, partitions))
            except Exception as error:
                self._fail(self._outcome(error))
            else:
                states.is_started = True
                self._added.update(partitions)

    def batch_failed(self, error: Exception, *, is_numbered: bool) -> None:
        """A batch of the transaction could not be sent, or it is not known whether a broker has it."""
        if is_numbered:
            self._states.needs_new_epoch = True
        if isinstance(error, TransactionAbortedError | ClosedError):
            return
        outcome = error_of_batch(error, self._id)
        self._fail(outcome if not is_numbered or self._can_go_on else fatal(error))

    def aborted_error(self) -> TransactionAbortedError:
        """For records that are not sent."""
        reason = self._states.error
        if reason is None:
            return TransactionAbortedError("the record was not sent, because its transaction was aborted")
        error = TransactionAbortedError(f"the record was not sent, because its transaction failed: {reason}")
        error.__cause__ = reason
        return error

    # Calls of the user.

    async def init(self) -> None:
        async with self._call("init_transactions"):
            with self._gate.lock:
                self._states.begin_initializing()
            answer = await self._ask(self._dialogue.init_producer())
            with self._gate.lock:
                self._states.initialized(Identity(answer.producer_id, answer.producer_epoch), self._dialogue.version)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group_metadata: GroupMetadata
    ) -> None:
        """Commits offsets of a group in the transaction."""
        checked = checked_offsets(offsets)
        async with self._call("send_offsets_to_transaction"):
            states = self._states
            states.check_in_transaction("send_offsets_to_transaction")
            if not checked or states.identity is None:
                return
            if not self.is_version_2:
                await self._ask(self._or_doubt(self._dialogue.add_offsets(states.identity, group_metadata.group_id)))
            states.is_started = True
            # Offsets that arrive late must not become part of the next transaction.
            await self._ask(
                self._or_doubt(self._dialogue.commit_offsets(states.identity, states.version, checked, group_metadata))
            )

    async def commit(self) -> None:
        async with self._call("commit_transaction"):
            with self._gate.lock:
                self._states.begin_commit()
                self._gate.disable()
            await self._finish()
            self._states.raise_unless(State.COMMITTING)
            await self._end(commit=True)

    async def abort(self) -> None:
        async with self._call("abort_transaction"):
            with self._gate.lock:
                self._states.begin_abort()
                self._gate.disable()
            self._look()  # which drops what was not sent
            await self._finish()
            async with self._adding:
                pass
            self._states.raise_unless(State.ABORTING)
            await self._end(commit=False)

    async def prepare(self) -> PreparedTransaction:
        """Waits until all records are acknowledged, and leaves it to others to commit or abort."""
        async with self._call("prepare_transaction"):
            states = self._states
            states.check_preparing()
            if states.state is State.IN_TRANSACTION:
                await self._prepare()
            if not states.is_started or states.identity is None:
                return PreparedTransaction.nothing(self._id)
            return PreparedTransaction(self._id, *states.identity)

    async def _prepare(self) -> None:
        states = self._states
        try:
            self._gate.disable()
            await self._finish()
            with self._gate.lock:
                states.raise_unless(State.IN_TRANSACTION)
                states.prepared()
        except BaseException:
            if states.state is State.IN_TRANSACTION:  # interrupted: more can be sent
                self._gate.enable()
            raise

    async def complete(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        """Commits or aborts a transaction that this or another process has prepared."""
        if prepared.transactional_id != self._id:
            raise ArgumentError(
                f"the transaction was prepared with transactional.id {prepared.transactional_id!r}, but this producer "
                f"has {self._id!r}"
            )
        if self._states.state is State.PREPARED and (prepared.is_empty or prepared.identity == self._states.identity):
            await (self.commit() if commit else self.abort())
            return
        async with self._call("complete_transaction"):
            self._states.check_completing()
            if not prepared.is_empty:
                await self._complete(prepared, commit=commit)

    async def _complete(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        """EndTxn with the identity of who prepared it can be repeated, and tells if the opposite was decided. Only if
        that identity is fenced, because another process began to complete the transaction and did not finish, the
        coordinator is asked for one that can (KIP-939). The other process has another producer id, if the epochs of
        the first one were used up."""
        try:
            await self._dialogue.end(prepared.identity, None, commit=commit)
        except RefusedError as error:
            if error.code is ErrorCode.INVALID_TXN_STATE:
                wanted, found = ("committed", "aborted") if commit else ("aborted", "committed")
                raise TransactionStateError(
                    f"transaction {prepared} cannot be {wanted}: it was {found} before, or nothing was sent in it"
                ) from error
            if error.code not in _NOT_THE_OWNER:
                raise error_of(error, self._id) from error
            if not self._config.transaction_two_phase_commit_enable:
                raise _gone(prepared) from error
            await self._take_over(prepared, commit=commit)

    async def _take_over(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        try:
            answer = await self._dialogue.init_producer(keep_prepared=True)
            if (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) != prepared.identity:
                raise _gone(prepared)
            producer = Identity(answer.producer_id, answer.producer_epoch)
            await self._dialogue.end(producer, None, commit=commit)
        except RefusedError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:  # Kafka 4.3 answers that to keepPreparedTxn
                raise _gone(prepared) from error
            raise error_of(error, self._id) from error

    async def change_id(self, transactional_id: str) -> None:
        """Goes on as a producer that was just made with this id; what is prepared is left as it is."""
        async with self._call("change_transactional_id"):
            if self._cluster is None:
                raise ClientError("the producer was not started")
            with self._gate.lock:
                self._states.check_changing_id()
                self._gate.disable()
                self._id = transactional_id
                self._states = TransactionStates(transactional_id)
                self._started = TransactionDialogue(self._config, self._cluster, transactional_id)
                self._added = set()

    async def close(self) -> None:
        """Ends the open transaction: what may be committed already is committed, what is prepared is left as it is, and
        everything else is aborted. Does not raise."""
        try:
            if self._states.state is State.COMMITTING and self._states.is_decided:
                await self.commit()
            elif self._states.is_open:
                await self.abort()
        except OttlaError as error:
            _logger.warning("the open transaction of transactional.id %s was not ended: %s", self._id, error)

    async def abort_after(self, error: BaseException) -> None:
        """Aborts because the block of a `with` raised this, which is to be raised again. If the abort fails too, that
        is raised instead where it says more, and noted otherwise."""
        if not self.can_abort:
            return
        try:
            await self.abort()
        except TransactionFatalError as worse:
            if isinstance(error, TransactionError):
                raise worse from error
            error.add_note(f"The transaction could not be aborted: {worse}")
        except OttlaError as failure:
            error.add_note(f"The transaction could not be aborted: {failure}")

    # Within.

    async def _end(self, *, commit: bool) -> None:
        states, dialogue = self._states, self._dialogue
        if states.identity is None:
            raise TransactionStateError("the producer has no id: call init_transactions() first")
        if states.is_started or states.is_in_doubt:
            if commit:
                states.decide()
            states.end_answered(await self._ask(self._end_open(states.identity, commit=commit)))
        # Also when the cluster has begun to use version 2: no batch of before may carry the epoch of after.
        if (states.needs_new_epoch or dialogue.version > states.version) and dialogue.can_raise_epoch:
            answer = await self._ask(dialogue.init_producer(states.identity))
            states.end_answered(Identity(answer.producer_id, answer.producer_epoch))
        with self._gate.lock:
            states.ended(states.identity, dialogue.version)

    async def _end_open(self, producer: Identity, *, commit: bool) -> Identity:
        try:
            return await self._dialogue.end(producer, self._states.version, commit=commit)
        except RefusedError as error:
            if commit or self._states.is_started or error.code is not ErrorCode.INVALID_TXN_STATE:
                raise
            return producer  # the request that was in doubt did not begin a transaction

    async def _or_doubt(self, question: Awaitable[None]) -> None:
        """Asks the coordinator to begin a transaction or to add to it; remembers if there was no answer."""
        try:
            await question
        except asyncio.CancelledError:
            self._states.doubt()
            raise

    @asynccontextmanager
    async def _call(self, name: str) -> AsyncIterator[None]:
        """One at a time, for max.block.ms."""
        limit_s = self._config.max_block_ms / 1000
        try:
            async with asyncio.timeout(limit_s) as limit, self._calling:
                yield
        except TimeoutError as error:
            if not limit.expired() or isinstance(error, OttlaError):
                raise
            why = self._dialogue.hindrance
            told = f"; the last attempt: {why}" if why else ""
            reason = f"{name}() did not finish within {limit_s:g} s (max.block.ms){told}. Call it again to go on"
            raise CallTimeoutError(reason) from why

    async def _ask(self, question: Awaitable[T]) -> T:
        """The coordinator's answer. What it refuses for good ends the transaction."""
        try:
            return await question
        except (RefusedError, UnsupportedApiError) as error:
            outcome = self._outcome(error)
            self._fail(outcome)
            raise outcome from error

    def _outcome(self, error: Exception) -> Outcome:
        outcome = error_of(error, self._id)
        if isinstance(error, RefusedError) and error.code is ErrorCode.UNKNOWN_PRODUCER_ID:
            self._states.needs_new_epoch = True
            return outcome if self._can_go_on else fatal(error)
        return outcome

    @property
    def _can_go_on(self) -> bool:
        """Whether the producer gets another epoch when it aborts."""
        return self.is_version_2 or self._dialogue.can_raise_epoch

    def _fail(self, outcome: Outcome) -> None:
        with self._gate.lock:
            if isinstance(outcome, TransactionFatalError):
                self._states.fail_fatally(outcome)
            else:
                self._states.fail(outcome)
            if self._states.drops_records:
                self._gate.disable()


def _gone(prepared: PreparedTransaction) -> FencedError:
    return FencedError(
        f"transaction {prepared} is not open any more: it took longer than transaction.timeout.ms, or a producer with "
        "its transactional.id was initialised since, which aborts it, or it was completed by another process"
    )


def _nothing() -> None:
    pass


async def _nothing_to_finish() -> None:
    pass
