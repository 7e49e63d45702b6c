"""Consume, transform and produce, exactly once: `exactly_once` and, for asyncio, `async_exactly_once`.

Each poll that returns records is one transaction: the function sends what it makes of them, the consumed offsets are
added, and the transaction is committed. Either all of it becomes visible to consumers with
isolation.level=read_committed, or nothing, and then the same records are read again.

A transaction is open only between two polls, and partitions change hands only in polls. A consumer that lost its
partitions in between, because its function took longer than max.poll.interval.ms, is refused by the group's coordinator
(KIP-447): the transaction is aborted, and the next poll joins the group again.

If the commit itself is interrupted or fails, the transaction may be committed all the same. The consumer is set back as
after every failure, but its next `exactly_once` skips the records if the group's committed offsets say that they are
processed.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, overload
from weakref import WeakKeyDictionary

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.config import ConsumerConfig, ProducerConfig
from ottla.client.consume import AsyncConsumer, Consumer, ConsumerRecord
from ottla.client.errors import (
    ArgumentError,
    ArgumentTypeError,
    ClosedError,
    PartlySentError,
    RefusedError,
    TransactionAbortableError,
    TransactionAbortedError,
    WakeupError,
)
from ottla.client.membership.metadata import NO_GENERATION, GroupMetadata
from ottla.client.offsets import OffsetAndMetadata
from ottla.client.produce import AsyncProducer, Producer

if TYPE_CHECKING:
    import pyarrow as pa

_logger = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

ATTEMPTS: Final = 5
"""How often the same records are tried, by default."""

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
_in_doubt: Final[WeakKeyDictionary[object, Offsets]] = WeakKeyDictionary()
"""By consumer: the offsets of a transaction that may be committed, although its commit raised."""


@overload
def exactly_once(
    consumer: Consumer[K, V],
    producer: Producer[Any, Any],
    function: Callable[[list[ConsumerRecord[K, V]]], object],
    *,
    arrow: Literal[False] = False,
    timeout: float | None = None,
    attempts: int = ATTEMPTS,
) -> int: ...


@overload
def exactly_once(
    consumer: Consumer[Any, Any],
    producer: Producer[Any, Any],
    function: Callable[[pa.RecordBatch], object],
    *,
    arrow: Literal[True],
    timeout: float | None = None,
    attempts: int = ATTEMPTS,
) -> int: ...


def exactly_once(
    consumer: Consumer[Any, Any],
    producer: Producer[Any, Any],
    function: Callable[[Any], object],
    *,
    arrow: bool = False,
    timeout: float | None = None,
    attempts: int = ATTEMPTS,
) -> int:
    """Calls the function with the records of each poll, in a transaction of the producer that also commits their
    offsets. The function sends with the producer; records whose transaction fails are tried again.

    With `arrow`, the function gets what `poll_arrow` returns. Returns the number of records that were processed: after
    `timeout` seconds without a record, after `consumer.wakeup()`, when the consumer is closed, or when all partitions
    have reached the ends that `seek` set. An exception of the function aborts the transaction, resets the consumer to
    the first of its records, and is raised; so is an error that lasts for `attempts` transactions in a row.
    """
    if not isinstance(consumer, Consumer) or not isinstance(producer, Producer):
        raise _wrong_clients(consumer, producer, "exactly_once", "Consumer", "Producer")
    progress = _Progress(consumer.config, producer.config, attempts)
    if not producer.is_initialized:
        # Before the first poll: the offsets of a transaction that was left open are waited for.
        producer.init_transactions()
    doubted = _in_doubt.get(consumer, {})
    if doubted:
        if producer.is_committing:
            producer.commit_transaction()
        _skip_committed(consumer, doubted, consumer.committed(list(doubted)))
    while True:
        try:
            records = consumer.poll_arrow(timeout) if arrow else consumer.poll(timeout)
        except (ClosedError, WakeupError):
            return progress.count
        if not len(records):
            if timeout is not None or consumer.is_done:
                return progress.count
            continue
        sent: Offsets = {}
        try:
            with producer.transaction():
                result = function(records)
                if inspect.isawaitable(result):
                    raise _not_awaited(result)
                offsets = progress.offsets(consumer.positions())
                group = _member(consumer.group_metadata(), consumer.subscription())
                producer.send_offsets_to_transaction(offsets, group)
                sent = offsets
        except BaseException as error:
            _rewind(consumer, records, error, sent)
            time.sleep(progress.failed(error))
        else:
            progress.committed(offsets, len(records))


@overload
async def async_exactly_once(
    consumer: AsyncConsumer[K, V],
    producer: AsyncProducer[Any, Any],
    function: Callable[[list[ConsumerRecord[K, V]]], Awaitable[object] | object],
    *,
    arrow: Literal[False] = False,
    timeout: float | None = None,
    attempts: int = ATTEMPTS,
) -> int: ...


@overload
async def async_exactly_once(
    consumer: AsyncConsumer[Any, Any],
    producer: AsyncProducer[Any, Any],
    function: Callable[[pa.RecordBatch], Awaitable[object] | object],
    *,
    arrow: Literal[True],
    timeout: float | None = None,
    attempts: int = ATTEMPTS,
) -> int: ...


async def async_exactly_once(
    consumer: AsyncConsumer[Any, Any],
    producer: AsyncProducer[Any, Any],
    function: Callable[[Any], Awaitable[object] | object],
    *,
    arrow: bool = False,
    timeout: float | None = None,
    attempts: int = ATTEMPTS,
) -> int:
    """Like `exactly_once`, in an event loop; the function can be a coroutine function."""
    if not isinstance(consumer, AsyncConsumer) or not isinstance(producer, AsyncProducer):
        raise _wrong_clients(consumer, producer, "async_exactly_once", "AsyncConsumer", "AsyncProducer")
    progress = _Progress(consumer.config, producer.config, attempts)
    if not producer.is_initialized:
        await producer.init_transactions()
    doubted = _in_doubt.get(consumer, {})
    if doubted:
        if producer.is_committing:
            await producer.commit_transaction()
        _skip_committed(consumer, doubted, await consumer.committed(list(doubted)))
    while True:
        try:
            records: Any = await (consumer.poll_arrow(timeout) if arrow else consumer.poll(timeout))
        except (ClosedError, WakeupError):
            return progress.count
        if not len(records):
            if timeout is not None or consumer.is_done:
                return progress.count
            continue
        sent: Offsets = {}
        try:
            async with producer.transaction():
                result = function(records)
                if inspect.isawaitable(result):
                    await result
                offsets = progress.offsets(consumer.positions())
                group = _member(consumer.group_metadata(), consumer.subscription())
                await producer.send_offsets_to_transaction(offsets, group)
                sent = offsets
        except BaseException as error:
            _rewind(consumer, records, error, sent)
            await asyncio.sleep(progress.failed(error))
        else:
            progress.committed(offsets, len(records))


# What both share.


class _Progress:
    """What is committed, and how often the present records failed."""

    def __init__(self, consumer: ConsumerConfig, producer: ProducerConfig, attempts: int) -> None:
        _check(consumer, producer)
        if attempts < 1:
            raise ArgumentError(f"attempts must be at least 1, not {attempts}")
        self.count = 0
        """Records in committed transactions."""
        self._attempts = attempts
        self._failures = 0
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._backoff_ms = producer.retry_backoff_ms
        self._backoff_max_ms = producer.retry_backoff_max_ms

    def offsets(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Those that are not committed yet."""
        return {one: offset for one, offset in positions.items() if self._committed.get(one) != offset}

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], count: int) -> None:
        self._failures = 0
        self._committed.update(offsets)
        self.count += count

    def failed(self, error: BaseException) -> float:
        """The seconds to wait before another attempt; raises the error if there is to be none."""
        self._failures += 1
        if not _is_abortable(error) or self._failures >= self._attempts:
            raise error
        _logger.warning("the transaction was aborted, and its records are read again: %s", error)
        if self._failures == 1:
            return 0.0
        wait_ms = min(self._backoff_ms * 2 ** (self._failures - 2), self._backoff_max_ms)
        return float(wait_ms) / 1000 * random.uniform(0.8, 1.2)


