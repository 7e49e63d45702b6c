"""The asyncio consumer, which contains the logic of both consumers.

Fetching, heartbeats and auto commits run in the loop from the first use on; `poll` takes what was fetched. Belongs to
the loop in which it was created; only one task may poll at a time. Methods that the blocking consumer calls in its own
thread say so.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Self, TypeVar, Unpack, overload

from ottla.base.background_load import PATIENCE_S
from ottla.base.ids import TopicPartition
from ottla.client.arguments import checks_arguments, seconds, whole_number, wrong_type
from ottla.client.callbacks import Callbacks
from ottla.client.cluster import Cluster, Deadline
from ottla.client.config import ConsumerConfig
from ottla.client.config_keywords import ConsumerKeywords
from ottla.client.consume.arrow import COLUMNS, chosen_columns
from ottla.client.consume.commits import BackgroundCommits, CommitCallback, CommitTold, Offsets
from ottla.client.consume.decoding import Decoder
from ottla.client.consume.fetch_buffer import FetchBuffer
from ottla.client.consume.fetcher import Fetcher
from ottla.client.consume.interceptors import ConsumerInterceptors
from ottla.client.consume.kernels import KERNELS
from ottla.client.consume.missing_topics import MissingTopics
from ottla.client.consume.positions import Positions
from ottla.client.consume.reader import PollReader
from ottla.client.consume.record import ConsumerRecord, K, V
from ottla.client.errors import ArgumentError, ClientError, ClosedError, OttlaError, WakeupError, WrongLoopError
from ottla.client.membership import GroupMetadata, create_membership
from ottla.client.membership.ledger import AskedCommit
from ottla.client.membership.zookeeper.topic_filter import filter_text
from ottla.client.metadata import TopicInfo
from ottla.client.offsets import (
    EARLIEST,
    LATEST,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Place,
    checked_offsets,
    find_offsets,
    offset_of,
    offsets_at,
    partition_of,
)
from ottla.client.serializers.contract import AnyKey, AnyValue, Deserializer
from ottla.client.subscriptions.listeners import RebalanceListener
from ottla.client.subscriptions.subscription import NO_EPOCH, ConsumedPartition, Position, Subscription
from ottla.client.teardown import to_the_end

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


CLOSE_TIMEOUT_S: Final = 30.0
EXIT_TIMEOUT_S: Final = 3.0
"""Time limit for leaving the group when the interpreter exits without `close`."""
_LOOK_UP_S: Final = 0.5
"""How often a waiting poll records that the user is still there."""
_PAUSE_S: Final = 0.02
"""Wait before a membership that is not done is polled again."""


class SubscriptionPattern(NamedTuple):
    """A pattern that the broker matches against topic names, in RE2 syntax (only with group.protocol=consumer). A
    `re.Pattern` is matched by the client instead."""

    pattern: str


OffsetsToCommit = Mapping[TopicPartition, int | OffsetAndMetadata] | Offsets
Topics = str | Iterable[str] | re.Pattern[str] | SubscriptionPattern


@checks_arguments(
    "subscribe",
    "assign",
    "pause",
    "resume",
    "seek",
    "seek_to_beginning",
    "seek_to_end",
    "commit",
    "committed",
    "position",
    "beginning_offsets",
    "end_offsets",
    "offsets_for_times",
    "lag",
    "partitions_for",
)
class AsyncConsumer(Generic[K, V]):
    """Consumes records of subscribed topics or of assigned partitions.

    async with AsyncConsumer(bootstrap_servers="localhost:9092", group_id="billing") as consumer:
        consumer.subscribe(["orders"])
        async for record in consumer:
            print(record.topic, record.partition, record.offset, record.value)

    Configs have Kafka's names in a mapping, or Python's as keyword arguments. Timeouts are in seconds.
    """

    @overload
    def __init__(
        self: AsyncConsumer[bytes | None, bytes | None],
        settings: None = None,
        /,
        *,
        key_deserializer: None = None,
        value_deserializer: None = None,
        **keywords: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncConsumer[bytes | None, AnyValue | None],
        settings: None = None,
        /,
        *,
        key_deserializer: None = None,
        value_deserializer: Callable[[str, bytes], AnyValue],
        **keywords: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncConsumer[AnyKey | None, bytes | None],
        settings: None = None,
        /,
        *,
        key_deserializer: Callable[[str, bytes], AnyKey],
        value_deserializer: None = None,
        **keywords: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncConsumer[AnyKey | None, AnyValue | None],
        settings: None = None,
        /,
        *,
        key_deserializer: Callable[[str, bytes], AnyKey],
        value_deserializer: Callable[[str, bytes], AnyValue],
        **keywords: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncConsumer[Any, Any],
        settings: Mapping[str, object] | None = None,
        /,
        *,
        key_deserializer: str | Deserializer | None = None,
        value_deserializer: str | Deserializer | None = None,
        **keywords: Unpack[ConsumerKeywords],
    ) -> None: ...

    def __init__(self, settings: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        self._set_up(ConsumerConfig.parse(settings, keywords), _call_listener)

    @classmethod
    def of(cls, config: ConsumerConfig, call_listener: Callable[..., Awaitable[None]]) -> Self:
        """A consumer whose listeners are called with `call_listener`."""
        consumer = cls.__new__(cls)
        consumer._set_up(config, call_listener)
        return consumer

    def _set_up(self, config: ConsumerConfig, call_listener: Callable[..., Awaitable[None]]) -> None:
        self.config = config
        decoder = Decoder(config)
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise WrongLoopError(
                "an AsyncConsumer must be created in its event loop, that is, in a coroutine"
            ) from None
        self._interceptors = ConsumerInterceptors(config.interceptors)
        self.subscriptions = Subscription()
        self.buffer = FetchBuffer(self.subscriptions)
        self.reader = PollReader(self.subscriptions, self.buffer, decoder, self._interceptors)
        self._user = Callbacks(takes_coroutines=True)
        self._user.loop = self._loop
        self.is_closing = False
        """Whether consuming has stopped. Until everything is closed, listeners can still commit."""
        self._is_closed = False
        self._ended = asyncio.Event()
        """Set when closing is finished."""
        self._is_woken = False
        self._ending: asyncio.Timeout | None = None
        """Cancels the group's work in a poll."""
        self._call_listener = call_listener
        self._is_telling = False
        """Whether a listener is running."""
        self.callbacks: deque[CommitTold] | None = None
        """Where commit callbacks wait to be called in the thread that polls; None if they are called at once."""
        self._cluster = Cluster(config)
        self.membership = create_membership(config, self._cluster, self.subscriptions, self._tell_listener)
        committed = self.membership.committed if config.group_id else None
        positions = Positions(config, self._cluster, self.subscriptions, self.buffer, committed)
        self._news = asyncio.Event()
        self._fetcher = Fetcher(
            config, self._cluster, self.subscriptions, self.buffer, positions, on_news=self._news.set
        )
        self._missing = MissingTopics(self._cluster)
        self._committing = BackgroundCommits(self.membership.ledger, self._commit, self._tell)
        self.subscriptions.on_change = self._fetcher.wake
        self.subscriptions.wake_poll = self._news.set
        self.subscriptions.on_undone = self._fetch_on
        self.buffer.on_room = self._fetch_on

    # Life.

    async def __aenter__(self) -> Self:
        self._check_reading()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shut_down(CLOSE_TIMEOUT_S, is_work_done=kind is None)

    async def close(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """Commits outstanding `commit_async` offsets and, with enable.auto.commit, all returned records; leaves the
        group. Idempotent."""
        await self.shut_down(close_timeout_s(timeout), is_work_done=True)

    async def shut_down(self, timeout_s: float, *, is_work_done: bool) -> None:
        """`is_work_done`: whether the user has finished the records of the last poll; if not, they are not
        committed."""
        if self.is_closing:
            await self.until_closed(timeout_s)
            return
        self.is_closing = True
        try:
            await self._shut_down(timeout_s, is_work_done=is_work_done)
        finally:
            self._ended.set()

    @property
    def is_ended(self) -> bool:
        """Whether closing is finished. Thread-safe."""
        return self._ended.is_set()

    async def until_closed(self, timeout_s: float) -> None:
        """Waits for another caller of `close`, unless that one waits for this one (a listener or a callback)."""
        if not self._is_telling and not self._user.is_calling:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._ended.wait()

    async def _shut_down(self, timeout_s: float, *, is_work_done: bool) -> None:
        self._missing.cancel()
        self._news.set()
        if is_work_done:
            self.subscriptions.settle_all()
        deadline = Deadline(timeout_s)
        failure: Exception | None = None
        try:
            async with asyncio.timeout(timeout_s):
                await self._fetcher.close()
                try:
                    await self._committing.finish()
                except OttlaError as error:
                    failure = error
                await self._user.finish()
                await self.membership.close(deadline.left_s)
        except TimeoutError:
            failure = failure or ClientError(f"the consumer was not closed cleanly within {timeout_s:g} s")
        finally:
            self._is_closed = True
            self._committing.cancel()
            await to_the_end(self._tear_down())
        if failure is not None:
            raise failure

    async def _tear_down(self) -> None:
        await self._fetcher.close()
        await self.membership.end()
        await self._cluster.close()
        self._interceptors.close()

    def check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the consumer is closed")

    def _check_reading(self) -> None:
        if self.is_closing:
            raise ClosedError("the consumer is closed")

    # Subscription and assignment.

    def subscribe(self, topics: Topics, listener: RebalanceListener | None = None) -> None:
        """Subscribes to these topics: a name, names, or a pattern that must match full names. Replaces the previous
        subscription; takes effect with the next poll."""
        self._check_reading()
        if not self.config.group_id:
            raise ClientError(
                "a consumer without a group.id cannot subscribe to topics: set group.id, or assign partitions"
            )
        if isinstance(topics, re.Pattern):
            if self.config.group_protocol == "zookeeper":
                filter_text(topics)  # raises if other members could not understand the pattern
            self.subscriptions.subscribe_pattern(topics, listener)
        elif isinstance(topics, SubscriptionPattern):
            if self.config.group_protocol != "consumer":
                raise ClientError("a SubscriptionPattern needs group.protocol=consumer; use re.compile(…) instead")
            self.subscriptions.subscribe_server_pattern(topics.pattern, listener)
        else:
            names = [topics] if isinstance(topics, str) else list(topics)
            for name in names:
                if not name:
                    raise ArgumentError("topics contains an empty name")
                if name.startswith("^"):  # librdkafka marks patterns like this
                    hint = f"to match names with a pattern, use subscribe(re.compile({name[1:]!r}))"
                    raise ArgumentError(f"{name!r} is not the name of a topic; {hint}")
            if not names:
                raise ArgumentError("topics is empty; call unsubscribe() to stop consuming")
            self.subscriptions.subscribe(names, listener)
            self._missing.look_for(names)
        self.membership.subscription_changed()

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Consumes exactly these partitions, without a group: from the committed offset of group.id, if there is one,
        otherwise according to auto.offset.reset, unless you `seek`."""
        self._check_reading()
        self.subscriptions.assign_manually([partition_of(one) for one in partitions])

    async def unsubscribe(self) -> None:
        """Stops consuming, and leaves the group."""
        self._check_reading()
        self._missing.cancel()
        self.subscriptions.settle_all()
        await self.membership.unsubscribe(self.config.default_api_timeout_ms / 1000)
        self.subscriptions.unsubscribe()

    def subscription(self) -> frozenset[str]:
        """The subscribed topics: by name, or those that match the pattern."""
        self.check_open()
        return self.subscriptions.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        self.check_open()
        return frozenset(self.subscriptions.partitions)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Polls return no records of these partitions until `resume`; fetched records are kept."""
        self.check_open()
        self.buffer.pause(self.subscriptions.pause(partitions, is_paused=True))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Ends `pause`."""
        self.check_open()
        self.buffer.resume(self.subscriptions.pause(partitions, is_paused=False))
        self._news.set()

    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        self.check_open()
        return frozenset(one for one, state in self.subscriptions.partitions.items() if state.is_paused)

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata, *, until: int | None = None) -> None:
        """Sets the position: the next record is the one at the offset, or the first after it.

        With `until`, the partition is read up to that offset (exclusive). Once all partitions have reached such an end,
        polls return immediately with nothing, and iterations stop; `position` is then `until`."""
        self.check_open()
        to = offset_of(offset)
        until = None if until is None else whole_number("until", until)
        if to.offset < 0:
            raise ArgumentError(f"{to.offset} is not an offset; use seek_to_beginning() or seek_to_end() for the ends")
        self.subscriptions.seek(
            partition, Position(to.offset, NO_EPOCH if to.leader_epoch is None else to.leader_epoch), until
        )

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Seeks to the first offset of these partitions; of all assigned ones, if none is given."""
        self.check_open()
        self.subscriptions.seek_to(self.subscriptions.partitions if partitions is None else partitions, EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Seeks to the end of these partitions."""
        self.check_open()
        self.subscriptions.seek_to(self.subscriptions.partitions if partitions is None else partitions, LATEST)

    # Polling.

    async def poll(self, timeout: float | None = None, max_records: int | None = None) -> list[ConsumerRecord[K, V]]:
        """Returns records as soon as there are some, at most `max_records` (default: max.poll.records); an empty list
        after `timeout` seconds, which can be 0. None waits forever."""
        most = self.config.max_poll_records if max_records is None else most_records(max_records)
        taken = await self._poll(seconds("timeout", timeout), lambda: self.reader.take(most))
        self.subscriptions.unfinished = {}  # nothing can interrupt this poll any more
        return taken or []

    async def poll_arrow(self, timeout: float | None = None, columns: Sequence[str] = COLUMNS) -> pa.RecordBatch:
        """Like `poll`, but returns a `pyarrow.RecordBatch` with the columns topic, partition, offset, timestamp, key,
        value and headers, or with the given ones (timestampType is also available); with no rows after the timeout.
        Columns that are not named are not decoded. Returns all fetched records of one partition at a time."""
        timeout_s = seconds("timeout", timeout)
        if KERNELS.module is None:
            await asyncio.to_thread(KERNELS.load)
        chosen = chosen_columns(columns)
        batch = await self._poll(timeout_s, lambda: self.reader.take_arrow(chosen))
        if batch is None:
            return chosen.no_rows
        self.subscriptions.unfinished = {}  # nothing can interrupt this poll any more
        return batch

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Yields records one by one, until the consumer is closed. `commit` includes the record yielded last."""
        while not self.is_closing and not self.is_done:
            iterated = await self._poll(None, lambda: self.reader.iterate(self.config.max_poll_records))
            if iterated is not None:
                for record in iterated.left:
                    yield record

    async def iter_arrow(self, columns: Sequence[str] = COLUMNS) -> AsyncIterator[pa.RecordBatch]:
        """Yields Arrow batches, until the consumer is closed."""
        while not self.is_closing and not self.is_done:
            batch = await self.poll_arrow(columns=columns)
            if batch.num_rows:
                yield batch

    async def _poll(self, timeout_s: float | None, take: Callable[[], T | None]) -> T | None:
        self.subscriptions.settle()
        deadline = Deadline(float("inf") if timeout_s is None else timeout_s)
        if KERNELS.loading.is_going_on:
            await asyncio.to_thread(KERNELS.loading.wait, min(deadline.left_s, PATIENCE_S))
        if not self.is_due:
            taken = take()
            if taken:
                return taken
        while await self.wait(deadline):
            taken = take()
            if taken:
                return taken
            if deadline.is_over:
                break  # interceptors removed all records
        return None

    @property
    def is_done(self) -> bool:
        """Whether all partitions have reached the ends that `seek` set. Thread-safe."""
        return self.subscriptions.is_done and self.subscriptions.iterated is None

    @property
    def is_due(self) -> bool:
        """Whether a poll must do something in the loop before it looks for records. Thread-safe."""
        return self.is_closing or self._is_woken or self.membership.needs_poll()

    async def wait(self, deadline: Deadline) -> bool:
        """Does what the group needs, and waits until there is something to take; False after the deadline."""
        if not self.subscriptions.partitions and not self.subscriptions.is_by_group:
            self._check_reading()
            raise ClientError("nothing to poll: subscribe to topics or assign partitions first")
        while True:
            self._check_reading()
            self._news.clear()
            self._raise_if_woken()
            pause_s = _LOOK_UP_S
            if self.membership.needs_poll():
                await self._poll_membership(deadline)
                self._raise_if_woken()
                if self.membership.needs_poll():
                    pause_s = _PAUSE_S
            if self.buffer.has_news:
                return True
            if deadline.is_over or self.subscriptions.is_done:
                return False
            if self.buffer.is_wanted:
                self._fetcher.wake()  # an interrupted poll may have made room without notifying it
            waking = self._loop.call_later(min(pause_s, deadline.left_s), self._news.set)
            try:
                await self._news.wait()
            finally:
                waking.cancel()
            self.subscriptions.polled_s = time.monotonic()

    async def _poll_membership(self, deadline: Deadline) -> None:
        try:
            await self._poll_until_woken(deadline)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self.is_closing and (task is None or not task.cancelling()):
                self._check_reading()  # another caller closes the consumer, which ends the group's work
            raise

    async def _poll_until_woken(self, deadline: Deadline) -> None:
        try:
            async with asyncio.timeout(None) as self._ending:
                await self.membership.poll(deadline)
        except TimeoutError:
            if not self._is_woken:
                raise
        finally:
            self._ending = None

    def wakeup(self) -> None:
        """Interrupts the waiting poll, or the next one, with `WakeupError`: once, however often it is called. Can be
        called from any thread or signal handler."""
        self._is_woken = True
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake_up)

    def _wake_up(self) -> None:
        self._news.set()
        if self._is_woken and self._ending is not None and not self._is_telling and not self._ending.expired():
            self._ending.reschedule(self._loop.time())

    async def _tell_listener(self, method: Callable[..., object], partitions: Collection[TopicPartition]) -> None:
        """Not interrupted by `wakeup`: otherwise the listener could be called twice, or not at all."""
        self._is_telling = True
        try:
            await self._call_listener(method, partitions)
        finally:
            self._is_telling = False
            self._wake_up()

    def _raise_if_woken(self) -> None:
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("the poll was interrupted by wakeup()")

    # Offsets.

    async def commit(self, offsets: OffsetsToCommit | None = None) -> None:
        """Commits these offsets, or the positions after all returned records, and waits for it."""
        self.check_open()
        asked = self.membership.ledger.ask(
            self.subscriptions.positions() if offsets is None else checked_offsets(offsets)
        )
        await self._commit(dict.fromkeys(asked.offsets, asked))

    def commit_async(self, offsets: OffsetsToCommit | None = None, callback: CommitCallback | None = None) -> None:
        """Commits in the background. Cheap enough to call for every record, because only the newest offsets are sent;
        `close` waits for the last ones. The callback gets the offsets, and the error or None."""
        self.check_open()
        if callback is not None:
            self._user.check(callback, "callback")
        if self._committing.ask(
            self.subscriptions.positions() if offsets is None else checked_offsets(offsets), callback
        ):
            self._loop.call_soon_threadsafe(self._committing.begin)

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offset of each partition; None if there is none."""
        self.check_open()
        return dict(await self.membership.committed(partitions))

    async def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """The offset of the next record that a poll returns; determines it if necessary."""
        self.check_open()
        timeout_s = self.config.default_api_timeout_ms / 1000 if timeout is None else timeout
        deadline = Deadline(timeout_s)
        while True:
            position = self.subscriptions.position(self.subscriptions.state(partition))
            if position is not None:
                return position.offset
            self.buffer.raise_failure()
            if deadline.is_over:
                raise ClientError(
                    f"the position of partition {partition} could not be determined within {timeout_s:g} s"
                )
            await asyncio.sleep(min(_PAUSE_S, deadline.left_s))

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions after all returned records, of the partitions that have one: what `commit()` would commit, for
        `send_offsets_to_transaction`."""
        self.check_open()
        return self.subscriptions.positions()

    def ends(self) -> dict[TopicPartition, int]:
        """The ends that `seek` set, of the partitions that have one."""
        self.check_open()
        return self.subscriptions.ends()

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return await self._offsets_at(dict.fromkeys(partitions, EARLIEST))

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end offset of each partition: the high watermark, or the last stable offset with read_committed."""
        return await self._offsets_at(dict.fromkeys(partitions, LATEST))

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition at or after the time, in milliseconds since the epoch; None if all are
        older."""
        self.check_open()
        places = {partition: Place.at_time(whole_number("times", time_ms)) for partition, time_ms in times.items()}
        found = await find_offsets(self._cluster, places, committed_only=self._is_committed_only)
        return {partition: None if found[partition].offset < 0 else found[partition] for partition in times}

    async def _offsets_at(self, places: Mapping[TopicPartition, Place]) -> dict[TopicPartition, int]:
        self.check_open()
        return await offsets_at(self._cluster, places, committed_only=self._is_committed_only)

    @property
    def _is_committed_only(self) -> bool:
        return self.config.isolation_level == "read_committed"

    def lag(self, partition: TopicPartition) -> int | None:
        """The number of offsets between the position and the end, as of the last fetch; None before the first fetch."""
        return self._lag(self.subscriptions.state(partition))

    def _lag(self, state: ConsumedPartition) -> int | None:
        end = state.last_stable_offset if self._is_committed_only else state.high_watermark
        position = self.subscriptions.position(state)
        return None if end is None or position is None else max(0, end - position.offset)

    # The cluster.

    @property
    def cluster(self) -> Cluster:
        """For what reads more from the same cluster. The consumer closes it."""
        return self._cluster

    async def partitions_for(self, topic: str) -> TopicInfo:
        """The partitions of the topic and their leaders."""
        self.check_open()
        return await self._cluster.retry(lambda: self._cluster.topic(topic, fresh=True))

    async def topics(self) -> dict[str, TopicInfo]:
        """All topics that this client may see; internal ones only if exclude.internal.topics is false."""
        self.check_open()
        found = await self._cluster.retry(lambda: self._cluster.refresh(None))
        return {one.name: one for one in found if not (one.is_internal and self.config.exclude_internal_topics)}

    def metrics(self) -> dict[str, int]:
        """Counts: records returned by polls, fetch requests answered, bytes fetched, bytes waiting to be polled,
        assigned partitions, and the largest lag."""
        states = list(self.subscriptions.partitions.values())
        return {
            "records": self.reader.records,
            **self._fetcher.counts,
            "bytes_waiting": sum(state.waiting_bytes for state in states),
            "partitions": len(states),
            "records_lag_max": max((self._lag(state) or 0 for state in states), default=0),
        }

    def group_metadata(self) -> GroupMetadata:
        """The group, generation and member id of this consumer."""
        return self.membership.metadata()

    # Internal.

    def _fetch_on(self) -> None:
        """Thread-safe."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._fetcher.wake)

    async def _commit(self, commits: Mapping[TopicPartition, AskedCommit]) -> None:
        if not commits:
            return
        await self.membership.commit_asked(commits)
        self._interceptors.on_commit({one: asked.offsets[one] for one, asked in commits.items()})

    def _tell(self, callback: CommitTold) -> None:
        if self.callbacks is not None:
            self.callbacks.append(callback)
        else:
            self._user.call(callback)


def most_records(given: int) -> int:
    """Checks the argument of polls."""
    most = whole_number("max_records", given)
    if most < 1:
        raise ArgumentError(f"max_records must be at least 1, not {most}")
    return most


def close_timeout_s(given: float) -> float:
    """Checks the argument of `close`."""
    timeout_s = seconds("timeout", given)
    if timeout_s is None:
        raise wrong_type("timeout", given, "a number of seconds")
    return timeout_s


async def _call_listener(method: Callable[..., object], partitions: Collection[TopicPartition]) -> None:
    result = method(partitions)
    if inspect.isawaitable(result):
        await result
