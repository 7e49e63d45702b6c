"""Sends batches to brokers, and reports their results: the part of a producer that runs in the loop.

`look` does everything: it takes what is due, partition by partition, up to what the channels to the leaders can carry,
and says when it wants to look again. It is called when the accumulator wakes the loop, when a timer fires, and when a
response made room.

Batches that fail with a retriable error are put back in their place and sent again, with increasing delays, until
delivery.timeout.ms is over. `identity` explains what a response means for the order of a partition.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.cluster import Cluster, may_pass
from ottla.client.config import ProducerConfig
from ottla.client.errors import (
    ClientError,
    ClosedError,
    DeliveryTimeoutError,
    RecordTooLargeError,
    RefusedError,
    UnknownPartitionError,
    raise_if_refused,
)
from ottla.client.produce.accumulator import Accumulator
from ottla.client.produce.batch import Batch, Outcome
from ottla.client.produce.channel import Answers, Channel
from ottla.client.produce.delivery import NO_OFFSET
from ottla.client.produce.encoding import Encoder, halves, sign
from ottla.client.produce.interceptors import Interceptors
from ottla.client.produce.queues import PartitionQueue
from ottla.client.transactions.coordination import ProducerTransactions
from ottla.client.transactions.dialogue import CONCURRENT_BACKOFF_S
from ottla.client.transactions.identity import Identity
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.produce import ProducePartitionResponse

if TYPE_CHECKING:
    from ottla.client.produce.fast_wait import FastWait

_NO_TRANSACTION: Final = 2**31 - 1
MISSING_MAX_S: Final = 10.0
"""How long a partition may be missing in new metadata before batches for it fail."""
_REQUEST_OVERHEAD_BYTES: Final = 512
_SEQUENCE_REFUSED: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
_IDENTITY_REFUSED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class Sender:
    """Belongs to one producer; created and used in the loop."""

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        accumulator: Accumulator,
        encoder: Encoder,
        interceptors: Interceptors,
        transactions: ProducerTransactions | None = None,
    ) -> None:
        self.first_failure: Exception | None = None
        """The first failure that nobody checked since the last report."""
        self.counts = {"batches": 0, "records": 0, "bytes": 0, "requests": 0, "retries": 0, "failed_records": 0}
        self._config = config
        self._cluster = cluster
        self._accumulator = accumulator
        self._interceptors = interceptors
        self._encoder = encoder
        self._transactions = transactions
        self._loop = asyncio.get_running_loop()
        self._channels: dict[int, Channel] = {}
        self._identity: Identity | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: dict[object, asyncio.Task[None]] = {}
        """Background work, one task of each kind: connecting, refreshing leaders, getting a producer id."""
        self._missing_since_s: dict[TopicPartition, float] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._in_flight_max = config.max_in_flight_requests_per_connection
        self._is_closed = False

    async def close(self) -> None:
        """Ends at once: what is not done by now has failed."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *(channel.close() for channel in self._channels.values()), return_exceptions=True)
        fast = self._accumulator.fast_wait
        if fast is not None:
            fast.close()
        for batch in self._accumulator.refuse():
            self._remove(batch)
            if batch.outcome is None:
                self._settle(batch, _failed(ClosedError("the producer was closed before the record was acknowledged")))
        self._accumulator.take_half_settled()
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    # Looking.

    def look(self) -> None:
        """Sends what is due and can be sent."""
        if self._is_closed:
            return
        accumulator = self._accumulator
        accumulator.begin_look()
        accumulator.take_half_settled()
        now_s = monotonic()
        in_hurry = accumulator.is_in_hurry
        next_at_s = self._expire(now_s)
        by_leader: dict[int, list[PartitionQueue]] = {}
        leaderless: set[str] = set()
        for queue in list(accumulator.active) if self._transactions is None else self._active_in_transaction():
            if queue.has_refused and queue.is_all_refused:
                queue.number_anew()
            at_s = queue.due_at_s(in_hurry, self._in_flight_max)
            if at_s > now_s:
                next_at_s = min(next_at_s, at_s)
                continue
            leader_id = self._cluster.known_leader(queue.partition)
            if leader_id is None:
                leaderless.add(queue.partition.topic)
            elif not queue.in_flight or queue.leader_id == leader_id:
                by_leader.setdefault(leader_id, []).append(queue)
        if by_leader and self._config.enable_idempotence and self._identity is None:
            if self._transactions is None:
                self._in_background("identity", self._identify())
            by_leader = {}
        for leader_id, queues in by_leader.items():
            self._fill(leader_id, queues, now_s)
        if leaderless:
            self._in_background("leaders", self._learn_leaders(leaderless))
        if accumulator.fast_wait is not None:
            next_at_s = min(next_at_s, self._look_after(accumulator.fast_wait, now_s, has_sent=bool(by_leader)))
        channels = self._channels.values()
        accumulator.end_look(next_at_s, can_send=not channels or any(channel.has_room for channel in channels))
        self._look_at(next_at_s, now_s)

    def _look_at(self, at_s: float, now_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if at_s == inf else self._loop.call_later(max(0.0, at_s - now_s), self.look)

    def _look_after(self, fast: FastWait, now_s: float, *, has_sent: bool) -> float:
        """Does what threads that send batches themselves need; returns when to look again."""
        if fast.wanted is not None:
            connection = self._channels[fast.wanted].connection if fast.wanted in self._channels else None
            if connection is not None:
                self._in_background(fast, fast.open(fast.wanted, connection))
        return fast.look(now_s, self._identity, has_sent=has_sent)

    def _active_in_transaction(self) -> list[PartitionQueue]:
        """The queues whose partitions are part of the transaction; others are added in the background. What is not to
        be sent any more is dropped."""
        transactions, accumulator = self._transactions, self._accumulator
        if transactions is None:
            return list(accumulator.active)
        self._identity = transactions.identity
        for queue in list(accumulator.active):
            if queue.has_refused and queue.is_all_refused:
                queue.has_refused = False
                for batch in [one for one in list(queue.ready) if one.is_refused]:
                    self._give_up(batch, batch.last_error or ClientError(f"{queue.partition}: the sequence is refused"))
        if transactions.drops_records:
            self._drop(transactions)
        missing = [queue.partition for queue in list(accumulator.active) if not transactions.has_part(queue.partition)]
        if missing:
            self._in_background("partitions", transactions.add_partitions(missing))
        return [queue for queue in list(accumulator.active) if transactions.has_part(queue.partition)]

    def _drop(self, transactions: ProducerTransactions) -> None:
        """What was never sent. Batches that a broker may have are sent until it is known, unless the producer can do
        nothing more."""
        error = transactions.aborted_error()
        for batch in list(self._accumulator.unfinished):
            is_done = batch.outcome is not None or batch in batch.queue.in_flight
            if not is_done and (batch.sequence is None or transactions.is_fatal):
                self._remove(batch)
                self._settle(batch, _failed(error))

    def _fill(self, leader_id: int, queues: Sequence[PartitionQueue], now_s: float) -> None:
        channel = self._channels.get(leader_id)
        if channel is None:
            channel = Channel(leader_id, self._config, self._cluster, self._answered, self._transactions)
            self._channels[leader_id] = channel
        if not channel.is_connected:
            self._in_background(channel, self._connect(channel, {queue.partition.topic for queue in queues}))
            return
        if self._transactions is not None and self._transactions.is_version_2 and not channel.adds_partitions:
            queues = self._known_parts(queues, self._transactions)
        in_hurry = self._accumulator.is_in_hurry
        while channel.has_room:
            batches: list[Batch] = []
            left = self._config.max_request_size - _REQUEST_OVERHEAD_BYTES
            for queue in queues:
                if queue.due_at_s(in_hurry, self._in_flight_max) > now_s:
                    continue
                batch = self._next_of(queue, left if batches else None)
                if batch is not None:
                    queue.leader_id = leader_id
                    batches.append(batch)
                    left -= len(batch.encoded or b"")
            if not batches:
                return
            self.counts["requests"] += 1
            if self._transactions is not None:
                self._transactions.sends()
            channel.send(batches)

    def _known_parts(
        self, queues: Sequence[PartitionQueue], transactions: ProducerTransactions
    ) -> Sequence[PartitionQueue]:
        """Those whose partitions are part of the transaction. The others are added, because their leader does not; if
        the transaction is to be aborted, what an earlier leader may have got of them is given up."""
        missing = [queue for queue in queues if not transactions.is_known_part(queue.partition)]
        if missing and transactions.drops_records:
            error = transactions.aborted_error()
            for batch in [batch for queue in missing for batch in list(queue.ready)]:
                self._give_up(batch, error)
        elif missing:
            self._in_background("partitions", transactions.add_partitions([queue.partition for queue in missing]))
        return [queue for queue in queues if transactions.is_known_part(queue.partition)]

    def _next_of(self, queue: PartitionQueue, limit: int | None) -> Batch | None:
        """Returns the next batch, encoded and signed, and in flight from now on; None if it cannot be sent yet, or is
        above the limit."""
        accumulator = self._accumulator
        with accumulator.lock:
            if queue.open is not None and not queue.ready:
                accumulator.close(queue.open)
            batch = queue.first
            if batch is None or batch.is_encoding:  # a thread may have filled and closed it since the last look
                return None
        if batch.encoded is None and not self._encode(batch):
            return None
        if limit is not None and len(batch.encoded or b"") > limit:
            return None
        if self._identity is not None and batch.sequence is None and not self._number(queue, batch, self._identity):
            return None
        with accumulator.lock:
            queue.ready.remove(batch)
            if queue.open is None and not queue.ready:  # no call in between: a `__del__` may send
                accumulator.active.pop(queue, None)
        batch.attempts += 1
        queue.in_flight.append(batch)
        return batch

    def _encode(self, batch: Batch) -> bool:
        """Returns whether it is done; long work is done in a thread, and checked again later."""
        if not self._encoder.is_heavy(batch):
            try:
                self._take_bytes(batch, self._encoder.encode(batch))
            except Exception as error:
                self._refuse_to_encode(batch, error)
                return False
            return True
        if self._threads is None:
            self._threads = ThreadPoolExecutor(2, "ottla-compress")
        batch.is_encoding = True
        work = self._loop.run_in_executor(self._threads, self._encoder.encode, batch)
        work.add_done_callback(lambda done: self._encoded(batch, done))
        return False

    def _encoded(self, batch: Batch, done: asyncio.Future[bytearray]) -> None:
        batch.is_encoding = False
        if self._is_closed or done.cancelled() or batch.outcome is not None:
            return
        error = done.exception()
        if isinstance(error, Exception):
            self._refuse_to_encode(batch, error)
        elif error is None:
            self._take_bytes(batch, done.result())
        self.look()

    def _take_bytes(self, batch: Batch, encoded: bytearray) -> None:
        batch.encoded = encoded
        batch.drop_records()
        sign(batch)  # parts of a split batch already have sequence numbers

    def _refuse_to_encode(self, batch: Batch, error: Exception) -> None:
        self._remove(batch)
        self._settle(batch, _failed(ClientError(f"records for {batch.partition} cannot be encoded: {error}"), error))
        self._accumulator.wake()  # for the batches after it

    def _number(self, queue: PartitionQueue, batch: Batch, identity: Identity) -> bool:
        sequences = queue.sequences
        if not queue.in_flight:
            if not sequences.can_go_on_as(identity):
                if self._transactions is None:  # else it has failed, and gets another identity when it is aborted
                    self._identity = None
                    self._accumulator.wake()
                return False
            if sequences.settle_as(identity):
                # The batches after it were refused, too, or never sent: no broker has them.
                for other in list(queue.ready):
                    other.sequence = None
        elif sequences.is_broken:
            return False
        sequences.number(batch)
        sign(batch)
        return True

    # Responses.

    def _answered(self, batches: Sequence[Batch], outcome: Answers | Exception) -> None:
        for batch in batches:
            if batch.outcome is not None:
                continue  # it was given up meanwhile
            if isinstance(outcome, Exception):
                self._failed_for(batch, outcome)
                continue
            answer = outcome.get(batch.queue.partition)
            if answer is None:
                self._failed_for(batch, ClientError(f"the broker's answer does not mention {batch.partition}"))
            elif answer.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._arrived(batch, answer)
            else:
                self._refused(batch, answer)
        self.look()

    def _arrived(self, batch: Batch, answer: ProducePartitionResponse) -> None:
        queue = batch.queue
        queue.in_flight.remove(batch)
        queue.not_before_s = 0.0
        if self._transactions is not None:
            self._transactions.acknowledged(queue.partition)
        for other in queue.take_arrival(batch):
            self._remove(other)
            self._succeed(other, Outcome())
        self._succeed(batch, Outcome(answer.base_offset, answer.log_append_time_ms))

    def _succeed(self, batch: Batch, outcome: Outcome) -> None:
        counts = self.counts
        counts["batches"] += 1
        counts["records"] += batch.count
        counts["bytes"] += len(batch.encoded or b"")
        self._settle(batch, outcome)

    def _refused(self, batch: Batch, answer: ProducePartitionResponse) -> None:
        code = ErrorCode.of(answer.error_code)
        error = _refusal(batch, answer)
        sequences = batch.queue.sequences
        if code in _TOO_LARGE and batch.count > 1:
            self._split(batch)
        elif code in _SEQUENCE_REFUSED and batch.sequence is not None:
            if batch.queue.refuse(batch):
                self._arrived(batch, ProducePartitionResponse(base_offset=NO_OFFSET))
            else:
                self._try_again(batch, error)
        elif code in _IDENTITY_REFUSED and batch.sequence is not None and self._transactions is None:
            sequences.is_broken = True
            batch.sequence = self._identity = None
            self._try_again(batch, error)
        elif code in _TOO_LARGE:
            reason = f"a record for {batch.partition} is larger than its broker takes (max.message.bytes of the topic)"
            self._give_up(batch, RecordTooLargeError(f"{reason}: {error}"), error)
        else:
            self._failed_for(batch, error)

    def _failed_for(self, batch: Batch, error: Exception) -> None:
        if may_pass(error):
            self._cluster.distrust(batch.partition.topic)
            self._try_again(batch, error)
        else:
            self._give_up(batch, error)

    def _try_again(self, batch: Batch, error: Exception) -> None:
        batch.last_error = error
        if batch.attempts > self._config.retries:
            self._give_up(batch, error)
            return
        self.counts["retries"] += 1
        queue = batch.queue
        with self._accumulator.lock:
            queue.put_back(batch)
            self._accumulator.active[queue] = None
        is_concurrent = isinstance(error, RefusedError) and error.code is ErrorCode.CONCURRENT_TRANSACTIONS
        queue.not_before_s = monotonic() + (CONCURRENT_BACKOFF_S if is_concurrent else self._backoff_s(batch.attempts))

    def _backoff_s(self, attempts: int) -> float:
        config = self._config
        wait_ms = min(config.retry_backoff_ms * 2 ** min(attempts - 1, 30), config.retry_backoff_max_ms)
        return float(wait_ms) / 1000 * random.uniform(0.8, 1.2)

    def _split(self, batch: Batch) -> None:
        """Divides its records into two requests; together they keep its sequence numbers."""
        queue, parts = batch.queue, halves(batch)
        batch.reserved_bytes = 0
        with self._accumulator.lock:
            queue.in_flight.remove(batch)
            for part in parts:
                self._accumulator.unfinished[part] = None
                queue.in_flight.append(part)
                queue.put_back(part)
            self._accumulator.active[queue] = None
        batch.settle_by_parts(parts)
        self._accumulator.forget(batch)

    def _expire(self, now_s: float) -> float:
        """Gives up what took too long; returns when the next could expire."""
        for oldest in self._accumulator.unfinished:
            if oldest.deadline_s > now_s:
                return oldest.deadline_s
            break
        next_at_s = inf
        for batch in list(self._accumulator.unfinished):  # in the order of their creation
            if batch.deadline_s > now_s:
                next_at_s = batch.deadline_s
                break
            waited_s = self._config.delivery_timeout_ms / 1000
            why = f"; the last attempt of {batch.attempts}: {batch.last_error}" if batch.last_error else ""
            reason = f"{batch.partition}: not acknowledged within {waited_s:g} s (delivery.timeout.ms){why}"
            self._give_up(batch, DeliveryTimeoutError(reason), batch.last_error)
        return next_at_s

    def _give_up(self, batch: Batch, error: Exception, cause: Exception | None = None) -> None:
        if batch.outcome is not None:
            return  # It was dropped meanwhile, with its transaction.
        self._remove(batch)
        if batch.outcome is not None:
            return  # A thread that sent it itself was faster.
        if batch.sequence is not None:
            batch.queue.sequences.is_broken = True
        self._settle(batch, _failed(error, cause))

    def _remove(self, batch: Batch) -> None:
        """Removes the batch from wherever it is."""
        queue = batch.queue
        with self._accumulator.lock:
            if queue.open is batch:
                self._accumulator.close(batch)
            if batch in queue.in_flight:
                queue.in_flight.remove(batch)
            elif batch in queue.ready:
                queue.ready.remove(batch)
            if queue.open is None and not queue.ready:
                self._accumulator.active.pop(queue, None)

    def _settle(self, batch: Batch, outcome: Outcome) -> None:
        self._accumulator.forget(batch)
        if outcome.error is not None:
            self.counts["failed_records"] += batch.count
            if self._transactions is not None:
                self._transactions.batch_failed(outcome.error, is_numbered=batch.sequence is not None)
            elif not batch.is_watched:
                self.first_failure = self.first_failure or outcome.error
        if self._interceptors:
            self._interceptors.acknowledge(batch, outcome)
        batch.settle(outcome)

    # In the background.

    def _in_background(self, kind: object, work: Coroutine[Any, Any, None]) -> None:
        """Starts the work unless a task of the kind is running; looks again when it is done."""
        if kind in self._tasks:
            work.close()
            return
        task = self._loop.create_task(work)
        self._tasks[kind] = task

        def done(task: asyncio.Task[None]) -> None:
            del self._tasks[kind]
            if not task.cancelled():
                task.result()
                self.look()

        task.add_done_callback(done)

    async def _connect(self, channel: Channel, topics: Iterable[str]) -> None:
        try:
            await channel.connect()
        except Exception as error:
            # The brokers may know another leader by now.
            self._blame(topics, error)
            await self._ask_for_leaders(topics)

    async def _learn_leaders(self, topics: Iterable[str]) -> None:
        await self._ask_for_leaders(topics)
        if any(self._cluster.known_topic(topic) is None for topic in topics):
            gone = ", ".join(sorted(topics))
            self._blame(topics, RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {gone}"))
        self._drop_for_missing(topics)

    def _drop_for_missing(self, topics: Iterable[str]) -> None:
        """Fails batches for partitions that topics have no more. Partitions are never removed, so the topic was created
        again with fewer; but for a moment a broker may not know that others were added."""
        now_s = monotonic()
        for batch in list(self._accumulator.unfinished):
            name, index = partition = batch.partition
            info = self._cluster.known_topic(name) if name in topics else None
            if info is None:
                continue
            if index < len(info.partitions):
                self._missing_since_s.pop(partition, None)
                continue
            missing_s = now_s - self._missing_since_s.setdefault(partition, now_s)
            if missing_s >= MISSING_MAX_S and batch not in batch.queue.in_flight:
                there = f"topic {name!r} has partitions 0 to {len(info.partitions) - 1} now, not {index}"
                self._give_up(batch, UnknownPartitionError(f"{there}: it was created again with fewer"))

    async def _ask_for_leaders(self, topics: Iterable[str]) -> None:
        try:
            await self._cluster.refresh(topics)
        except Exception as error:
            self._blame(topics, error)
        await asyncio.sleep(self._backoff_s(1))

    def _blame(self, topics: Iterable[str], error: Exception) -> None:
        """Remembers what prevents batches of these topics from being sent; errors that are not retriable fail them."""
        for batch in list(self._accumulator.unfinished):
            if batch.partition.topic in topics and batch not in batch.queue.in_flight:
                batch.last_error = error
                if not may_pass(error):
                    self._give_up(batch, error)

    async def _identify(self) -> None:
        """Gets a producer id; without one nothing can be sent."""
        try:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION)
            answer = await self._cluster.send_to_any(request, InitProducerIdResponse)
            raise_if_refused(answer.error_code, "an id for the producer (enable.idempotence)")
            self._identity = Identity(answer.producer_id, answer.producer_epoch)
        except Exception as error:
            self._blame({queue.partition.topic for queue in list(self._accumulator.active)}, error)
            await asyncio.sleep(self._backoff_s(1))


def _failed(error: Exception, cause: Exception | None = None) -> Outcome:
    if cause is not None and error.__cause__ is None:
        error.__cause__ = cause
    return Outcome(error=error)


def _refusal(batch: Batch, answer: ProducePartitionResponse) -> RefusedError:
    message = answer.error_message
    if answer.record_errors and answer.record_errors[0].batch_index_error_message:
        message = answer.record_errors[0].batch_index_error_message
    return RefusedError(answer.error_code, f"partition {batch.partition}", message)
