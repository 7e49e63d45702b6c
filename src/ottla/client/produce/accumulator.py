"""Where records wait for company: an open batch for each partition, within a bound of memory.

Any thread puts records in; the loop takes batches out. One lock is held for as long as it takes to put a record into
a list. The loop is woken only when it would otherwise look too late: for the first batch of a linger, and for a full
one while a broker could take it.

A lock costs a third of what a record costs. So records that are nothing but a value go without it, as long as one
thread sends them: the open batch of the topic is in `fast` and has that thread as its owner, who

    takes the batch from `fast` and its list of values from the batch, looks whether there is room for one more of that
    size, appends the value to the list, and then looks whether the batch is closed;

while who closes a batch (under the lock) marks it as closed first, then gives it copies of its lists, and counts those.
If the owner does not see the mark, the record was counted; if it does, the count tells (`is_taken`), and the record may
have to be sent again. A second thread closes the batch that another owns, and after that the topic has no owners any
more.

Memory is counted by batch, not by record: an open batch reserves all it may hold, and gives back what it did not use
when it is closed.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import inf
from sys import intern
from threading import get_ident
from time import monotonic
from typing import Final

from ottla.base.ids import TopicPartition
from ottla.client.callbacks import Callbacks
from ottla.client.config import ProducerConfig
from ottla.client.errors import UnknownPartitionError
from ottla.client.metadata import TopicInfo
from ottla.client.produce.batch import RECORD_OVERHEAD_BYTES, Batch
from ottla.client.produce.delivery import Delivery
from ottla.client.produce.partitioners import KeyHash, TopicPartitioner
from ottla.client.produce.queues import PartitionQueue
from ottla.records import Header
from ottla.records.layout import HEADER_SIZE

_PLACES_MAX: Final = 16_384
_MISSES_MAX: Final = 16 * _PLACES_MAX
_HEADER_OVERHEAD_BYTES: Final = 6


class TopicQueues:
    """The partitions of a topic, as many as it has by now, and how one of them is chosen."""

    __slots__ = ("info", "is_shared", "misses", "partitioner", "places", "queues")

    def __init__(self, info: TopicInfo, partitioner: TopicPartitioner) -> None:
        self.info = info
        self.partitioner = partitioner
        self.queues: list[PartitionQueue] = []
        self.is_shared = False
        """Whether several threads send to it."""
        self.places: dict[bytes, int] = {}
        """Of some keys: looking one up takes a fifth of the time of hashing it."""
        self.misses = 0

    def place(self, key: bytes) -> int:
        """The partition of a key that is not among them."""
        partition = KeyHash.function(key, self.partitioner.partition_count)
        if len(self.places) < _PLACES_MAX:
            self.places[key] = partition
        else:
            # Keys that are all different are not worth remembering; others become so when some time has passed.
            self.misses += 1
            if self.misses > _MISSES_MAX:
                self.places, self.misses = {}, 0
        return partition


class Accumulator:
    """Belongs to one producer."""

    def __init__(
        self,
        config: ProducerConfig,
        wake: Callable[[], object],
        callbacks: Callbacks,
        *,
        is_bare: bool,
        has_bare_keys: bool = True,
    ) -> None:
        """`wake` makes the loop call the sender soon, and is called by any thread. `is_bare` says that records come as
        they are, without interceptors and serializers for values, `has_bare_keys` that there is none for keys."""
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
        self._is_bare = is_bare and config.partitioner is None
        self._has_bare_keys = self._is_bare and has_bare_keys and not config.partitioner_ignore_keys
        self.keyed: dict[str, TopicQueues] = {}
        """Topics whose records with a key go the short way."""
        self.fast: dict[str, Batch] = {}
        """The batch that takes the next record of a topic, if that is nothing but a value and sent by the batch's
        owner."""
        self._acquire, self._release, self._is_owned = self.lock.acquire, self.lock.release, self.lock._is_owned  # type: ignore[attr-defined]

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        return self.callbacks.loop

    # Records in, from any thread.

    def gather(self, topic: str, value: bytes, key: bytes) -> Delivery | None:
        """Takes a record of a key and a value, if there is an open batch for such and nothing else to be done.

        Not `with self.lock`, which costs as much again as all the rest. An interruption of the main thread can come
        after the lock was taken and before anything here knows: so the lock itself is asked.
        """
        queues = self.keyed.get(topic)
        if queues is None:
            return None
        partition = queues.places.get(key)
        if partition is None:
            partition = queues.place(key)
        size = len(value) + len(key) + RECORD_OVERHEAD_BYTES
        try:
            self._acquire()
            batch = queues.queues[partition].open
            if batch is not None:
                keys, left = batch.keys, batch.left - size
                if left >= 0 and keys is not None and batch.headers is None:
                    if monotonic() >= batch.until_s:
                        batch.stamp()
                    values = batch.values
                    delivery = Delivery()
                    delivery.batch = batch
                    delivery.index = len(values)
                    keys.append(key)
                    values.append(value)  # last: what `recover` goes by
                    batch.left = left
                    self._release()
                    return delivery
            self._release()
        except BaseException:
            if self._is_owned():
                self._recover(queues.queues[partition])
                self._release()
            raise
        return None

    def is_taken(self, delivery: Delivery) -> bool:
        """Whether a record that a batch's owner appended while the batch was closed is in it."""
        with self.lock:
            return delivery.index < delivery.batch.count

    def append(
        self,
        topic: TopicQueues,
        partition: int | None,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[Header],
        timestamp: int | None,
    ) -> Delivery | None:
        """Takes the record, for this partition or for the one that records without a key stick to; None if there is no
        room for it (`when_room`)."""
        size = size_of(value, key, headers)
        is_plain = key is None and not headers and timestamp is None
        with self.lock:
            chosen = topic.partitioner.stick() if partition is None else partition
            try:
                batch = self._open_for(topic, chosen, size, is_plain)
                if batch is None and partition is None:
                    # The last one may have been as much as the partition gets for now.
                    chosen = topic.partitioner.stick()
                    batch = self._open_for(topic, chosen, size, is_plain)
                if batch is None:
                    batch = self._opened(topic.queues[chosen], size)
                    if batch is None:
                        return None
                    if partition is None and self._is_bare and is_plain and not topic.is_shared:
                        batch.owner = get_ident()
                        self.fast[intern(topic.info.name)] = batch  # as are names in programs: found without comparing
                batch.left -= size
                delivery = batch.append(value, key, headers, timestamp)
                if batch.owner:
                    batch.make_room(size)
                return delivery
            except BaseException:
                self._recover(topic.queues[chosen])
                raise

    def _recover(self, queue: PartitionQueue) -> None:
        """An interruption (Ctrl-C) came while the open batch was changed: makes it whole again. Under the lock."""
        batch = queue.open
        if batch is None:
            return
        batch.trim()
        if not batch.values:
            name = queue.partition.topic
            if self.fast.get(name) is batch:
                del self.fast[name]
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

    def _open_for(self, topic: TopicQueues, partition: int, size: int, is_plain: bool) -> Batch | None:
        """The open batch of the partition, if it can take the record. One that cannot is closed."""
        batch = topic.queues[partition].open
        if batch is None:
            return None
        if batch.owner and (batch.owner != get_ident() or not is_plain):
            # Another thread, or another kind of record: from now on all take the lock.
            topic.is_shared = topic.is_shared or batch.owner != get_ident()
            self.close(batch)
            return None
        if batch.owner:
            batch.count_room(size)
        if batch.left < size:
            self.close(batch)
            batch.is_encoding = True
            self.full.append(batch)
            return None
        return batch

    def _opened(self, queue: PartitionQueue, size: int) -> Batch | None:
        room = max(self._batch_bytes, size + HEADER_SIZE)
        if room > self._free_bytes and self._free_bytes < self._config.buffer_memory:
            return None
        now_s = monotonic()
        batch = Batch(queue, room, now_s + self._linger_s, now_s + self._delivery_timeout_s)
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
        if self.fast.get(name) is batch:
            del self.fast[name]
        batch.close()
        if batch.owner:
            batch.count_out()
        queue.open = None
        queue.ready.append(batch)
        unused, batch.left = max(batch.left, 0), -1
        batch.reserved_bytes -= unused
        self._free_bytes += unused
        self._topics[name].partitioner.took(index, batch.reserved_bytes)

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
            topic.info, topic.places = info, {}
            if self._has_bare_keys:
                self.keyed[info.name] = topic
            self._topics[info.name] = topic  # last: what an interruption left half made is not found
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
        """Takes no more records by short ways."""
        self._is_bare = self._has_bare_keys = False
        self.keyed.clear()
        for batch in list(self.fast.values()):
            batch.owner = 0
        self.fast.clear()


def size_of(value: bytes | None, key: bytes | None, headers: Iterable[Header]) -> int:
    """What the record takes in a batch, at most."""
    size = RECORD_OVERHEAD_BYTES
    if value is not None:
        size += len(value)
    if key is not None:
        size += len(key)
    for name, content in headers:
        size += len(name.encode()) + len(content or b"") + _HEADER_OVERHEAD_BYTES
    return size


def check_partition(info: TopicInfo, partition: int) -> None:
    count = len(info.partitions)
    if not 0 <= partition < count:
        raise UnknownPartitionError(f"topic {info.name!r} has partitions 0 to {count - 1}, not {partition}")
