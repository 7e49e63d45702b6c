"""`AsyncProducer`: sends records from coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack, overload

from ottla.base.ids import TopicPartition
from ottla.client.arguments import seconds
from ottla.client.config import ProducerConfig
from ottla.client.config_keywords import ProducerKeywords
from ottla.client.errors import CallTimeoutError, OttlaError, WrongLoopError
from ottla.client.membership.metadata import GroupMetadata
from ottla.client.metadata import PartitionInfo
from ottla.client.offsets import OffsetAndMetadata
from ottla.client.produce import compiled
from ottla.client.produce.batch import Batch
from ottla.client.produce.core import ProducerCore
from ottla.client.produce.delivery import Delivery, RecordMetadata
from ottla.client.produce.record import Headers, PreparedRecord
from ottla.client.produce.send_path import SendPath
from ottla.client.produce.table_delivery import TableDelivery, told_if_partly_sent
from ottla.client.serializers.contract import AnyKey, AnyValue, Buffer, Serializer
from ottla.client.transactions.coordination import ProducerTransactions
from ottla.client.transactions.prepared import PreparedTransaction

T = TypeVar("T")
if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    K = DefaultTypeVar("K", default=Any)
    V = DefaultTypeVar("V", default=Any)
else:
    K = TypeVar("K")
    V = TypeVar("V")


class AsyncProducer(Generic[K, V]):
    """Sends records: `delivery = await producer.send(…)` accepts one, `await delivery` waits until it is acknowledged.

    Belongs to the loop in which it is first used. Use it in `async with`, or call `close`: both send what is left.
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
        path: SendPath[PreparedRecord] = SendPath(self._core, _later)
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
        """Accepts the record. Waits only for an unknown topic and for room, at most max.block.ms.

        The timestamp is in milliseconds since the epoch. Raises `SerializationError`, `RecordTooLargeError`,
        `UnknownTopicError` or `BufferFullError` if the record is not accepted.
        """
        # The running loop is checked only when a batch is opened: the check takes as long as everything else. Until
        # then it is enough to know that the batch will be sent.
        if self._is_loop_closed():
            self._start()
        taken = self._take(topic, value, key, headers, timestamp, partition)
        if isinstance(taken, Delivery):
            return taken
        self._start()
        delivery = await self._offer(taken)
        if delivery.index == 0:
            # The first record of a batch: a caller that sends without a pause lets the loop send the previous batch.
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
        """Returns the result of `offer`, which is called again whenever there is more room."""
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
        """Sends an Arrow table, a record batch, a data frame, or a mapping of columns: `value`, and optionally `key`,
        `headers`, `timestamp` and `partition`. Rows are encoded in a thread, without a Python object per row;
        serializers and interceptors are not called. Waits for room, like `send`, for max.block.ms at a time. Raises
        `PartlySentError` if something fails after some rows were sent."""
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
        """Sends the record and waits until it is acknowledged."""
        return await (await self.send(topic, value, key, headers, timestamp, partition))

    # Transactions.

    def _transactional(self, call: str) -> ProducerTransactions:
        self._start()
        return self._core.transactional(call)

    async def init_transactions(self) -> None:
        """Prepares the producer for transactions: call it once, before the first. Waits until the previous transaction
        of this transactional.id is complete, aborts it if it is open, and fences the producer that began it."""
        await self._transactional("init_transactions").init()

    @property
    def is_initialized(self) -> bool:
        """Whether `init_transactions` was called successfully."""
        return self._core.transactions is not None and self._core.transactions.is_initialized

    @property
    def is_committing(self) -> bool:
        """Whether a commit was interrupted that may have taken effect: call `commit_transaction` again to find out."""
        return self._core.transactions is not None and self._core.transactions.is_committing

    async def begin_transaction(self) -> None:
        """Begins a transaction: from now on, records that are sent belong to it."""
        self._start()
        self._core.begin_transaction()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group_metadata: GroupMetadata
    ) -> None:
        """Commits consumed offsets as part of the transaction: pass the offsets of the next records to read, and
        `consumer.group_metadata()`. They count when the transaction is committed."""
        await self._transactional("send_offsets_to_transaction").send_offsets(offsets, group_metadata)

    async def commit_transaction(self) -> None:
        """Waits until all records of the transaction are acknowledged, and commits it. If this is interrupted or takes
        longer than max.block.ms, call it again."""
        await self._transactional("commit_transaction").commit()

    async def abort_transaction(self) -> None:
        """Drops records that were not sent yet, and aborts the transaction. If this is interrupted or takes longer than
        max.block.ms, call it again."""
        await self._transactional("abort_transaction").abort()

    async def prepare_transaction(self) -> PreparedTransaction:
        """Waits until all records of the transaction are acknowledged, and takes no more. Any process can then commit
        or abort it with `complete_transaction`, also after this producer is closed."""
        return await self._transactional("prepare_transaction").prepare()

    async def complete_transaction(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        """Commits or aborts a prepared transaction of this transactional.id, which another process may have begun. Call
        it before `init_transactions`, which aborts such a transaction. Can be repeated with the same outcome."""
        await self._transactional("complete_transaction").complete(prepared, commit=commit)

    async def change_transactional_id(self, transactional_id: str) -> None:
        """Goes on with another transactional.id, and with the connections that are open; call `init_transactions` next.
        No transaction may be open. A prepared one is left to whoever completes it."""
        await self._transactional("change_transactional_id").change_id(transactional_id)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """A context in which everything that is sent belongs to one transaction. Calls `init_transactions` if that was
        not done, commits at the end, and aborts if an exception leaves the block."""
        transactions = self._transactional("transaction")
        if not transactions.is_initialized:
            await self.init_transactions()
        await self.begin_transaction()
        try:
            yield self
            if transactions.is_unfinished:  # neither ended nor prepared in the block
                await self.commit_transaction()
        except BaseException as error:
            await transactions.abort_after(error)
            raise

    # The rest.

    async def flush(self, timeout: float | None = None) -> None:
        """Sends everything without lingering, and waits until it is acknowledged or has failed; TimeoutError after
        `timeout` seconds. Raises the first failure of a record whose delivery nobody checked."""
        self._start()
        try:
            async with asyncio.timeout(seconds("timeout", timeout)):
                await self._core.flush()
        except TimeoutError as error:
            if isinstance(error, OttlaError) or timeout is None:
                raise  # a failure of a record
            raise CallTimeoutError(f"the producer was not flushed within {timeout:g} s") from None

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The partitions of a topic and their leaders."""
        self._start()
        return await self._core.partitions_for(topic)

    @property
    def hindrance(self) -> Exception | None:
        """Why the oldest unacknowledged records are still being retried; None if nothing has failed so far."""
        return self._core.hindrance

    def metrics(self) -> dict[str, int]:
        """Counts of what was sent, and of what is waiting."""
        return self._core.metrics()

    async def close(self, timeout: float | None = None) -> None:
        """Sends what is left, for at most `timeout` seconds; what is not acknowledged then has failed. Raises like
        `flush`. Idempotent."""
        await self._core.close(seconds("timeout", timeout))

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
        """Thread-safe: deliveries can be waited for in any thread."""
        if self._loop is not None and self._core.sender is not None:
            if asyncio._get_running_loop() is self._loop:
                self._loop.call_soon(self._core.sender.look)
            else:
                self._loop.call_soon_threadsafe(self._core.sender.look)


def _later(record: PreparedRecord) -> PreparedRecord:
    """For an offer from a coroutine."""
    return record


def _not_started() -> bool:
    return True


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
