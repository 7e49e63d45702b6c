"""`TableView` and `AsyncTableView`: a compacted topic as a live, read-only mapping."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack, overload

from ottla.client.arguments import seconds, whole_number, wrong_type
from ottla.client.config import ConsumerConfig
from ottla.client.config_keywords import ConsumerKeywords
from ottla.client.consume.async_consumer import CLOSE_TIMEOUT_S, EXIT_TIMEOUT_S, close_timeout_s
from ottla.client.errors import ArgumentError
from ottla.client.loop_thread import LoopThread
from ottla.client.serializers.contract import AnyKey, AnyValue, Deserializer
from ottla.client.tables.contents import TableContents
from ottla.client.tables.following import TableFollower, table_config
from ottla.client.tables.reads import MAX_BYTES, K, TableReads, V


class AsyncTableView(TableReads[K, V]):
    """The asyncio face: created in an event loop, which does the reading. Reads are as in `TableView`.

    async with AsyncTableView("customers", bootstrap_servers="localhost:9092") as customers:
        print(customers[b"alice"])
    """

    @overload
    def __init__(
        self: AsyncTableView[bytes, bytes],
        topic: str,
        settings: None = None,
        /,
        *,
        max_bytes: int = ...,
        key_deserializer: None = None,
        value_deserializer: None = None,
        **keywords: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncTableView[bytes, AnyValue],
        topic: str,
        settings: None = None,
        /,
        *,
        max_bytes: int = ...,
        key_deserializer: None = None,
        value_deserializer: Callable[[str, bytes], AnyValue],
        **keywords: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncTableView[AnyKey, bytes],
        topic: str,
        settings: None = None,
        /,
        *,
        max_bytes: int = ...,
        key_deserializer: Callable[[str, bytes], AnyKey],
        value_deserializer: None = None,
        **keywords: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncTableView[AnyKey, AnyValue],
        topic: str,
        settings: None = None,
        /,
        *,
        max_bytes: int = ...,
        key_deserializer: Callable[[str, bytes], AnyKey],
        value_deserializer: Callable[[str, bytes], AnyValue],
        **keywords: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncTableView[Any, Any],
        topic: str,
        settings: Mapping[str, object] | None = None,
        /,
        *,
        max_bytes: int = ...,
        key_deserializer: str | Deserializer | None = None,
        value_deserializer: str | Deserializer | None = None,
        **keywords: Unpack[ConsumerKeywords],
    ) -> None: ...

    def __init__(
        self,
        topic: str,
        settings: Mapping[str, object] | None = None,
        /,
        *,
        max_bytes: int = MAX_BYTES,
        **keywords: object,
    ) -> None:
        config = table_config(settings, keywords)
        self._follower = TableFollower(_checked_topic(topic), config, _checked_bytes(max_bytes))

    async def __aenter__(self) -> Self:
        try:
            await self.wait_until_caught_up()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """Ends the reading and frees the table. Idempotent."""
        await self._follower.close(close_timeout_s(timeout))

    async def wait_until_caught_up(self, timeout: float | None = None) -> None:
        """Waits until the view has everything that the topic has at the moment of the call."""
        await self._follower.wait_until_caught_up(seconds("timeout", timeout))

    async def wait_until(self, partition: int, offset: int, timeout: float | None = None) -> None:
        """Waits until the view has the record at this offset."""
        place = whole_number("partition", partition), whole_number("offset", offset)
        await self._follower.wait_until(*place, seconds("timeout", timeout))


class TableView(TableReads[K, V]):
    """A live, read-only mapping of a compacted topic: the newest value of each key; a record without a value deletes
    its key.

    with TableView("customers", bootstrap_servers="localhost:9092", value_deserializer="json") as customers:
        print(customers[b"alice"]["city"])

    A background thread reads all partitions, from the beginning to the end, and keeps reading. `with` waits until it
    has caught up. Reads can come from any thread and wait for nothing. `max_bytes` limits the memory (default: 1 GiB).
    Other arguments are consumer configs; by default, only committed records are read.
    """

    @overload
    def __init__(
        self: TableView[bytes, bytes],
        topic: str,
        settings: None = None,
        /,
        *,
        max_bytes: int = ...,
        key_deserializer: None = None,
        value_deserializer: None = None,
        **keywords: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: TableView[bytes, AnyValue],
        topic: str,
        settings: None = None,
        /,
        *,
        max_bytes: int = ...,
        key_deserializer: None = None,
        value_deserializer: Callable[[str, bytes], AnyValue],
        **keywords: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: TableView[AnyKey, bytes],
        topic: str,
        settings: None = None,
        /,
        *,
        max_bytes: int = ...,
        key_deserializer: Callable[[str, bytes], AnyKey],
        value_deserializer: None = None,
        **keywords: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: TableView[AnyKey, AnyValue],
        topic: str,
        settings: None = None,
        /,
        *,
        max_bytes: int = ...,
        key_deserializer: Callable[[str, bytes], AnyKey],
        value_deserializer: Callable[[str, bytes], AnyValue],
        **keywords: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: TableView[Any, Any],
        topic: str,
        settings: Mapping[str, object] | None = None,
        /,
        *,
        max_bytes: int = ...,
        key_deserializer: str | Deserializer | None = None,
        value_deserializer: str | Deserializer | None = None,
        **keywords: Unpack[ConsumerKeywords],
    ) -> None: ...

    def __init__(
        self,
        topic: str,
        settings: Mapping[str, object] | None = None,
        /,
        *,
        max_bytes: int = MAX_BYTES,
        **keywords: object,
    ) -> None:
        config = table_config(settings, keywords)
        name, most = _checked_topic(topic), _checked_bytes(max_bytes)
        self._thread = LoopThread("ottla-table-view")
        try:
            self._follower = self._thread.run(self._make(name, config, most))
        except BaseException:
            self._thread.close()
            raise
        self._thread.on_exit = partial(self._follower.close, EXIT_TIMEOUT_S)

    @staticmethod
    async def _make(topic: str, config: ConsumerConfig, max_bytes: int) -> TableFollower:
        return TableFollower(topic, config, max_bytes)

    def _contents(self) -> TableContents:
        if not self._thread.is_open:
            self._thread.check()
        return super()._contents()

    def __enter__(self) -> Self:
        try:
            self.wait_until_caught_up()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """Ends the reading and frees the table. Idempotent."""
        timeout_s = close_timeout_s(timeout)
        if self._thread.is_open:
            self._thread.finish(self._follower.close(timeout_s))
        else:
            self._thread.close()  # in case that was interrupted

    def wait_until_caught_up(self, timeout: float | None = None) -> None:
        """Waits until the view has everything that the topic has at the moment of the call."""
        self._thread.run(self._follower.wait_until_caught_up(seconds("timeout", timeout)))

    def wait_until(self, partition: int, offset: int, timeout: float | None = None) -> None:
        """Waits until the view has the record at this offset."""
        place = whole_number("partition", partition), whole_number("offset", offset)
        self._thread.run(self._follower.wait_until(*place, seconds("timeout", timeout)))


def _checked_topic(topic: object) -> str:
    if not isinstance(topic, str):
        raise wrong_type("topic", topic, "a str")
    if not topic:
        raise ArgumentError("topic is empty")
    return topic


def _checked_bytes(given: object) -> int:
    max_bytes = whole_number("max_bytes", given)
    if max_bytes < 1:
        raise ArgumentError(f"max_bytes must be at least 1, not {max_bytes}")
    return max_bytes