def _is_abortable(error: BaseException) -> bool:
    """Whether only the transaction failed: as sending tells it, or a delivery, or a table of which a part was sent."""
    if isinstance(error, PartlySentError) and error.__cause__ is not None:
        error = error.__cause__
    return isinstance(error, TransactionAbortableError | TransactionAbortedError)


def _check(consumer: ConsumerConfig, producer: ProducerConfig) -> None:
    if producer.transactional_id is None:
        raise ArgumentError("the producer needs a transactional.id")
    if not consumer.group_id:
        raise ArgumentError("the consumer needs a group.id: its offsets are committed in the transactions")
    if consumer.enable_auto_commit:
        raise ArgumentError("the consumer needs enable.auto.commit=false: transactions commit its offsets")
    if consumer.isolation_level != "read_committed":
        raise ArgumentError(
            "the consumer needs isolation.level=read_committed: records of aborted transactions must not be processed"
        )
    if consumer.group_protocol == "zookeeper":
        raise ArgumentError("the consumer needs group.protocol=classic or consumer: ZooKeeper has no transactions")


def _wrong_clients(consumer: object, producer: object, name: str, *expected: str) -> ArgumentTypeError:
    given = f"{type(consumer).__name__} and {type(producer).__name__}"
    other = "exactly_once" if name.startswith("async") else "async_exactly_once"
    kinds = " and ".join(f"{'an' if one[0] in 'AEIOU' else 'a'} {one}" for one in expected)
    return ArgumentTypeError(f"{name} needs {kinds}, not {given}; the other kind of clients goes with {other}")


