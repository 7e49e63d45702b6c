"""Batches that are appended later: large ones, which a thread validates first, those whose transaction a coordinator on
another broker must confirm first, some that are costly to decompress, and whatever comes behind them.

A batch of a few kilobytes can hold millions of records. To validate it may take seconds, for which nobody else should
wait; nor should they for a batch that is compressed again in the topic's codec. Batches for its partition that come
meanwhile are held as well, so that they keep their order: what a producer sends for one partition is appended in the
order in which it came. Other partitions are not held up, nor are other producers while a coordinator is awaited.

Costly batches are shared with the threads only while there are several: of those that come in one turn of the loop, it
validates the first one itself. A batch that comes alone is answered sooner that way, and with less work.

Each batch is copied, because its frame's buffer is used again. A few threads serve the whole broker, at most two
batches of a partition at a time: while the first is appended, the next is compressed already. What takes long even for
them goes on to a single thread, and what is held is limited: large batches cost those who send them, and no more than
so much memory. Before that limit the loop waits for the threads, so that producers which send faster than their batches
can be compressed are slowed down, not refused. Owned by the loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from ottla.base.clock import Clock
from ottla.base.disk import Buffer
from ottla.base.error_codes import ErrorCode
from ottla.log.config import LogConfig
from ottla.log.errors import LargeBatchError, LogError
from ottla.log.validation import AppendInfo, PreparedBatches, must_be_recompressed, prepare
from ottla.records.layout import PRODUCER_ID_AT
from ottla.replication.errors import ReplicationError
from ottla.replication.partition import Partition

_logger = logging.getLogger(__name__)

HELD_BYTES_MAX: Final = 256 * 2**20
"""Limit for held batches; more are refused, and producers retry them."""
_SLOW_AT_BYTES: Final = 64 * 2**20
"""As much is held before the loop waits for a thread with every batch that comes."""
_PATIENCE_S: Final = 0.1
_APPENDS_A_TURN: Final = 64
_THREADS_MAX: Final = 4
"""As many batches are compressed at once, where there are as many cores: the libraries that do it need no GIL."""

AppendOutcome = AppendInfo | LogError | ReplicationError
"""The outcome of an append."""
Finish = Callable[[AppendOutcome], None]


class TransactionCheck(Protocol):
    """A batch of a transaction: `ottla.broker.transactions.verification.VerifiedBatch`."""

    def is_settled(self) -> bool: ...
    def when_settled(self, tell: Callable[[], None]) -> None: ...
    def check(self) -> None: ...


class _Held:
    """A batch, whether it needs acks=all, and the callback for its outcome. `is_shared`: a thread validates it although
    the loop could. `ahead` is set while a thread validates it before it is the first of its partition."""

    __slots__ = ("ahead", "all_replicas", "data", "finish", "is_shared", "transaction")

    def __init__(
        self, data: bytearray, all_replicas: bool, finish: Finish, transaction: TransactionCheck | None, is_shared: bool
    ) -> None:
        self.data = data
        self.all_replicas = all_replicas
        self.finish = finish
        self.transaction = transaction
        self.is_shared = is_shared
        self.ahead: Future[PreparedBatches] | None = None

    def must_wait(self) -> bool:
        """Whether the coordinator must confirm its transaction first."""
        return self.transaction is not None and not self.transaction.is_settled()


def _producer_of(records: Buffer) -> bytes:
    """Its id, as it is encoded."""
    return bytes(memoryview(records)[PRODUCER_ID_AT : PRODUCER_ID_AT + 8])


class HeldProduces:
    """See the module."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._threads = ThreadPoolExecutor(min(os.cpu_count() or 1, _THREADS_MAX), "ottla-validation")
        self._thread_for_large = ThreadPoolExecutor(1, "ottla-large-validation")
        self._validating: set[Future[PreparedBatches]] = set()
        """By one of the few threads, or just done."""
        self._is_closed = False
        self.queues: dict[Partition, deque[_Held]] = {}
        """The held batches of each partition, in order; the first is being validated. No queue is empty."""
        self.held_bytes = 0
        self._costly_in_turn = 0

    def should_share(self, partition: Partition) -> bool:
        """Whether a thread should validate a batch that is costly, but not too large for the loop: if it is not the
        loop's first one in this turn, or if others of its partition are held."""
        queue = self.queues.get(partition)
        if queue is not None:
            return bool(queue) and not queue[0].must_wait()
        self._costly_in_turn += 1
        if self._costly_in_turn == 1:
            self._loop.call_soon(self._end_turn)
            return False
        return not self._is_closed

    def _end_turn(self) -> None:
        self._costly_in_turn = 0

    def hold(
        self,
        partition: Partition,
        records: Buffer,
        *,
        all_replicas: bool,
        finish: Finish,
        transaction: TransactionCheck | None = None,
        is_shared: bool = False,
    ) -> None:
        """Appends the records when all held before them are, and then calls `finish` with what became of them: at once
        where they cannot be held."""
        if self.held_bytes + len(records) > HELD_BYTES_MAX or self._is_closed:
            reason = f"{self.held_bytes} bytes of large batches are waiting for validation: retry later"
            finish(ReplicationError(ErrorCode.REQUEST_TIMED_OUT, reason))
            return
        self.held_bytes += len(records)
        if self.held_bytes > _SLOW_AT_BYTES and self._validating:
            wait(self._validating, _PATIENCE_S, FIRST_COMPLETED)
        held = _Held(bytearray(records), all_replicas, finish, transaction, is_shared)
        queue = self.queues.get(partition)
        if queue is None:
            self.queues[partition] = deque([held])
            if held.must_wait():
                self._wait(partition, held)
            else:
                self._validate(partition, held)
        else:
            queue.append(held)
            self._look_ahead(partition)

    def holds_up(self, partition: Partition, records: Buffer) -> bool:
        """Whether the records must wait behind others of their partition. While a coordinator is awaited, which may
        take long, only those of the same producers must."""
        queue = self.queues.get(partition)
        if queue is None:
            return False
        if not queue or not queue[0].must_wait():
            return True
        producer = _producer_of(records)
        return any(_producer_of(held.data) == producer for held in queue)

    def close(self) -> None:
        """Drops all held batches: their connections are closed."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._thread_for_large.shutdown(wait=False, cancel_futures=True)
        self.queues.clear()
        self._validating.clear()

    def _wait(self, partition: Partition, held: _Held) -> None:
        """Goes on when the coordinator has answered for the first batch of the partition."""
        if held.transaction is not None:
            held.transaction.when_settled(partial(self._go_on, partition))

    def _validate(self, partition: Partition, held: _Held, *, is_large: bool = False) -> None:
        """`is_large`: it takes long even for a thread, as far as is known."""
        log = partition.log
        if log is None:
            self._end(partition, held, self._attempt(partition, held, held.data))
            return
        try:
            validated = self._submit(held, log.config, is_large=is_large)
        except Exception as error:  # for example, no thread can be started
            _logger.exception("a batch for %s could not be handed to a thread that validates", partition.name)
            self._loop.call_soon(self._refused, partition, held, LogError(repr(error)))
        else:
            validated.add_done_callback(partial(self._from_thread, partition, held))
            self._look_ahead(partition)

    def _submit(self, held: _Held, config: LogConfig, *, is_large: bool = False) -> Future[PreparedBatches]:
        threads = self._thread_for_large if is_large else self._threads
        work = partial(prepare, held.data, now_ms=self._clock.now_ms(), config=config, bounded=not is_large)
        validated = threads.submit(work)
        if not is_large:
            self._validating.add(validated)
        return validated

    def _look_ahead(self, partition: Partition) -> None:
        """Has the second batch of a partition validated while the first is, if it is shared or must be compressed
        again."""
        queue, log = self.queues[partition], partition.log
        if len(queue) < 2 or log is None:
            return
        held = queue[1]
        if held.ahead is None and (held.is_shared or must_be_recompressed(held.data, log.config)):
            with suppress(RuntimeError):  # no thread can be started: it is tried again when it is the first
                held.ahead = self._submit(held, log.config)

    def _refused(self, partition: Partition, held: _Held, error: LogError) -> None:
        """Removes a batch that cannot be validated, so that the partition does not wait for it."""
        if not self._is_closed:
            self._end(partition, held, error)

    def _from_thread(self, partition: Partition, held: _Held, validated: Future[PreparedBatches]) -> None:
        if not self._is_closed:
            self._loop.call_soon_threadsafe(self._validated, partition, held, validated)

    def _validated(self, partition: Partition, held: _Held, validated: Future[PreparedBatches]) -> None:
        self._validating.discard(validated)
        if self._is_closed:
            return
        error = validated.exception()
        if error is None:
            prepared, log = validated.result(), partition.log
            if log is not None and log.config is not prepared.config:  # it changed meanwhile
                self._validate(partition, held)
                return
            outcome = self._attempt(partition, held, prepared)
        elif isinstance(error, LargeBatchError):
            self._validate(partition, held, is_large=True)
            return
        elif isinstance(error, LogError):
            outcome = error
        else:
            _logger.error("a batch for %s could not be validated", partition.name, exc_info=error)
            outcome = LogError(repr(error))
        self._end(partition, held, outcome)

    def _end(self, partition: Partition, held: _Held, outcome: AppendOutcome) -> None:
        """Reports the outcome of a partition's first batch, and continues with the next ones."""
        self._tell(partition, held, outcome)
        self._go_on(partition)

    def _tell(self, partition: Partition, held: _Held, outcome: AppendOutcome) -> None:
        self.queues[partition].popleft()
        self.held_bytes -= len(held.data)
        try:
            held.finish(outcome)
        except Exception:
            _logger.exception("an append to %s could not be answered", partition.name)

    def _go_on(self, partition: Partition) -> None:
        """Appends held batches up to the next large one, some in each iteration of the loop."""
        if self._is_closed:
            return
        queue = self.queues[partition]
        for _ in range(_APPENDS_A_TURN):
            if not queue:
                del self.queues[partition]
                return
            held = queue[0]
            if held.must_wait():
                self._wait(partition, held)
                return
            if held.ahead is not None:
                ahead, held.ahead = held.ahead, None
                self._look_ahead(partition)
                ahead.add_done_callback(partial(self._from_thread, partition, held))
                return
            try:
                outcome = self._attempt(partition, held, memoryview(held.data), bounded=True)
            except LargeBatchError:
                self._validate(partition, held)
                return
            self._tell(partition, held, outcome)
        self._loop.call_soon(self._go_on, partition)

    def _attempt(
        self, partition: Partition, held: _Held, records: Buffer | PreparedBatches, *, bounded: bool = False
    ) -> AppendOutcome:
        if error := partition.check_leader():  # this broker may have lost the leadership or the partition
            return ReplicationError(error, f"{partition.name} can no longer be written to on this broker")
        try:
            if held.transaction is not None:
                held.transaction.check()
            return partition.append(records, all_replicas=held.all_replicas, bounded=bounded)
        except LargeBatchError:
            raise
        except (LogError, ReplicationError) as failure:
            return failure
        except Exception as error:
            _logger.exception("an append to %s failed", partition.name)
            return LogError(repr(error))
