"""Where records wait for company: an open batch for each partition, within a bound of memory.

Any thread puts records in; the loop takes batches out. One lock is held for as long as it takes to put a record into
a list. The loop is woken only when it would otherwise look too late: for the first batch of a linger, and for a full
one while a broker could take it.

A lock costs a third of what a record costs. So records go without it as long as one thread sends them: an open batch
has the thread that opened it as its owner, who

    takes the batch's lists from it, looks whether it is closed and has room, appends to the lists, to that of values
    last, and then looks again whether the batch is closed;

while who closes a batch (under the lock) marks it as closed first, then gives it copies of its lists, that of values
first, and counts those. If the owner does not see the mark, the record was counted; if it does, the count tells
(`has_taken`), and the record may have to be sent again. A second thread closes the batch that another owns, and after
that batches of the topic have no owners any more: all take the lock.

Memory is counted by batch, not by record: an open batch reserves all it may hold, and gives back what it did not use
when it is closed.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from math import inf
from sys import intern
from threading import get_ident
from time import monotonic
from typing import Final

from ottla.base.ids import TopicPartition
from ottla.client.callbacks import Callbacks
from ottla.client.config import ProducerConfig
from ottla.client.metadata import TopicInfo
from ottla.client.produce import compiled
from ottla.client.produce.batch import Batch
from ottla.client.produce.delivery import Delivery
from ottla.client.produce.partitioners import KeyHash, TopicPartitioner
from ottla.client.produce.queues import PartitionQueue
from ottla.client.produce.record import PreparedRecord
from ottla.records.layout import HEADER_SIZE

_HASHES: Final = 1024
_HASH_S: Final = 2e-6
"""What a key costs until kernels are loaded, counted by the thousand."""
_PLACES_MAX: Final = 16_384
_MISSES_MAX: Final = 16 * _PLACES_MAX


class TopicQueues:
    """The partitions of a topic, as many as it has by now, and how one of them is chosen."""

    __slots__ = (
        "goes_by_key",
        "hashed",
        "info",
        "is_shared",
        "is_usual",
        "misses",
        "partition_count",
        "partitioner",
        "places",
        "queues",
        "sticky",
    )

    def __init__(self, info: TopicInfo, partitioner: TopicPartitioner) -> None:
        self.info = info
        self.partitioner = partitioner
        self.queues: list[PartitionQueue] = []
        self.partition_count = 0
        self.is_shared = False
        """Whether several threads send to it."""
        self.sticky: Batch | None = None
        """The open batch of the partition that records without a key stick to."""
        self.is_usual = partitioner.is_usual
        self.goes_by_key = partitioner.is_usual and not partitioner.ignores_keys
        self.places: dict[bytes, int] = {}
        """Of some keys: looking one up takes a fifth of the time of hashing it."""
        self.misses = 0
        self.hashed = 0

    def place(self, key: bytes) -> int:
        """The partition of a key that is not among them."""
        places = self.places  # before hashing: they are replaced when the number of partitions changes
        partition = KeyHash.function(key, self.partitioner.partition_count)
        self.hashed += 1
        if self.hashed % _HASHES == 0 and compiled.columns() is None:
            compiled.spend(_HASHES * _HASH_S)
        if len(places) < _PLACES_MAX:
            places[key] = partition
        else:
            # Keys that are all different are not worth remembering; others become so when some time has passed.
            self.misses += 1
            if self.misses > _MISSES_MAX:
                self.places, self.misses = {}, 0
        return partition


class Accumulator:
    """Belongs to one producer."""

    def __init__(self, config: ProducerConfig, wake: Callable[[], object], callbacks: Callbacks) -> None:
        """`wake` makes the loop call the sender soon, and is called by any thread."""
        self.lock = threading.RLock()
        self.callbacks = callbacks
        self.unfinished: dict[Batch, None] = {}
        """All that are not done, in the order of their making."""
        self.active: dict[PartitionQueue, None] = {}
        """Those with something to send."""
        self.next_look_s = inf
        """When the loop looks by itself."""
        self.can_send = True
        """Whether a broker could take a full batch right now."""
        self.full: deque[Batch] = deque()
        """Those that were closed because they were full, to be encoded by the thread that fills the next."""
        self.flushing = 0
        self._config = config
        self._wake = wake
        self._is_woken = False
        self._batch_bytes = min(max(config.batch_size, HEADER_SIZE), max(config.buffer_memory, 1))
        self._linger_s = config.linger_ms / 1000
        self._delivery_timeout_s = config.delivery_timeout_ms / 1000
        self._free_bytes = config.buffer_memory
        self._room_wanted: list[Callable[[], object]] = []
        self._room_made = 0
        self._topics: dict[str, TopicQueues] = {}
        self.known: dict[str, TopicQueues] = {}
        """The same for who may look a topic up without asking anything else; empty once the producer is closed."""
        self._is_open = True

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        return self.callbacks.loop

    # Records in, from any thread.

    def append(self, topic: TopicQueues, partition: int | None, record: PreparedRecord) -> Delivery | None:
        """Takes the record, for this partition or for the one that records without a key stick to; None if there is no
        room for it (`when_room`)."""
        value, key, headers, time_ms, size = record.value, record.key, record.headers, record.timestamp, record.size
        with self.lock:
            chosen = topic.partitioner.stick() if partition is None else partition
            try:
                batch = self._open_for(topic, chosen, size)
                if batch is None and partition is None:
                    # The last one may have been as much as the partition gets for now.
                    chosen = topic.partitioner.stick()
                    batch = self._open_for(topic, chosen, size)
                if batch is None:
                    batch = self._opened(topic.queues[chosen], size, 0 if topic.is_shared else get_ident())
                    if batch is None:
                        return None
                batch.add_columns(key, headers, time_ms)
                delivery = batch.append(value, key, headers, time_ms, size)
                if batch.owner and batch.is_bare:
                    batch.make_room(size)
                if partition is None:
                    topic.sticky = batch
                return delivery
            except BaseException:
                self._recover(topic, topic.queues[chosen])
                raise

    def _recover(self, topic: TopicQueues, queue: PartitionQueue) -> None:
        """An interruption (Ctrl-C) came while a batch was opened or closed: leaves none that is empty. Under the
        lock."""
        batch = queue.open
        if batch is None:
            return
        if not batch.values:
            if topic.sticky is batch:
                topic.sticky = None
            queue.open = None
            self.unfinished.pop(batch, None)
            self._free_bytes += batch.reserved_bytes
            batch.reserved_bytes = 0
        self.wake()

    def release_full(self) -> None:
        """Leaves it to the loop to encode them."""
        with self.lock:
            for batch in self.full:
                batch.is_encoding = False
            self.full.clear()
            self.wake_to_send()

    def _open_for(self, topic: TopicQueues, partition: int, size: int) -> Batch | None:
        """The open batch of the partition, if it can take the record. One that cannot is closed."""
        batch = topic.queues[partition].open
        if batch is None:
            return None
        if batch.owner and batch.owner != get_ident():
            topic.is_shared = True
            self.close(batch)
            return None
        if batch.value_bytes >= 0:
            batch.count_room(size)
        if batch.left < size or batch.is_closed:
            self.close(batch)
            batch.is_encoding = True
            self.full.append(batch)
            return None
        return batch

    def _opened(self, queue: PartitionQueue, size: int, owner: int) -> Batch | None:
        room = max(self._batch_bytes, size + HEADER_SIZE)
        if room > self._free_bytes and self._free_bytes < self._config.buffer_memory:
            return None
        now_s = monotonic()
        batch = Batch(queue, room, now_s + self._linger_s, now_s + self._delivery_timeout_s)
        batch.owner = owner  # before anybody else can see it: it never changes
        # No call from here on, so that an interruption finds all of it done, or nothing.
        self._free_bytes -= room
        batch.left -= HEADER_SIZE
        queue.open = batch
        self.unfinished[batch] = None
        self.active[queue] = None
        if batch.ripe_at_s < self.next_look_s:
            self.wake()
        return batch

    def enqueue(self, topic: TopicQueues, partition: int | None, encoded: memoryview, count: int) -> Batch | None:
        """Takes a batch that comes encoded, behind all records before it; None if there is no room."""
        with self.lock:
            size = len(encoded)
            if size > self._free_bytes and self._free_bytes < self._config.buffer_memory:
                return None
            chosen = topic.partitioner.stick() if partition is None else partition
            queue = topic.queues[chosen]
            if queue.open is not None:
                self.close(queue.open)
            batch = Batch(queue, size, 0.0, monotonic() + self._delivery_timeout_s)
            batch.encoded, batch.count, batch.is_closed = encoded, count, True
            self._free_bytes -= size
            self.unfinished[batch] = None
            self.active[queue] = None
            queue.ready.append(batch)
            topic.partitioner.took(chosen, size)
            self.wake_to_send()
            return batch

    def close(self, batch: Batch) -> None:
        """No more records for this one; under the lock."""
        queue = batch.queue
        name, index = queue.partition
        topic = self._topics[name]
        batch.close()
        unused = max(batch.left, 0)
        # No call from here on, but for the last, so that an interruption finds all of it done, or nothing.
        if topic.sticky is batch:
            topic.sticky = None
        queue.open = None
        batch.left = -1
        batch.reserved_bytes -= unused
        self._free_bytes += unused
        queue.ready.append(batch)
        topic.partitioner.took(index, batch.reserved_bytes)

    def topic(self, info: TopicInfo) -> TopicQueues:
        """The queues of the topic, as many as it has partitions by now."""
        topic = self._topics.get(info.name)
        if topic is not None and topic.info is info:
            return topic
        with self.lock:
            topic = self._topics.get(info.name)
            if topic is None:
                topic = TopicQueues(info, TopicPartitioner(self._config, info.name))
            for index in range(len(topic.queues), len(info.partitions)):
                topic.queues.append(PartitionQueue(self, TopicPartition(info.name, index)))
            topic.partitioner.learn(info, topic.queues)
            topic.info, topic.places, topic.partition_count = info, {}, len(info.partitions)
            self._topics[info.name] = topic
            if self._is_open:
                self.known[intern(info.name)] = topic  # as are names in programs: found without comparing
            return topic

    # Waiting, and not.

    def wake(self) -> None:
        """Makes the sender look soon."""
        if not self._is_woken:
            try:
                self._is_woken = True
                self._wake()
            except BaseException:
                self._is_woken = False  # else nobody would ever wake it again
                raise

    def wake_to_send(self) -> None:
        """There is a full batch."""
        if self.can_send:
            self.wake()

    def begin_look(self) -> None:
        """The sender begins to look, and may pass a partition just before another thread has something for it: so
        until `end_look` everything wakes it again. What either of the two conditions was before says nothing of what
        it will be."""
        self.can_send = True
        self.next_look_s = inf
        self._is_woken = False

    def end_look(self, next_look_s: float, *, can_send: bool) -> None:
        """When it looks by itself, and whether a full batch is worth waking it before. If not, an answer will."""
        self.next_look_s = next_look_s
        self.can_send = can_send

    def hurry(self, batch: Batch) -> None:
        """Somebody waits for the batch."""
        with self.lock:
            if batch.queue.open is batch and batch.ripe_at_s > 0.0:
                batch.ripe_at_s = 0.0
                self.wake()

    @property
    def is_in_hurry(self) -> bool:
        """Whether nothing lingers: somebody flushes, or waits for room."""
        return bool(self.flushing or self._room_wanted)

    def begin_flush(self) -> list[Batch]:
        """What there is to wait for; nothing lingers until `end_flush`."""
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
        """Grows whenever memory is given back: to be read before an `append` that may find none."""
        return self._room_made

    def when_room(self, seen: int, call: Callable[[], object]) -> None:
        """Calls it once when there is more room than when `room_made` was so much: in this thread now, or by the
        loop."""
        with self.lock:
            if self._room_made == seen:
                self._room_wanted.append(call)
                self.wake()
                return
        call()

    def forget(self, batch: Batch) -> None:
        """The batch is done: its memory is free, and those who wait for some try again."""
        with self.lock:
            self.unfinished.pop(batch, None)
            self._free_bytes += batch.reserved_bytes
            batch.reserved_bytes = 0
            self._room_made += 1
            wanted, self._room_wanted = self._room_wanted, []
        for call in wanted:
            call()

    def refuse(self) -> list[Batch]:
        """From now on nothing is taken by the fast way; all that is not done yet."""
        with self.lock:
            self.disable()
            return list(self.unfinished)

    def disable(self) -> None:
        """Takes no more records by the fast way."""
        self._is_open = False
        self.known.clear()
