"""Everything that `AsyncProducer` and `Producer` share.

`prepare`, `known` and `offer` are for the thread that sends; coroutines and `start` are for the loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.base.background_load import load_apart
from ottla.base.error_codes import ErrorCode
from ottla.client.arguments import whole_number, wrong_type
from ottla.client.callbacks import Callbacks
from ottla.client.cluster import Cluster
from ottla.client.config import ProducerConfig
from ottla.client.errors import (
    BufferFullError,
    ClientError,
    ClosedError,
    CompiledCodeError,
    ForkedError,
    MissingPackageError,
    RecordTooLargeError,
    RefusedError,
    TransactionStateError,
    UnknownPartitionError,
    UnknownTopicError,
)
from ottla.client.forks import tell_of_forks
from ottla.client.metadata import NO_LEADER, PartitionInfo, TopicInfo
from ottla.client.produce import compiled
from ottla.client.produce.accumulator import Accumulator
from ottla.client.produce.batch import Batch
from ottla.client.produce.delivery import Delivery
from ottla.client.produce.encoding import Encoder
from ottla.client.produce.fast_wait import FastWait
from ottla.client.produce.interceptors import Interceptors
from ottla.client.produce.record import (
    Headers,
    PreparedRecord,
    ProducerRecord,
    checked_partition,
    checked_timestamp,
    encoded_headers,
    size_of,
)
from ottla.client.produce.sender import Sender
from ottla.client.serializers import bound_serializer, serializer_of
from ottla.client.teardown import to_the_end
from ottla.client.transactions.coordination import ProducerTransactions

if TYPE_CHECKING:
    from ottla.client.produce.columns import Columns, EncodedBatch

_logger = logging.getLogger(__name__)

_UNKNOWN_TOPIC_PATIENCE_S: Final = 5.0
"""How long to ask for an unknown topic: it may have just been created, or asking may create it."""


class ProducerCore:
    """Can be created in any thread; belongs to the loop in which it is started."""

    def __init__(self, config: ProducerConfig, wake: Callable[[], object], *, may_block: bool) -> None:
        """`may_block`: whether records are sent by threads that can wait, and not by the loop."""
        self.config = config
        self._callbacks = Callbacks(takes_coroutines=not may_block)
        self.interceptors = Interceptors(config.interceptors, self._callbacks)
        self.key_bytes = bound_serializer(serializer_of(config.key_serializer, "key"), "key")
        self.value_bytes = bound_serializer(serializer_of(config.value_serializer, "value"), "value")
        self.accumulator = Accumulator(config, wake, self._callbacks)
        self.encoder = Encoder(config)
        self.transactions: ProducerTransactions | None = None
        """None without a transactional.id."""
        if config.transactional_id is not None:
            self.transactions = ProducerTransactions(config, config.transactional_id, self.accumulator)
        self._taking: AbstractContextManager[object] = (
            nullcontext() if self.transactions is None else self.accumulator.lock
        )
        """Held while a record is taken, so that its transaction cannot end in between."""
        self._may_block = may_block
        self.sender: Sender | None = None
        self.is_closed = False
        self._ended = asyncio.Event()
        """Set when closing is finished."""
        self._is_forked = False
        self._cluster: Cluster | None = None
        tell_of_forks(self)

    def start(self) -> None:
        """Must be called in the loop."""
        self._callbacks.loop = asyncio.get_running_loop()
        self._cluster = Cluster(self.config)
        self.sender = Sender(
            self.config, self._cluster, self.accumulator, self.encoder, self.interceptors, self.transactions
        )
        if self._may_block and not self.interceptors and FastWait.suits(self.config):
            self.accumulator.fast_wait = FastWait(self.config, self._cluster, self.accumulator, self.encoder)
        if self.transactions is not None:
            self.transactions.start(self._cluster, self.sender.look, self.finish)

    @property
    def cluster(self) -> Cluster:
        if self._cluster is None:
            raise ClientError("the producer was not started")
        return self._cluster

    def after_fork(self) -> None:
        """Called in a forked child, where nothing of this can be used, not even locks: another thread may hold them."""
        self._is_forked = True
        self.accumulator.fast_wait = None
        self.accumulator.disable()

    def check_open(self) -> None:
        if self._is_forked:
            raise ForkedError(
                "the producer was made before os.fork and cannot be used in the child: make another there"
            )
        if self.is_closed:
            raise ClosedError("the producer is closed")

    def check_taking(self, call: str) -> None:
        """Raises unless records can be sent now."""
        self.check_open()
        if self.transactions is not None:
            self.transactions.check_open(call)

    def transactional(self, call: str) -> ProducerTransactions:
        """The transactions of this producer; raises if it has none."""
        self.check_open()
        if self.transactions is None:
            raise TransactionStateError(
                f"{call}() needs a transactional producer: set transactional.id to a name that is unique to this "
                "producer and the same after a restart"
            )
        return self.transactions

    def begin_transaction(self) -> None:
        with self._taking:
            self.transactional("begin_transaction").begin()

    # Adding records.

    def prepare(
        self,
        topic: str,
        value: object,
        key: object,
        headers: Headers | None,
        timestamp: int | None,
        partition: int | None,
    ) -> PreparedRecord:
        """Encodes the record, after interceptors and serializers; raises if it can never be sent."""
        self.check_taking("send")
        record = ProducerRecord(topic, value, key, headers, timestamp, partition)
        if not self.interceptors:
            return self._in_bytes(record)
        record = self.interceptors.send(record)
        try:
            return self._in_bytes(record)
        except Exception as error:
            self.interceptors.fail(record, error)
            raise

    def _in_bytes(self, record: ProducerRecord) -> PreparedRecord:
        topic, value, key, headers, timestamp, partition = record
        if not isinstance(topic, str):
            raise wrong_type("topic", topic, "a str")
        if timestamp is not None:
            timestamp = checked_timestamp(timestamp)
        if partition is not None:
            partition = checked_partition(partition)
        key_bytes = self.key_bytes(topic, key)
        value_bytes = self.value_bytes(topic, value)
        section = encoded_headers(topic, headers) if headers else None
        size = size_of(value_bytes, key_bytes, section)
        return self.checked(PreparedRecord(topic, value_bytes, key_bytes, section, timestamp, partition, size))

    def checked(self, record: PreparedRecord) -> PreparedRecord:
        """Returns the record, unless it is too large to be sent at all."""
        limit = min(self.config.max_request_size, self.config.buffer_memory)
        if record.size > limit:
            name = "max.request.size" if limit == self.config.max_request_size else "buffer.memory"
            reason = f"a record of {record.size} bytes for topic {record.topic!r} is above {name}, which is {limit}"
            raise RecordTooLargeError(f"{reason}: raise it, and max.message.bytes of the topic, or send less")
        return record

    def prepare_columns(self, topic: str, data: Any) -> Columns:
        """Returns the columns for the kernels; raises if they can never be sent."""
        self.check_taking("send_batch")
        try:
            is_loaded = compiled.columns() is not None or load_apart(compiled.load)
        except RuntimeError as error:  # numba raises this if it has no directory for its cache
            raise CompiledCodeError("send_batch", error) from error
        if not is_loaded:
            raise MissingPackageError("send_batch", "Arrow and numba", "columns")
        from ottla.client.produce.columns import columns_of

        if not isinstance(topic, str):
            raise wrong_type("topic", topic, "a str")
        return columns_of(topic, data)

    def known(self, topic: str) -> TopicInfo | None:
        """What is known about the topic; None if `learn` must be called."""
        return self._cluster.known_topic(topic) if self._cluster is not None else None

    async def learn(self, topic: str) -> TopicInfo:
        """Asks brokers for a topic, which may create it; within max.block.ms."""
        patience_s = min(_UNKNOWN_TOPIC_PATIENCE_S, self.config.max_block_ms / 1000)
        give_up_at_s: float | None = None

        async def attempt() -> TopicInfo:
            nonlocal give_up_at_s
            found = await self.cluster.refresh([topic], create_topics=True)
            if not found:
                # Counted from the first response: a broker that was unreachable before may just have started.
                now_s = time.monotonic()
                if give_up_at_s is None:
                    give_up_at_s = now_s + patience_s
                if now_s >= give_up_at_s:
                    raise UnknownTopicError(topic)
                raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic}")
            if all(one.leader_id == NO_LEADER for one in found[0].partitions):
                raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic}")
            return found[0]

        try:
            return await self.cluster.retry(attempt, timeout_s=self.config.max_block_ms / 1000)
        except RefusedError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownTopicError(topic) from None
            raise

    def offer(self, info: TopicInfo, record: PreparedRecord) -> Delivery | None:
        """Puts the record into its batch; returns None if there is no room."""
        topic = self.accumulator.topic(info)
        partition = record.partition
        if partition is None:
            partition = topic.partitioner.choose(record.key, record.value)
        elif partition >= len(info.partitions):
            raise UnknownPartitionError(
                f"topic {info.name!r} has partitions 0 to {len(info.partitions) - 1}, not {partition}"
            )
        accumulator = self.accumulator
        try:
            with self._taking:
                self.check_taking("send")
                delivery = accumulator.append(topic, partition, record)
            if accumulator.full:
                for batch in accumulator.full_of_this_thread():
                    self._encode_full(batch)
            return delivery
        except BaseException:  # Ctrl-C: the loop does what is left undone here
            accumulator.release_full()
            raise

    def _encode_full(self, batch: Batch) -> None:
        """Encodes a full batch here and not in the loop: several threads can do it at the same time, and while a kernel
        runs without the GIL, the loop gets its turn."""
        encoded = None
        try:
            if self._may_block and not self.is_in_loop:
                compiled.loading.wait()
            # It has a number if its thread was about to send it itself, and a signal handler sends, too.
            encoded = self.encoder.encode_signed(batch)
        except Exception as error:
            # The loop will try again, and report the error to waiting callers.
            _logger.debug("a batch for %s could not be encoded: %s", batch.partition, error)
        self.accumulator.end_encoding(batch, encoded)

    def pieces(self, info: TopicInfo, columns: Columns, partition: int | None) -> Iterator[list[EncodedBatch]]:
        """Yields batches of the rows; creating the next takes as long as encoding a few megabytes."""
        from ottla.client.produce.columns import pieces

        if partition is not None:
            partition = whole_number("partition", partition)
        partitioner = self.accumulator.topic(info).partitioner

        def stick() -> int:
            with self.accumulator.lock:
                return partitioner.stick()

        return pieces(self.config, info.name, columns, partitioner, partition, stick)

    def offer_batch(self, info: TopicInfo, batch: EncodedBatch) -> Batch | None:
        """Puts the batch into its queue; returns None if there is no room."""
        with self._taking:
            self.check_taking("send_batch")
            return self.accumulator.enqueue(
                self.accumulator.topic(info), batch.partition, batch.encoded, batch.record_count
            )

    @property
    def is_in_loop(self) -> bool:
        """Whether this is called in the producer's loop: by a callback, if the loop has its own thread."""
        return self._callbacks.loop is not None and asyncio._get_running_loop() is self._callbacks.loop

    def no_room(self, *, is_waited_for: bool = True) -> BufferFullError:
        config = self.config
        reason = "and a callback cannot wait for room: the thread that it holds up would make it"
        if is_waited_for:
            reason = f"and no room came free within {config.max_block_ms / 1000:g} s (max.block.ms)"
        hint = "records come faster than brokers take them: send less, raise it, or look at the brokers"
        return BufferFullError(f"the buffer of {config.buffer_memory} bytes (buffer.memory) is full, {reason}; {hint}")

    def flush_here(self, timeout_s: float | None) -> bool:
        """In a thread that is about to flush: returns whether it has sent what there is itself."""
        fast, unfinished = self.accumulator.fast_wait, list(self.accumulator.unfinished)
        if fast is None or len(unfinished) != 1 or not fast.send(unfinished[0], timeout_s):
            return False
        self.raise_failure()
        return True

    # The rest, in the loop.

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        self.check_open()
        return list((self.known(topic) or await self.learn(topic)).partitions)

    async def flush(self) -> None:
        """Waits until everything sent before is done; then raises the first failure that nobody checked."""
        await self.finish()
        self.raise_failure()

    async def finish(self) -> None:
        """Waits until everything sent before is done."""
        batches = self.accumulator.begin_flush()
        try:
            for batch in batches:
                await _done(batch)
        finally:
            self.accumulator.end_flush()

    def raise_failure(self) -> None:
        if self.transactions is not None:
            self.transactions.raise_error()
        if self.sender is not None and self.sender.first_failure is not None:
            failure, self.sender.first_failure = self.sender.first_failure, None
            raise failure.with_traceback(None)

    async def close(self, timeout: float | None = None) -> None:
        """Sends what is left, for at most `timeout` seconds, and ends; what is not acknowledged then has failed. Raises
        the first failure that nobody checked. If another caller is closing the producer, only waits for that."""
        if self.is_closed:
            if not self._callbacks.is_calling:
                with suppress(TimeoutError):
                    async with asyncio.timeout(timeout):
                        await self._ended.wait()
            return
        self.is_closed = True
        try:
            await self._close(timeout)
        finally:
            self._ended.set()
        if self.transactions is None:  # else it was told when the transaction was to be committed
            self.raise_failure()

    async def _close(self, timeout: float | None) -> None:
        self.accumulator.refuse()
        if self.sender is None:
            self.interceptors.close()
            return
        try:
            async with asyncio.timeout(timeout):
                if self.transactions is not None:
                    await self.transactions.close()
                for batch in self.accumulator.begin_flush():
                    await _done(batch)
                await self._callbacks.finish()
        except TimeoutError:
            pass
        finally:
            await to_the_end(self._tear_down(self.sender))

    async def _tear_down(self, sender: Sender) -> None:
        await sender.close()
        await self.cluster.close()
        self.interceptors.close()

    async def close_quietly(self) -> None:
        """Like `close`, but raises nothing: for use when another error is more important."""
        try:
            await self.close()
        except Exception:
            _logger.exception("records were not delivered")

    @property
    def hindrance(self) -> Exception | None:
        """What currently prevents the oldest unacknowledged records from being delivered, if it is known."""
        for oldest in self.accumulator.unfinished:
            return oldest.last_error
        return None

    def metrics(self) -> dict[str, int]:
        """Counts of what was sent, and of what is waiting."""
        accumulator = self.accumulator
        counts = dict(self.sender.counts) if self.sender is not None else {}
        if accumulator.fast_wait is not None:
            for name, count in accumulator.fast_wait.counts.items():
                counts[name] += count
        return {
            **counts,
            "batches_unfinished": len(accumulator.unfinished),
            "buffer_free_bytes": accumulator.free_bytes,
        }


async def _done(batch: Batch) -> None:
    while batch.outcome is None:
        if batch.parts is not None:
            for part in batch.parts[1]:
                await _done(part)
            return
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[None] = loop.create_future()
        batch.when_done(0, partial(_arrive, arrived))
        await arrived


def _arrive(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)
