"""`AsyncProducer`: records sent from coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack, overload

from ottla.client.config import ProducerConfig
from ottla.client.config_keywords import ProducerKeywords
from ottla.client.errors import CallTimeoutError, OttlaError, WrongLoopError
from ottla.client.metadata import PartitionInfo
from ottla.client.produce import compiled
from ottla.client.produce.batch import Batch
from ottla.client.produce.core import ProducerCore
from ottla.client.produce.delivery import Delivery, RecordMetadata
from ottla.client.produce.record import Headers, PreparedRecord
from ottla.client.produce.send_path import SendPath
from ottla.client.produce.table_delivery import TableDelivery, told_if_partly_sent
from ottla.client.serializers.contract import AnyKey, AnyValue, Buffer, Serializer

T = TypeVar("T")
if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    K = DefaultTypeVar("K", default=Any)
    V = DefaultTypeVar("V", default=Any)
else:
    K = TypeVar("K")
    V = TypeVar("V")


class AsyncProducer(Generic[K, V]):
    """Sends records; `delivery = await producer.send(…)` takes one, `await delivery` waits until a broker has it.

    Belongs to the loop that it is first used in. Use it as an async context, or `close` it: either sends what is left.
    """

    @overload
    def __init__(
        self: AsyncProducer[Buffer, Buffer],
        settings: None = None,
        *,
        key_serializer: None = None,
        value_serializer: None = None,
        **keywords: Unpack[ProducerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncProducer[Buffer, AnyValue],
        settings: None = None,
        *,
        key_serializer: None = None,
        value_serializer: Callable[[str, AnyValue], bytes | None],
        **keywords: Unpack[ProducerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncProducer[AnyKey, Buffer],
        settings: None = None,
        *,
        key_serializer: Callable[[str, AnyKey], bytes | None],
        value_serializer: None = None,
        **keywords: Unpack[ProducerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncProducer[AnyKey, AnyValue],
        settings: None = None,
        *,
        key_serializer: Callable[[str, AnyKey], bytes | None],
        value_serializer: Callable[[str, AnyValue], bytes | None],
        **keywords: Unpack[ProducerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncProducer[Any, Any],
        settings: Mapping[str, object] | None = None,
        *,
        key_serializer: str | Serializer | None = None,
        value_serializer: str | Serializer | None = None,
        **keywords: Unpack[ProducerKeywords],
    ) -> None: ...

    def __init__(self, settings: Mapping[str, object] | None = None, **keywords: object) -> None:
        self._core = ProducerCore(ProducerConfig.parse(settings, keywords), self._wake, may_block=False)
        self._accumulator = self._core.accumulator
        path: SendPath[K, V, PreparedRecord] = SendPath(self._core, _later)
        self._take = path.send
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_loop_closed: Callable[[], bool] = _not_started

    @property
    def config(self) -> ProducerConfig:
        return self._core.config

    async def __aenter__(self) -> Self:
        self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:
            await self._core.close_quietly()

    async def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Takes the record; waits only for a topic that is not known yet, and for room, at most max.block.ms.

        The timestamp is in milliseconds since 1970. Raises `SerializationError`, `RecordTooLargeError`,
        `UnknownTopicError` or `BufferFullError` if the record is not taken.
        """
        # Which loop runs is asked only when a batch is opened: that takes as long as the rest. Until then it is enough
        # to know that somebody will send it.
        if self._is_loop_closed():
            self._start()
        taken = self._take(topic, value, key, headers, timestamp, partition)
        if isinstance(taken, Delivery):
            return taken
        self._start()
        delivery = await self._offer(taken)
        if delivery.index == 0:
            # The first of a batch: whoever sends without a pause lets the loop send the one before.
            if compiled.loading.is_going_on:
                await asyncio.to_thread(compiled.loading.wait)
            else:
                await asyncio.sleep(0)
        return delivery

    async def _offer(self, record: PreparedRecord) -> Delivery:
        core = self._core
        info = core.known(record.topic)
        if info is not None:
            delivery = core.offer(info, record)
            if delivery is not None:
                return delivery
        block_s = core.config.max_block_ms / 1000
        until_s = monotonic() + block_s
        learnt = info or await core.learn(record.topic)
        return await self._until_room(lambda: core.offer(learnt, record), until_s - monotonic())

    async def _until_room(self, offer: Callable[[], T | None], timeout_s: float) -> T:
        """What the offer answers, made again whenever there is more room."""
        accumulator = self._accumulator
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    seen = accumulator.room_made
                    taken = offer()
                    if taken is not None:
                        return taken
                    made: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    accumulator.when_room(seen, partial(_wake, made))
                    await made
        except TimeoutError as error:
            raise self._core.no_room() from error

    async def send_batch(self, topic: str, data: Any, partition: int | None = None) -> TableDelivery:
        """Sends an Arrow table, a record batch, a data frame, or a mapping of columns: `value`, and if there are,
        `key`, `headers`, `timestamp` and `partition`. Rows are encoded without a Python object for each, in a thread;
        serializers and interceptors are not asked. Waits for room, like `send`, for max.block.ms at a time. Raises
        `PartlySentError` for what fails after some rows were sent."""
        self._start()
        core = self._core
        columns = await asyncio.to_thread(core.prepare_columns, topic, data)
        info = core.known(topic) or await core.learn(topic)
        pieces = core.pieces(info, columns, partition)
        block_s = core.config.max_block_ms / 1000
        batches: list[Batch] = []
        with told_if_partly_sent(batches):
            while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                for batch in piece:
                    taken = await self._until_room(partial(core.offer_batch, info, batch), block_s)
                    batches.append(taken)
        return TableDelivery(batches)

    async def send_and_wait(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> RecordMetadata:
        """Sends the record and waits until a broker has it."""
        return await (await self.send(topic, value, key, headers, timestamp, partition))

    async def flush(self, timeout: float | None = None) -> None:
        """Waits until all that was sent is acknowledged or has failed, without lingering; TimeoutError after so many
        seconds. Raises the first failure of a record whose delivery nobody looked at."""
        self._start()
        try:
            async with asyncio.timeout(timeout):
                await self._core.flush()
        except TimeoutError as error:
            if isinstance(error, OttlaError) or timeout is None:
                raise  # of a record
            raise CallTimeoutError(f"the producer was not flushed within {timeout:g} s") from None

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The partitions of a topic, and who leads them."""
        self._start()
        return await self._core.partitions_for(topic)

    @property
    def hindrance(self) -> Exception | None:
        """Why the oldest unacknowledged records are still being retried; None if nothing has failed so far."""
        return self._core.hindrance

    def metrics(self) -> dict[str, int]:
        """How much was sent, and how much waits."""
        return self._core.metrics()

    async def close(self, timeout: float | None = None) -> None:
        """Sends what is left, for at most so many seconds; what is not acknowledged then has failed. Raises like
        `flush`. Again is no harm."""
        await self._core.close(timeout)

    # The loop.

    def _start(self) -> None:
        if self._loop is None:
            self._core.check_open()
            self._loop = asyncio.get_running_loop()
            self._is_loop_closed = self._loop.is_closed
            self._core.start()
        elif self._loop is not asyncio.get_running_loop():
            raise WrongLoopError("this producer belongs to another event loop: make one for each")

    def _wake(self) -> None:
        """From any thread: deliveries are waited for everywhere."""
        if self._loop is not None and self._core.sender is not None:
            if asyncio._get_running_loop() is self._loop:
                self._loop.call_soon(self._core.sender.look)
            else:
                self._loop.call_soon_threadsafe(self._core.sender.look)


def _later(record: PreparedRecord) -> PreparedRecord:
    """To be offered by a coroutine."""
    return record


def _not_started() -> bool:
    return True


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