def _not_awaited(result: Awaitable[object]) -> ArgumentTypeError:
    """Committing would skip the records: nothing has processed them."""
    if inspect.iscoroutine(result):
        result.close()
    return ArgumentTypeError("exactly_once cannot call a coroutine function; use async_exactly_once")


def _member(group: GroupMetadata, topics: Collection[str]) -> GroupMetadata:
    """The group for the offsets. A consumer that is not a member at the moment must not commit: without a generation,
    the coordinator would not check that its partitions are still its own."""
    if topics and group.generation_id == NO_GENERATION:
        reason = RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.group_id}")
        raise TransactionAbortableError(f"the consumer has left the group while records were processed: {reason}")
    return group


def _rewind(
    consumer: Consumer[Any, Any] | AsyncConsumer[Any, Any], records: Any, error: BaseException, sent: Offsets
) -> None:
    """Back to the first of these records, unless their partition is gone. `sent`: their offsets, if all was sent and
    the commit raised the error."""
    if sent and not _is_abortable(error):
        _in_doubt[consumer] = sent
    first: dict[TopicPartition, int] = {}
    for topic, partition, offset in _places(records):
        first.setdefault(TopicPartition(topic, partition), offset)
    try:
        assigned, ends = consumer.assignment(), consumer.ends()
        for partition, offset in first.items():
            if partition in assigned:
                consumer.seek(partition, offset, until=ends.get(partition))
    except ClosedError:
        pass


def _skip_committed(
    consumer: Consumer[Any, Any] | AsyncConsumer[Any, Any],
    doubted: Offsets,
    committed: Mapping[TopicPartition, OffsetAndMetadata | None],
) -> None:
    """Goes on behind the records of a transaction that turned out to be committed."""
    assigned, ends = consumer.assignment(), consumer.ends()
    for partition, offset in doubted.items():
        found = committed.get(partition)
        if partition in assigned and found is not None and found.offset == offset.offset:
            consumer.seek(partition, offset, until=ends.get(partition))
    _in_doubt.pop(consumer, None)


def _places(records: Any) -> Any:
    if isinstance(records, list):
        return [(one.topic, one.partition, one.offset) for one in records]
    first = records.slice(0, 1).to_pylist()  # Arrow batches are of one partition
    return [(one["topic"], one["partition"], one["offset"]) for one in first]
