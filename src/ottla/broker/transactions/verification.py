"""Asks the coordinator of a transaction before a batch begins it in a partition (KIP-890).

    Produce, TxnOffsetCommit ─▶ Verifier.batch ─▶ VerifiedBatch: is_settled? ─ yes ─▶ check, append
                                                    │ no: when_settled
                 own coordinator: a call ◀──────────┴─────▶ another broker: AddPartitionsToTxn (`coordinator_queries`)

A batch whose transaction is open in the partition needs no confirmation. Producers of newer versions do not add
partitions to their transactions themselves: then the question adds the partition. `check` must come immediately before
the append: it refuses a batch if a marker was written meanwhile. Owned by the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from struct import Struct
from typing import Any, Final, Protocol

from ottla.base.clock import Clock
from ottla.base.disk import Buffer
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.broker.coordinators.coordinator_log import ReplicatedCoordinatorLog
from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.broker.transactions.coordinator_queries import CoordinatorQueries, TransactionKey
from ottla.coordinator.partitioning import partition_for
from ottla.coordinator.seams import Timers
from ottla.log.verification import Verification
from ottla.records.layout import HEADER_SIZE, PRODUCER_ID_AT
from ottla.replication.errors import ReplicationError
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas

_logger = logging.getLogger(__name__)

_NONE: Final = ErrorCode.NONE
_PRODUCER: Final = Struct(">qhi")
"""Producer id, producer epoch and base sequence of a batch."""
_RETRY_S: Final = 0.002
_RETRY_MAX_S: Final = 0.05
_PATIENCE_S: Final = 1.0
"""As long as the own coordinator waits for the previous transaction."""
Confirmed = dict[TopicPartition, ErrorCode]


class Confirming(Protocol):
    """The own `TransactionCoordinatorService`."""

    def confirm(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: tuple[TopicPartition, ...],
        *,
        verify_only: bool,
    ) -> Confirmed | Coroutine[Any, Any, Confirmed]: ...


class VerificationStats:
    """For metrics."""

    def __init__(self) -> None:
        self.failures = 0
        self.asked = 0
        """Questions that took time."""
        self.time_s = 0.0
        """Time that batches waited for answers."""


class VerifiedBatch:
    """A transactional batch on its way to the log. `failure_code` is the coordinator's refusal, once it is settled."""

    __slots__ = (
        "_adds",
        "_guard",
        "_is_asked",
        "_is_settled",
        "_partition",
        "_produce_version",
        "_tell",
        "_transactional_id",
        "_verifier",
        "failure_code",
        "producer_epoch",
        "producer_id",
        "sequence",
    )

    def __init__(
        self,
        verifier: Verifier,
        partition: Partition,
        transactional_id: str,
        producer: tuple[int, int, int],
        *,
        adds: bool,
        produce_version: int,
    ) -> None:
        self._verifier = verifier
        self._partition = partition
        self._transactional_id = transactional_id
        self.producer_id, self.producer_epoch, self.sequence = producer
        self._adds = adds
        self._produce_version = produce_version
        self._guard: Verification | None = None
        self._is_asked = False
        self._is_settled = False
        self._tell: Callable[[], None] | None = None
        self.failure_code = _NONE

    def is_settled(self) -> bool:
        """Whether it can be appended or refused now. The first call asks the coordinator, if that is necessary."""
        if self._is_asked:
            return self._is_settled
        self._is_asked = True
        log = self._partition.log
        if log is not None:
            self._guard = log.producers.begin_verification(
                self.producer_id,
                self.producer_epoch,
                self.sequence,
                log.clock.now_ms(),
                epoch_rises=self._adds,
            )
        if self._guard is None:  # its transaction is open, or the append will fail
            self._is_settled = True
            return True
        try:
            answer = self._verifier.ask(self)
        except Exception:  # the batch is refused; the partition must not wait for an answer that never comes
            _logger.exception("%s: the coordinator of %r could not be asked", self.name, self._transactional_id)
            answer = ErrorCode.UNKNOWN_SERVER_ERROR
        if answer is None:
            return False
        self.failure_code = answer
        self._is_settled = True
        return True

    def when_settled(self, tell: Callable[[], None]) -> None:
        """Calls back when it is settled, immediately if it is."""
        if self._is_settled:
            tell()
        else:
            self._tell = tell

    def settle(self, answer: ErrorCode) -> None:
        self.failure_code = answer
        self._is_settled = True
        tell, self._tell = self._tell, None
        if tell is not None:
            tell()

    def check(self) -> None:
        """Immediately before the append, once it is settled. Raises `LogError` or `ReplicationError`."""
        if self.failure_code:
            raise produce_failure(self.failure_code, self._produce_version)
        log = self._partition.log
        if log is not None:
            log.producers.check_verified(self.producer_id, self.producer_epoch, self.sequence, self._guard)

    @property
    def key(self) -> TransactionKey:
        return TransactionKey(self._transactional_id, self.producer_id, self.producer_epoch, not self._adds)

    @property
    def name(self) -> TopicPartition:
        return self._partition.name


