"""Collects records: one open batch per partition, within a limit of memory.

Any thread adds records; the loop takes batches. The loop is woken only if it would otherwise look too late: for the
first batch of a linger, and for a full one while a broker could take it.

A lock costs a third of what a record costs. So open batches take records without a lock (`batch` explains how), and the
lock is needed only where a batch is opened, closed, or has no more room that was counted.

A signal handler, or a `__del__` that the garbage collector calls, may call `send`, `flush` or `close` in the middle of
a `send` of its own thread, which then continues. The lock does not keep them apart: it is reentrant, and while such a
call waits for the loop, the lock is released (`wait`). Two rules do:

    A batch is busy while it is being appended to under the lock. Whoever else finds it busy closes it; the appending
    code notices.
    A queue is changed in one step, without a call, an allocation or a loop, because CPython runs other code only there;
    and only if the queue is still in the state that the change was prepared for.

Memory is counted per batch, not per record: an open batch reserves all it may hold, and returns what it did not use
when it is closed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from math import inf
from sys import intern
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.base.ids import TopicPartition
from ottla.client.callbacks import Callbacks
from ottla.client.config import ProducerConfig
from ottla.client.errors import ClientError, ClosedError
from ottla.client.metadata import TopicInfo
from ottla.client.produce.batch import Batch, Outcome
from ottla.client.produce.delivery import Delivery
from ottla.client.produce.identity import Sequences, TransactionSequences
from ottla.client.produce.partitioners import TopicPartitioner
from ottla.client.produce.queues import PartitionQueue, TopicQueues
from ottla.client.produce.record import PreparedRecord
from ottla.records.layout import HEADER_SIZE

if TYPE_CHECKING:
    from ottla.client.produce.fast_wait import FastWait

T = TypeVar("T")


class Accumulator:
    """Belongs to one producer."""

    def __init__(self, config: ProducerConfig, wake: Callable[[], object], callbacks: Callbacks) -> None:
        """`wake` makes the loop call the sender soon; any thread may call it."""
        self.lock = threading.RLock()
        self.callbacks = callbacks
        self.unfinished: dict[Batch, None] = {}
        """All unfinished batches, in the order of their creation."""
        self.active: dict[PartitionQueue, None] = {}
        """Queues with something to send."""
        self.next_look_s = inf
        """When the loop looks by itself."""
        self.can_send = True
        """Whether a broker could take a full batch right now."""
        self.full: dict[Batch, int] = {}
        """Batches that were closed because they were full, and the thread that encodes each."""
        self.flushing = 0
        self.fast_wait: FastWait | None = None
        """How threads that wait for a batch send it themselves, if they can."""
        self.patience_s = 0.0
        """How long batches linger at least, because threads will probably send them themselves."""
        self._half_settled: list[Batch] = []
        """Batches with an outcome that not everybody was told of."""
        self._config = config
        self._wake = wake
        self._is_woken = False
        self._waking: dict[int, None] = {}
        """The threads that are waking the loop just now."""
        self._batch_bytes = min(max(config.batch_size, HEADER_SIZE), max(config.buffer_memory, 1))
        self._linger_s = config.linger_ms / 1000
        self._delivery_timeout_s = config.delivery_timeout_ms / 1000
        self._free_bytes = config.buffer_memory
        self._room_wanted: list[Callable[[], object]] = []
        self._room_made = 0
        self._topics: dict[str, TopicQueues] = {}
        self.known: dict[str, TopicQueues] = {}
        """The same for callers that look a topic up without further checks; empty once the producer is closed."""
        self._is_open = config.transactional_id is None
        self.new_sequences = Sequences if config.transactional_id is None else TransactionSequences

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        return self.callbacks.loop

    # Adding records, in any thread.

    def append(self, topic: TopicQueues, partition: int | None, record: PreparedRecord) -> Delivery | None:
        """Takes the record, for this partition or, with None, for the one that records without a key stick to. Returns
        None if there is no room (`when_room`)."""
        with self.lock:
            try:
                return self._append(topic, partition, record)
            except BaseException:  # Ctrl-C: the record may be in its batch without the loop knowing
                self.wake()
                raise

    def _append(self, topic: TopicQueues, partition: int | None, record: PreparedRecord) -> Delivery | None:
        while True:
            queue = topic.queues[topic.partitioner.stick() if partition is None else partition]
            batch = queue.open
            if batch is not None:
                delivery = self._append_to(batch, record)
                if delivery is None:
                    continue  # the batch is closed, and may have completed what the partition gets for now
                if partition is None and queue.open is batch:
                    topic.sticky = batch
                return delivery
            room = max(self._batch_bytes, record.size + HEADER_SIZE)
            if not self._has_room(room):
                return None
            batch, delivery = self._new_batch(queue, room, record)
            # No call from here on.
            if not self._is_open:
                raise self._closed_meanwhile()
            if queue.open is None and queue.last_number == batch.number[0]:
                self._free_bytes -= room
                queue.open = batch
                self.unfinished[batch] = None
                self.active[queue] = None
                if partition is None:
                    topic.sticky = batch
                if batch.ripe_at_s < self.next_look_s:
                    self.wake()
                return delivery

    def _append_to(self, batch: Batch, record: PreparedRecord) -> Delivery | None:
        """Appends the record to an open batch. Closes the batch and returns None if it cannot take the record."""
        if batch.is_busy:
            self.close(batch)
            return None
        delivery, size = None, record.size
        batch.is_busy = True
        try:
            batch.count_room(size)
            if batch.left >= size and not batch.is_closed:
                if record.is_wide:
                    batch.widen()
                delivery = batch.append(record.value, record.key, record.headers, record.timestamp, size)
                batch.make_room(size)
        finally:
            batch.is_busy = False
        if delivery is None:
            self.close(batch, is_full=True)
        return delivery

    def _has_room(self, size: int) -> bool:
        """Whether memory is left. A batch that is larger than the buffer is taken if the buffer is empty."""
        return size <= self._free_bytes or self._free_bytes >= self._config.buffer_memory

    def _new_batch(self, queue: PartitionQueue, room: int, record: PreparedRecord) -> tuple[Batch, Delivery]:
        """Creates a batch with the record in it. No other code sees it yet."""
        now_s = monotonic()
        linger_s = max(self._linger_s, self.patience_s)
        batch = Batch(queue, room, now_s + linger_s, now_s + self._delivery_timeout_s)
        batch.left -= HEADER_SIZE
        if record.is_wide:
            batch.widen()
        delivery = batch.append(record.value, record.key, record.headers, record.timestamp, record.size)
        if delivery is None:
            raise ClientError(f"a new batch of {room} bytes has no room for a record of {record.size}")
        batch.make_room(record.size)
        return batch, delivery

    def _closed_meanwhile(self) -> ClosedError:
        """By another thread or a signal handler."""
        if self._config.transactional_id is None:
            return ClosedError("the producer is closed")
        return ClosedError("the transaction ended, or the producer was closed, before the record was taken")

    def full_of_this_thread(self) -> list[Batch]:
        """Full batches that the calling thread is to encode, or is encoding if a signal handler calls this."""
        thread, full = get_ident(), self.full
        return [batch for batch in list(full) if full.get(batch) == thread]

    def end_encoding(self, batch: Batch, encoded: bytearray | None) -> None:
        """Stores the encoded bytes, unless the batch was released. Without bytes, the loop will encode the batch."""
        if batch in self.full:
            # No call from here on.
            batch.encoded = encoded
            batch.is_encoding = False
            del self.full[batch]
            self.wake_to_send()
            if encoded is not None:
                batch.drop_records()

    def settle_full(self, batch: Batch, outcome: Outcome) -> bool:
        """Called by a thread that has sent such a batch itself, and got its outcome. Returns False, and does nothing,
        if the batch was released. The loop tells everybody else who waits (`take_half_settled`)."""
        queue = batch.queue
        times_ms = batch.timestamps_ms() if batch.has_own_times else None
        arrived = batch.identity, batch.number
        itself = (batch,)
        nothing: list[Any] = []
        with self.lock:
            # No call from here on, until it is done.
            if batch not in self.full or batch.outcome is not None or not queue.ready or queue.ready[0] is not batch:
                return False
            del queue.ready[0]
            del self.full[batch]
            del self.unfinished[batch]
            is_left = True
            if queue.open is None and not queue.ready:
                del self.active[queue]
                is_left = False
            self._free_bytes += batch.reserved_bytes
            self._room_made += 1
            batch.reserved_bytes = 0
            batch.is_encoding = False
            queue.last_arrived = arrived
            batch.outcome = outcome
            if batch.callbacks or batch.waiting or self._room_wanted:
                self._half_settled += itself
                is_left = True
            batch.times_ms, batch.is_wide, batch.cells = times_ms, False, nothing
            if is_left:
                self.wake()
        return True

    def take_half_settled(self) -> None:
        """In the loop: tells everybody of batches that threads have sent themselves, and of the room that they left."""
        if self._half_settled:
            nothing: list[Batch] = []
            batches, self._half_settled = self._half_settled, nothing
            for batch in batches:
                self.forget(batch)
                if batch.outcome is not None:
                    batch.settle(batch.outcome)

    def release_full(self) -> None:
        """Leaves the full batches of this thread to the loop, which encodes them."""
        for batch in self.full_of_this_thread():
            self.end_encoding(batch, None)
        self.wake_to_send()

    def enqueue(self, topic: TopicQueues, partition: int | None, encoded: memoryview, count: int) -> Batch | None:
        """Takes a batch that is already encoded, after all records before it; returns None if there is no room."""
        size = len(encoded)
        with self.lock:
            while self._has_room(size):
                chosen = topic.partitioner.stick() if partition is None else partition
                queue = topic.queues[chosen]
                before = queue.open
                if before is not None:
                    self.close(before)
                batch = Batch(queue, size, 0.0, monotonic() + self._delivery_timeout_s)
                batch.encoded, batch.count, batch.is_closed = encoded, count, True
                # No call from here on except the last.
                if not self._is_open:
                    raise self._closed_meanwhile()
                if queue.open is None and queue.last_number == batch.number[0]:
                    self._free_bytes -= size
                    self.unfinished[batch] = None
                    self.active[queue] = None
                    queue.ready.append(batch)
                    topic.partitioner.took(chosen, size)
                    self.wake_to_send()
                    return batch
        return None

    def close(self, batch: Batch, *, is_full: bool = False) -> None:
        """Closes the batch; under the lock. Idempotent. If it is full, this thread is to encode it."""
        queue = batch.queue
        name, index = queue.partition
        topic = self._topics[name]
        batch.close()
        unused = max(batch.left, 0)
        thread = get_ident()
        # No call from here on except the last, so that an interruption finds all of it done, or nothing.
        if queue.open is not batch:
            return
        if topic.sticky is batch:
            topic.sticky = None
        queue.open = None
        batch.left = -1
        batch.reserved_bytes -= unused
        self._free_bytes += unused
        if is_full:
            batch.is_encoding = True
            self.full[batch] = thread
        queue.ready.append(batch)
        topic.partitioner.took(index, batch.reserved_bytes)

    def topic(self, info: TopicInfo) -> TopicQueues:
        """Returns the queues of the topic, one for each of its current partitions."""
        topic = self._topics.get(info.name)
        if topic is not None and topic.info is info:
            return topic
        with self.lock:
            topic = self._topics.setdefault(info.name, TopicQueues(info, TopicPartitioner(self._config, info.name)))
            count = len(info.partitions)
            while len(queues := topic.queues) < count:
                added = range(len(queues), count)
                grown = queues + [PartitionQueue(self, TopicPartition(info.name, index)) for index in added]
                # No call from here on.
                if topic.queues is queues:
                    topic.queues = grown
            topic.partitioner.learn(info, topic.queues)
            topic.info, topic.places, topic.partition_count = info, {}, count
            if self._is_open:
                self.known[intern(info.name)] = topic  # names in programs are interned, too: found by identity
            return topic

    # Waking the sender.

    def wait(self, waiting: Callable[[], T]) -> T:
        """Calls a function that waits for the loop, without holding what the loop may need: in a signal handler, the
        interrupted code of the thread may hold the lock, or be about to encode a batch or to wake the loop."""
        if self.full:
            self.release_full()
        if self._waking and get_ident() in self._waking:
            self._is_woken = False
            self.wake()
        lock: Any = self.lock
        if not lock._is_owned():
            return waiting()
        held = lock._release_save()
        try:
            return waiting()
        finally:
            lock._acquire_restore(held)

    def wake(self) -> None:
        """Makes the sender look soon."""
        if not self._is_woken:
            thread = get_ident()
            self._waking[thread] = None
            try:
                self._is_woken = True
                self._wake()
            except BaseException:
                self._is_woken = False  # otherwise nobody would wake it again
                raise
            finally:
                self._waking.pop(thread, None)

    def wake_to_send(self) -> None:
        """Called when there is a full batch."""
        if self.can_send:
            self.wake()

    def begin_look(self) -> None:
        """Called when the sender begins to look. It may pass a partition just before another thread adds something to
        it, so until `end_look` everything wakes it again. The previous values of the two conditions do not predict the
        next ones."""
        self.can_send = True
        self.next_look_s = inf
        self._is_woken = False

    def end_look(self, next_look_s: float, *, can_send: bool) -> None:
        """Sets when the sender looks by itself, and whether a full batch should wake it before. If not, a response
        will."""
        self.next_look_s = next_look_s
        self.can_send = can_send

    def hurry(self, batch: Batch) -> None:
        """Called when a caller waits for the batch."""
        with self.lock:
            if batch.queue.open is batch and batch.ripe_at_s > 0.0:
                batch.ripe_at_s = 0.0
                self.wake()

    @property
    def is_in_hurry(self) -> bool:
        """Whether nothing lingers: a caller flushes, or waits for room."""
        return bool(self.flushing or self._room_wanted)

    def begin_flush(self) -> list[Batch]:
        """Returns the batches to wait for; nothing lingers until `end_flush`."""
        with self.lock:
            self.flushing += 1
            self.wake()
            return list(self.unfinished)

    def end_flush(self) -> None:
        with self.lock:
            self.flushing -= 1

    # Memory.

    @property
    def free_bytes(self) -> int:
        return self._free_bytes

    @property
    def room_made(self) -> int:
        """Increases whenever memory is released: read it before an `append` that may find no room."""
        return self._room_made

    def when_room(self, seen: int, call: Callable[[], object]) -> None:
        """Calls the function once when there is more room than when `room_made` had this value: now, in this thread, or
        later, in the loop."""
        with self.lock:
            if self._room_made == seen:
                self._room_wanted.append(call)
                self.wake()
                return
        call()

    def forget(self, batch: Batch) -> None:
        """Called when the batch is done: its memory is free, and callers that wait for room try again."""
        with self.lock:
            self.unfinished.pop(batch, None)
            self._free_bytes += batch.reserved_bytes
            batch.reserved_bytes = 0
            self._room_made += 1
            nobody: list[Callable[[], object]] = []
            wanted, self._room_wanted = self._room_wanted, nobody
        for call in wanted:
            call()

    def refuse(self) -> list[Batch]:
        """Disables the fast path, and returns all unfinished batches."""
        with self.lock:
            self.disable()
            return list(self.unfinished)

    def disable(self) -> None:
        """Takes no more records on the fast path."""
        self._is_open = False
        self.known.clear()

    def enable(self) -> None:
        """Takes records on the fast path again."""
        with self.lock:
            self._is_open = True
            self.known.update((intern(name), topic) for name, topic in self._topics.items())
