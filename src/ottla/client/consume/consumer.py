"""The blocking consumer: runs an `AsyncConsumer` in a background thread.

A poll that finds fetched records takes and decodes them in the calling thread, without involving the loop. Only a poll
that must wait, or that must take part in a rebalance, uses the loop. Listeners and commit callbacks are called in the
thread that polls. Only one thread may use a consumer at a time; `close` can be called by another.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack, overload

from ottla.base.background_load import PATIENCE_S
from ottla.base.ids import TopicPartition
from ottla.client.arguments import seconds
from ottla.client.callbacks import Callbacks
from ottla.client.cluster import Deadline
from ottla.client.config import ConsumerConfig
from ottla.client.config_keywords import ConsumerKeywords
from ottla.client.consume.arrow import COLUMNS, chosen_columns
from ottla.client.consume.async_consumer import (
    CLOSE_TIMEOUT_S,
    EXIT_TIMEOUT_S,
    AsyncConsumer,
    OffsetsToCommit,
    Topics,
    close_timeout_s,
    most_records,
)
from ottla.client.consume.commits import CommitCallback, CommitTold
from ottla.client.consume.kernels import KERNELS
from ottla.client.consume.record import ConsumerRecord, K, V
from ottla.client.errors import ClientError, ClosedError
from ottla.client.loop_thread import LoopThread
from ottla.client.membership import GroupMetadata
from ottla.client.metadata import TopicInfo
from ottla.client.offsets import OffsetAndMetadata, OffsetAndTimestamp
from ottla.client.serializers.contract import AnyKey, AnyValue, Deserializer
from ottla.client.subscriptions.listeners import RebalanceListener

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class Consumer(Generic[K, V]):
    """Consumes records of subscribed topics or of assigned partitions.

    with Consumer({"bootstrap.servers": "localhost:9092"}, group_id="billing") as consumer:
        consumer.subscribe(["orders"])
        for record in consumer:
            print(record.topic, record.partition, record.offset, record.value)

    Configs have Kafka's names in a mapping, or Python's as keyword arguments. Timeouts are in seconds. The methods are
    documented in `AsyncConsumer`.
    """

    @overload
    def __init__(
        self: Consumer[bytes | None, bytes | None],
        settings: None = None,
        /,
        *,
        key_deserializer: None = None,
        value_deserializer: None = None,
        **keywords: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[bytes | None, AnyValue | None],
        settings: None = None,
        /,
        *,
        key_deserializer: None = None,
        value_deserializer: Callable[[str, bytes], AnyValue],
        **keywords: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[AnyKey | None, bytes | None],
        settings: None = None,
        /,
        *,
        key_deserializer: Callable[[str, bytes], AnyKey],
        value_deserializer: None = None,
        **keywords: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[AnyKey | None, AnyValue | None],
        settings: None = None,
        /,
        *,
        key_deserializer: Callable[[str, bytes], AnyKey],
        value_deserializer: Callable[[str, bytes], AnyValue],
        **keywords: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[Any, Any],
        settings: Mapping[str, object] | None = None,
        /,
        *,
        key_deserializer: str | Deserializer | None = None,
        value_deserializer: str | Deserializer | None = None,
        **keywords: Unpack[ConsumerKeywords],
    ) -> None: ...

    def __init__(self, settings: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        config = ConsumerConfig.parse(settings, keywords)
        self._polling = threading.Lock()
        self._thread = LoopThread("ottla-consumer")
        try:
            self._core = self._thread.run(self._make(config))
        except BaseException:
            self._thread.close()
            raise
        self._user = Callbacks(takes_coroutines=False)
        self._callbacks: deque[CommitTold] = deque()
        self._core.callbacks = self._callbacks
        self._reader = self._core.reader
        self._thread.on_exit = partial(self._core.shut_down, EXIT_TIMEOUT_S, is_work_done=False)
        self._subscriptions = self._core.subscriptions
        self._max_poll_records = config.max_poll_records

    async def _make(self, config: ConsumerConfig) -> AsyncConsumer[K, V]:
        return AsyncConsumer.of(config, self._thread.in_caller)

    @property
    def config(self) -> ConsumerConfig:
        return self._core.config

    # Life.

    def __enter__(self) -> Self:
        self._thread.check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(CLOSE_TIMEOUT_S, is_work_done=kind is None)

    def close(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        self._close(close_timeout_s(timeout), is_work_done=True)

    def _close(self, timeout_s: float, *, is_work_done: bool) -> None:
        if not self._thread.is_open:
            self._thread.close()  # in case the coroutine was interrupted
            return
        if self._core.is_closing:
            with suppress(ClosedError):  # whoever closes the consumer has already ended the loop
                self._thread.run(self._core.until_closed(timeout_s))
            if self._core.is_ended:
                self._thread.close()
            return
        try:
            self._thread.run(self._core.shut_down(timeout_s, is_work_done=is_work_done))
            self._call_back()
        finally:
            self._thread.close()

    # Subscription and assignment.

    def subscribe(self, topics: Topics, listener: RebalanceListener | None = None) -> None:
        self._in_loop(self._core.subscribe, topics, listener)

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        self._in_loop(self._core.assign, partitions)

    def unsubscribe(self) -> None:
        self._thread.run(self._core.unsubscribe())

    def subscription(self) -> frozenset[str]:
        self._thread.check()
        return self._core.subscription()

    def assignment(self) -> frozenset[TopicPartition]:
        self._thread.check()
        return self._core.assignment()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._in_loop(self._core.pause, partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._in_loop(self._core.resume, partitions)

    def paused(self) -> frozenset[TopicPartition]:
        self._thread.check()
        return self._core.paused()

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata, *, until: int | None = None) -> None:
        self._in_loop(partial(self._core.seek, partition, offset, until=until))

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        self._in_loop(self._core.seek_to_beginning, partitions)

    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        self._in_loop(self._core.seek_to_end, partitions)

    # Polling.

    def poll(self, timeout: float | None = None, max_records: int | None = None) -> list[ConsumerRecord[K, V]]:
        """Returns records as soon as there are some, at most `max_records` (default: max.poll.records); an empty list
        after `timeout` seconds, which can be 0. None waits forever."""
        most = self._max_poll_records if max_records is None else most_records(max_records)
        taken = self._poll(seconds("timeout", timeout), lambda: self._reader.take(most))
        self._subscriptions.unfinished = {}  # nothing can interrupt this poll any more
        return taken or []

    def poll_arrow(self, timeout: float | None = None, columns: Sequence[str] = COLUMNS) -> pa.RecordBatch:
        """Like `poll`, but returns a `pyarrow.RecordBatch` with the columns topic, partition, offset, timestamp, key,
        value and headers, or with the given ones (timestampType is also available); with no rows after the timeout.
        Columns that are not named are not decoded. Returns all fetched records of one partition at a time."""
        timeout_s = seconds("timeout", timeout)
        KERNELS.load()
        chosen = chosen_columns(columns)
        batch = self._poll(timeout_s, lambda: self._reader.take_arrow(chosen))
        if batch is None:
            return chosen.no_rows
        self._subscriptions.unfinished = {}  # nothing can interrupt this poll any more
        return batch

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        """Yields records one by one, until the consumer is closed. `commit` includes the record yielded last."""
        return chain.from_iterable(self._iterations())

    def iter_arrow(self, columns: Sequence[str] = COLUMNS) -> Iterator[pa.RecordBatch]:
        """Yields Arrow batches, until the consumer is closed."""
        while self._thread.is_open and not self._core.is_done:
            batch = self.poll_arrow(columns=columns)
            if batch.num_rows:
                yield batch

    def _iterations(self) -> Iterator[Iterator[ConsumerRecord[K, V]]]:
        while self._thread.is_open and not self._core.is_done:
            iterated = self._poll(None, lambda: self._reader.iterate(self._max_poll_records))
            if iterated is not None:
                yield iterated.left

    @property
    def is_done(self) -> bool:
        """Whether all partitions have reached the ends that `seek` set."""
        return self._core.is_done

    def _poll(self, timeout_s: float | None, take: Callable[[], T | None]) -> T | None:
        if not self._thread.is_open:
            self._thread.check()
        if self._polling.locked():
            raise ClientError("another thread is polling this consumer: use one consumer per thread")
        with self._polling:  # not acquire(): an interruption right after it would leave the lock held
            if self._callbacks:
                self._call_back()
            core = self._core
            self._subscriptions.settle()
            KERNELS.loading.wait(PATIENCE_S if timeout_s is None else min(timeout_s, PATIENCE_S))
            if not core.is_due:
                taken = take()
                if taken:
                    return taken
            end_s = None if timeout_s is None else time.monotonic() + timeout_s
            while self._thread.run(self._wait(end_s)):
                taken = take()
                if taken:
                    return taken
                if end_s is not None and time.monotonic() >= end_s:
                    break  # interceptors removed all records
            return None

    async def _wait(self, end_s: float | None) -> bool:
        return await self._core.wait(Deadline(float("inf") if end_s is None else max(0.0, end_s - time.monotonic())))

    # Offsets.

    def commit(self, offsets: OffsetsToCommit | None = None) -> None:
        self._thread.run(self._core.commit(offsets))
        self._call_back()

    def commit_async(self, offsets: OffsetsToCommit | None = None, callback: CommitCallback | None = None) -> None:
        self._thread.check()
        if callback is not None:
            self._user.check(callback, "callback")
        self._core.commit_async(offsets, callback)

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return self._thread.run(self._core.committed(partitions))

    def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        self._thread.check()
        subscriptions = self._core.subscriptions
        known = subscriptions.position(subscriptions.state(partition))
        if known is not None:
            return known.offset
        return self._thread.run(self._core.position(partition, timeout))

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        self._thread.check()
        return self._core.positions()

    def ends(self) -> dict[TopicPartition, int]:
        self._thread.check()
        return self._core.ends()

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._thread.run(self._core.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._thread.run(self._core.end_offsets(partitions))

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return self._thread.run(self._core.offsets_for_times(times))

    def lag(self, partition: TopicPartition) -> int | None:
        self._thread.check()
        return self._core.lag(partition)

    # The cluster.

    def partitions_for(self, topic: str) -> TopicInfo:
        return self._thread.run(self._core.partitions_for(topic))

    def topics(self) -> dict[str, TopicInfo]:
        return self._thread.run(self._core.topics())

    def wakeup(self) -> None:
        """Like `AsyncConsumer.wakeup`; can be called from any thread or signal handler."""
        self._core.wakeup()

    def metrics(self) -> dict[str, int]:
        return self._core.metrics()

    def group_metadata(self) -> GroupMetadata:
        self._thread.check()
        return self._core.group_metadata()

    # Internal.

    def _in_loop(self, function: Callable[..., T], *args: object) -> T:
        async def call() -> T:
            return function(*args)

        return self._thread.run(call())

    def _call_back(self) -> None:
        while self._callbacks:
            callback = self._callbacks[0]
            try:
                self._callbacks.popleft()
                self._user.call(callback)
            except BaseException:
                if not callback.has_begun:  # Ctrl-C came before the call
                    self._callbacks.appendleft(callback)
                raise