class Verifier:
    """See the module. `run` starts a coroutine that nobody awaits. `queries` is None in a broker without others."""

    def __init__(
        self,
        own: Confirming,
        log: ReplicatedCoordinatorLog,
        replicas: Replicas,
        metadata: MetadataCache,
        clock: Clock,
        timers: Timers,
        run: Callable[[Coroutine[Any, Any, None]], object],
        queries: CoordinatorQueries | None,
    ) -> None:
        self._own = own
        self._log = log
        self._replicas = replicas
        self._metadata = metadata
        self._clock = clock
        self._timers = timers
        self._run = run
        self.queries = queries
        self.is_enabled = True
        """`transaction.partition.verification.enable`."""
        self.stats = VerificationStats()

    def batch(
        self, partition: Partition, transactional_id: str, records: Buffer, *, version: int
    ) -> VerifiedBatch | None:
        """For a transactional batch in a produce request of that version. None if nothing needs to be confirmed."""
        if len(records) < HEADER_SIZE:
            return None  # the log will refuse it
        producer = _PRODUCER.unpack_from(records, PRODUCER_ID_AT)
        return self.part(partition, transactional_id, producer, adds=version >= ADDS_SINCE, produce_version=version)

    def part(
        self,
        partition: Partition,
        transactional_id: str,
        producer: tuple[int, int, int],
        *,
        adds: bool,
        produce_version: int = 0,
    ) -> VerifiedBatch | None:
        """The same for a producer, by its id, epoch and sequence number; `adds` if the producer does not add the
        partition itself."""
        if not self.is_enabled and not adds:
            return None
        return VerifiedBatch(self, partition, transactional_id, producer, adds=adds, produce_version=produce_version)

    def ask(self, batch: VerifiedBatch) -> ErrorCode | None:
        """The answer, or None if it comes later."""
        key, name = batch.key, batch.name
        count = self._log.partition_count
        if not count:
            return self._counted(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        index = partition_for(key.transactional_id, count)
        topic = self._log.topic
        hosted = self._replicas.get(topic, index)
        if hosted is not None and hosted.is_leader:
            found = self._own.confirm(*key[:3], (name,), verify_only=key.verify_only)
            if isinstance(found, dict):
                return self._counted(found[name])
            self._run(self._confirmed_later(batch, found))
            return None
        known = self._metadata.partition(topic, index)
        if known is None or self.queries is None or not self._metadata.is_alive(known.leader):
            return self._counted(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._ask_again(batch, self.queries, known.leader, self._clock.monotonic_s(), _RETRY_S)
        return None

    def _ask_again(
        self, batch: VerifiedBatch, queries: CoordinatorQueries, broker_id: int, started_s: float, delay_s: float
    ) -> None:
        """Asks another broker. While the previous transaction is being completed, which takes milliseconds, the
        question is repeated: producers would wait much longer before they try again."""

        def answered(error: ErrorCode) -> None:
            if error is ErrorCode.CONCURRENT_TRANSACTIONS and self._clock.monotonic_s() - started_s < _PATIENCE_S:
                again = partial(self._ask_again, batch, queries, broker_id, started_s, min(delay_s * 2, _RETRY_MAX_S))
                self._timers.call_later(delay_s, again)
            else:
                self._answered(batch, error, started_s)

        queries.ask(broker_id, batch.key, batch.name, answered)

    async def _confirmed_later(self, batch: VerifiedBatch, found: Coroutine[Any, Any, Confirmed]) -> None:
        started_s = self._clock.monotonic_s()
        answer = ErrorCode.UNKNOWN_SERVER_ERROR
        try:
            answer = (await found)[batch.name]
        finally:
            self._answered(batch, answer, started_s)

    def _answered(self, batch: VerifiedBatch, error: ErrorCode, started_s: float) -> None:
        self.stats.asked += 1
        self.stats.time_s += self._clock.monotonic_s() - started_s
        batch.settle(self._counted(error))

    def _counted(self, error: ErrorCode) -> ErrorCode:
        if error:
            self.stats.failures += 1
        return error


_RETRIED: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
ABORTABLE_SINCE: Final = 11
"""The version of Produce whose clients know TRANSACTION_ABORTABLE."""
ADDS_SINCE: Final = 12
"""The version of Produce whose clients do not send AddPartitionsToTxn."""


def produce_failure(code: ErrorCode, version: int) -> ReplicationError:
    """A coordinator's refusal as a producer of that version of Produce is told. Older clients do not retry correctly
    after a coordinator's errors; they do after NOT_ENOUGH_REPLICAS, and without asking for metadata."""
    if code in _RETRIED or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_SINCE):
        reason = f"it cannot be verified now that the partition belongs to the transaction: {code.name}"
        return ReplicationError(ErrorCode.NOT_ENOUGH_REPLICAS, reason)
    code = known_to_producers(code, abortable=version >= ABORTABLE_SINCE)
    if code is ErrorCode.INVALID_TXN_STATE:
        return ReplicationError(code, "the partition was not added to the transaction")
    return ReplicationError(code, code.description)


def known_to_producers(code: ErrorCode, *, abortable: bool) -> ErrorCode:
    """`abortable`: the client knows TRANSACTION_ABORTABLE."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code
