"""Reads a topic into a table, and keeps reading: the logic of both views.

A consumer without a group reads all partitions from their beginning. What makes its positions worthless (the topic was
deleted and created again, offsets were deleted or truncated) begins a new table. It takes the place of the current one
in one step, when it has everything that the topic had when it was begun; until then the current one is read. Brokers
that are away are waited for. Any other error ends the reading, and is raised by every read.

Belongs to one event loop. Other threads use only what says so.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ottla.base.ids import TopicPartition
from ottla.client.administer.configs import ConfigResource, ConfigsArea
from ottla.client.cluster import Backoff, Deadline
from ottla.client.config import AdminConfig, ConsumerConfig
from ottla.client.consume.async_consumer import AsyncConsumer
from ottla.client.errors import (
    BrokerConnectionError,
    CallTimeoutError,
    ClientError,
    ClosedError,
    ConfigError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    OttlaError,
    RefusedError,
    SerializationError,
    TableLoadingError,
    UnknownPartitionError,
    UnknownTopicError,
)
from ottla.client.serializers.contract import bound_deserializer
from ottla.client.serializers.names import deserializer_of
from ottla.client.tables.contents import TableContents
from ottla.records import RecordLists

_logger = logging.getLogger(__name__)

_LOST: Final = (OffsetOutOfRangeError, LogTruncatedError)
_REFUSED_CONFIGS: Final = {
    "auto.offset.reset": "a table is always read from the beginning",
    "enable.auto.commit": "a table commits no offsets",
    "group.id": "a table is read without a group, because every view needs all partitions",
    "group.instance.id": "a table is read without a group",
    "interceptor.classes": "a table makes no records that interceptors could see",
    "interceptors": "a table makes no records that interceptors could see",
}


def table_config(settings: Mapping[str, object] | None, keywords: Mapping[str, object]) -> ConsumerConfig:
    """The consumer's configs: the user's, and those that a table needs."""
    given = {str(name).replace("_", ".") for name in (*(settings or {}), *keywords)}
    for name in sorted(given & _REFUSED_CONFIGS.keys()):
        raise ConfigError(name, f"cannot be set for a TableView: {_REFUSED_CONFIGS[name]}")
    chosen: dict[str, object] = {**keywords, "auto_offset_reset": "none", "allow_auto_create_topics": False}
    if "isolation.level" not in given:
        chosen["isolation_level"] = "read_committed"
    return ConsumerConfig.parse(settings, chosen)


class TableFollower:
    """See the module docstring. Reads from its creation until `close`."""

    def __init__(self, topic: str, config: ConsumerConfig, max_bytes: int) -> None:
        self.topic = topic
        self.max_bytes = max_bytes
        self.readable: TableContents | None = None
        """The table to read, from any thread; None while there is none, and after an error."""
        self._failure: Exception | None = None
        self._config = config
        keys = deserializer_of(config.key_deserializer, "key")
        values = deserializer_of(config.value_deserializer, "value")
        self._keys = None if config.key_deserializer is None else bound_deserializer(keys, "key")
        self._values = None if config.value_deserializer is None else bound_deserializer(values, "value")
        self._consumer: AsyncConsumer[Any, Any] = AsyncConsumer.of(config, _no_listeners)
        self._is_closed = False
        self._table: TableContents | None = None
        """The table that is being read: the readable one, or the one that will take its place."""
        self._goal: Mapping[TopicPartition, int] = {}
        """Where the partitions ended when the table was begun."""
        self._tables = 0
        self._records = 0
        self._without_key = 0
        self._waiting = 0
        self._news = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._follow(), name=f"ottla-table-{topic}")

    # Reading; thread-safe.

    def decode(self, value: bytes) -> Any:
        return value if self._values is None else self._values(self.topic, (value,))[0]

    def decode_all(self, values: Iterable[bytes]) -> Iterable[Any]:
        return values if self._values is None else self._values(self.topic, values)

    def refusal(self) -> Exception:
        """Why there is nothing to read."""
        if self._is_closed:
            return ClosedError(f"the view of topic {self.topic!r} is closed")
        if self._failure is not None:
            return self._failure
        has = "nothing" if self._table is None else f"{len(self._table.values)} keys"
        words = f"topic {self.topic!r} is still being read, and the view has {has} so far"
        return TableLoadingError(f"{words}: call wait_until_caught_up() before the first read, or use `with`")

    @property
    def size_in_bytes(self) -> int:
        sizes = [table.size_in_bytes for table in (self.readable, self._table) if table is not None]
        return max(sizes, default=0)

    def metrics(self) -> dict[str, int]:
        table = self.readable
        partitions = self._consumer.subscriptions.partitions
        return {
            "keys": 0 if table is None else len(table.values),
            "bytes": self.size_in_bytes,
            "max_bytes": self.max_bytes,
            "records": self._records,
            "records_without_key": self._without_key,
            "reloads": max(0, self._tables - 1),
            "lag": 0 if self._is_closed else sum(self._consumer.lag(one) or 0 for one in list(partitions)),
        }

    # Waiting.

    async def wait_until_caught_up(self, timeout_s: float | None) -> None:
        """Waits until everything that the topic has now was applied."""
        async with self._patience(timeout_s, "did not catch up with its topic"):
            while True:
                await self._until(lambda: self.readable is not None and self.readable is self._table)
                table = self._table
                ends = await self._consumer.end_offsets(list(self._consumer.subscriptions.partitions))
                await self._until(lambda: self._table is not table or self._has_passed(ends))  # noqa: B023 - in this turn
                if self._table is table:
                    return

    async def wait_until(self, partition: int, offset: int, timeout_s: float | None) -> None:
        """Waits until the record at this offset was applied."""
        where = TopicPartition(self.topic, partition)

        def is_applied() -> bool:
            partitions = self._consumer.subscriptions.partitions
            if self.readable is None or self.readable is not self._table:
                return False
            if where not in partitions:
                raise UnknownPartitionError(f"topic {self.topic!r} has no partition {partition}")
            return self._has_passed({where: offset + 1})

        async with self._patience(timeout_s, f"did not reach offset {offset} of partition {where}"):
            await self._until(is_applied)

    def _patience(self, timeout_s: float | None, what: str) -> _Patience:
        return _Patience(timeout_s, f"the view of topic {self.topic!r} {what} within {timeout_s} s")

    async def _until(self, condition: Callable[[], bool]) -> None:
        self._waiting += 1
        try:
            while not condition():
                if self._failure is not None or self._is_closed:
                    raise self.refusal()
                await self._news.wait()
        finally:
            self._waiting -= 1

    def _tell(self) -> None:
        if self._waiting:
            news, self._news = self._news, asyncio.Event()
            news.set()

    def _has_passed(self, offsets: Mapping[TopicPartition, int]) -> bool:
        states = self._consumer.subscriptions.partitions
        for partition, offset in offsets.items():
            state = states.get(partition)
            if state is None or state.position is None or state.position.offset < offset:
                return False
        return True

    # Following.

    async def close(self, timeout_s: float) -> None:
        """Ends the reading; waiting calls raise an error. Idempotent."""
        self._is_closed, self.readable = True, None
        self._tell()
        self._task.cancel()
        await asyncio.wait([self._task])
        self._table = None
        await self._consumer.shut_down(timeout_s, is_work_done=False)

    async def _follow(self) -> None:
        try:
            await self._begin()
            while True:
                try:
                    await self._read_on()
                except _LOST as error:
                    _logger.warning("%s; the table of topic %s is read again from the beginning", error, self.topic)
                    await self._begin_again()
        except OttlaError as error:
            self._fail(error)
        except Exception as error:
            _logger.exception("reading the table of topic %s failed", self.topic)
            failure = ClientError(f"reading the table of topic {self.topic!r} failed: {error!r}")
            failure.__cause__ = error
            self._fail(failure)

    def _fail(self, failure: Exception) -> None:
        self._failure, self.readable, self._table = failure, None, None
        if not self._is_closed:
            self._consumer.assign([])  # nothing more is fetched
        self._tell()

    async def _begin(self) -> None:
        try:
            await self._begin_table()
        except UnknownTopicError as error:
            hint = f"Create it with `ottla topics create {self.topic} --config cleanup.policy=compact`"
            failure = UnknownTopicError(self.topic)
            failure.args = (f"{error}. {hint}",)
            raise failure from None
        await self._warn_unless_compacted()

    async def _begin_again(self) -> None:
        """The same, however long the topic or its leaders are away."""
        backoff = Backoff(self._consumer.cluster.options)
        while True:
            try:
                await self._begin_table()
                return
            except (UnknownTopicError, BrokerConnectionError) as error:
                _logger.debug("topic %s cannot be read yet: %s", self.topic, error)
            except RefusedError as error:
                if not error.retriable:
                    raise
            await asyncio.sleep(backoff.next_s())

    async def _begin_table(self) -> None:
        partitions = await self._partitions()
        begins = await self._consumer.beginning_offsets(partitions)
        goal = await self._consumer.end_offsets(partitions)
        self._assign(partitions, begins)
        self._goal = goal
        self._table = TableContents(self.topic, self.max_bytes)
        self._tables += 1
        self._show_complete()

    def _assign(self, partitions: list[TopicPartition], begins: Mapping[TopicPartition, int]) -> None:
        """Also sets positions, at once: a consumer that has to find them would not report it."""
        self._consumer.assign(partitions)
        for partition, offset in begins.items():
            self._consumer.seek(partition, offset)

    async def _partitions(self) -> list[TopicPartition]:
        info = await self._consumer.partitions_for(self.topic)
        return [TopicPartition(self.topic, one.index) for one in info.partitions]

    async def _read_on(self) -> None:
        look_s = self._config.metadata_max_age_ms / 1000
        looked_s = time.monotonic()
        consumer = self._consumer
        while True:
            consumer.subscriptions.settle()
            left_s = looked_s + look_s - time.monotonic()
            if left_s <= 0:
                await self._look_for_partitions()
                looked_s = time.monotonic()
            elif await consumer.wait(Deadline(left_s)):
                self._take()
                await asyncio.sleep(0)  # there may be more at once, and others use this loop

    def _take(self) -> None:
        taken = self._consumer.reader.take_lists()
        if taken is not None:
            partition, lists = taken
            if lists.offsets:
                self._apply(partition, lists)
            self._consumer.subscriptions.unfinished = {}
        self._show_complete()

    def _show_complete(self) -> None:
        if self._table is not self.readable and self._has_passed(self._goal):
            self.readable = self._table
        self._tell()

    def _apply(self, partition: TopicPartition, lists: RecordLists) -> None:
        table, keys = self._table, lists.keys
        if table is None:
            return
        if self._keys is not None:
            try:
                keys = self._keys(self.topic, keys)
            except SerializationError as error:
                where = f"partition {partition}, offset {lists.offsets[error.index or 0]}"
                raise SerializationError(self.topic, error.part, f"{error.reason} ({where})") from error
        try:
            without_key = table.apply(keys, lists.values)
        except TypeError as error:
            reason = f"a deserialized key of partition {partition} cannot be the key of a mapping ({error})"
            raise SerializationError(
                self.topic, "key", f"{reason}: use a deserializer that returns hashable keys"
            ) from (error)
        self._records += len(lists.offsets)
        if without_key and not self._without_key:
            _logger.warning("partition %s has records without a key; the table skips them", partition)
        self._without_key += without_key

    # About the topic.

    async def _look_for_partitions(self) -> None:
        known = self._consumer.subscriptions.partitions
        try:
            new = [one for one in await self._partitions() if one not in known]
            begins = await self._consumer.beginning_offsets(new)
        except OttlaError as error:
            _logger.debug("looking for partitions of topic %s failed: %s", self.topic, error)
            return
        if new:
            self._assign([*known, *new], begins)

    async def _warn_unless_compacted(self) -> None:
        servers = [f"{host}:{port}" for host, port in self._config.bootstrap_servers]
        configs = ConfigsArea(self._consumer.cluster, AdminConfig.parse({"bootstrap.servers": ",".join(servers)}))
        resource = ConfigResource.topic(self.topic)
        try:
            found = (await configs.describe_configs([resource], keys=["cleanup.policy"]))[resource]
        except OttlaError as error:  # reading the configs may not be allowed
            _logger.debug("the configs of topic %s are not known: %s", self.topic, error)
            return
        policy = found["cleanup.policy"].value or ""
        if "compact" not in policy:
            _logger.warning(
                "topic %s has cleanup.policy=%s: loading the table reads every record, and keys disappear from new "
                "views when retention deletes their records. Set cleanup.policy=compact",
                self.topic,
                policy,
            )


class _Patience:
    """`asyncio.timeout` with an error of ours."""

    def __init__(self, timeout_s: float | None, words: str) -> None:
        self._limit = asyncio.timeout(timeout_s)
        self._words = words

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()

    async def __aexit__(self, *outcome: Any) -> None:
        try:
            await self._limit.__aexit__(*outcome)
        except TimeoutError:
            raise CallTimeoutError(self._words) from None


async def _no_listeners(*_: object) -> None:
    """A consumer without a group has no rebalances."""
