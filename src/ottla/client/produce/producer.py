"""`Producer`: sends records from ordinary code, in any thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, Unpack, overload

from ottla.base.ids import TopicPartition
from ottla.client.arguments import seconds
from ottla.client.config import ProducerConfig
from ottla.client.config_keywords import ProducerKeywords
from ottla.client.loop_thread import LoopThread, wait_for
from ottla.client.membership.metadata import GroupMetadata
from ottla.client.metadata import PartitionInfo
from ottla.client.offsets import OffsetAndMetadata
from ottla.client.produce.batch import Batch
from ottla.client.produce.core import ProducerCore
from ottla.client.produce.delivery import Delivery, RecordMetadata
from ottla.client.produce.record import Headers, PreparedRecord
from ottla.client.produce.send_path import SendPath
from ottla.client.produce.table_delivery import TableDelivery, told_if_partly_sent
from ottla.client.serializers.contract import AnyKey, AnyValue, Buffer, Serializer
from ottla.client.transactions.prepared import PreparedTransaction

_logger = logging.getLogger(__name__)

_EXIT_TIMEOUT_S: Final = 2.5
"""Time limit for sending what is left when the interpreter exits."""

T = TypeVar("T")
if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    K = DefaultTypeVar("K", default=Any)
    V = DefaultTypeVar("V", default=Any)
else:
    K = TypeVar("K")
    V = TypeVar("V")


class Producer(SendPath[Delivery], Generic[K, V]):
    """Sends records: `send` returns at once, and its delivery can be waited for: `producer.send(…).result()`.

    A background thread sends batches, whatever your threads do. Use it in `with`, or call `close`: both send what is
    left. Thread-safe.
    """

    @overload
    def __init__(
        self: Producer[Buffer, Buffer],
        settings: None = None,
        *,
        key_serializer: None = None,
        value_serializer: None = None,
        **keywords: Unpack[ProducerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Producer[Buffer, AnyValue],
        settings: None = None,
        *,
        key_serializer: None = None,
        value_serializer: Callable[[str, AnyValue], bytes | None],
        **keywords: Unpack[ProducerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Producer[AnyKey, Buffer],
        settings: None = None,
        *,
        key_serializer: Callable[[str, AnyKey], bytes | None],
        value_serializer: None = None,
        **keywords: Unpack[ProducerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Producer[AnyKey, AnyValue],
        settings: None = None,
        *,
        key_serializer: Callable[[str, AnyKey], bytes | None],
        value_serializer: Callable[[str, AnyValue], bytes | None],
        **keywords: Unpack[ProducerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Producer[Any, Any],
        settings: Mapping[str, object] | None = None,
        *,
        key_serializer: str | Serializer | None = None,
        value_serializer: str | Serializer | None = None,
        **keywords: Unpack[ProducerKeywords],
    ) -> None: ...

    def __init__(self, settings: Mapping[str, object] | None = None, **keywords: object) -> None:
        # Before the thread starts: if the config is invalid, there is nothing to close.
        core = ProducerCore(ProducerConfig.parse(settings, keywords), self._wake, may_block=True)
        super().__init__(core, self._offer_and_wait)
        self._thread = LoopThread("the producer")
        self._thread.on_exit = self._send_at_exit
        self._thread.run(self._start())

    @property
    def config(self) -> ProducerConfig:
        return self._core.config

    if TYPE_CHECKING:  # It is the one of SendPath, which takes anything and checks it itself.

        def send(
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        elif self._thread.is_open:
            self._accumulator.wait(partial(self._thread.finish, self._core.close_quietly()))

    def _offer_and_wait(self, record: PreparedRecord) -> Delivery:
        self._thread.check()
        core = self._core
        deadline_s = monotonic() + core.config.max_block_ms / 1000
        info = core.known(record.topic) or self._run(core.learn(record.topic))
        delivery = core.offer(info, record)
        return self._until_room(lambda: core.offer(info, record), deadline_s) if delivery is None else delivery

    def _until_room(self, offer: Callable[[], T | None], deadline_s: float) -> T:
        """Returns the result of `offer`, which is called again whenever there is more room."""
        accumulator = self._accumulator
        while True:
            seen = accumulator.room_made
            taken = offer()
            if taken is not None:
                return taken
            if self._core.is_in_loop:
                raise self._core.no_room(is_waited_for=False)
            made = threading.Lock()
            made.acquire()
            accumulator.when_room(seen, made.release)
            if not accumulator.wait(partial(wait_for, made, deadline_s - monotonic())):
                raise self._core.no_room()

    def send_batch(self, topic: str, data: Any, partition: int | None = None) -> TableDelivery:
        """Sends an Arrow table, a record batch, a data frame, or a mapping of columns: `value`, and optionally `key`,
        `headers`, `timestamp` and `partition`. Rows are encoded without a Python object per row; serializers and
        interceptors are not called. Waits for room, like `send`, for max.block.ms at a time. Raises `PartlySentError`
        if something fails after some rows were sent."""
        self._thread.check()
        core = self._core
        columns = core.prepare_columns(topic, data)
        info = core.known(topic) or self._run(core.learn(topic))
        block_s = core.config.max_block_ms / 1000
        batches: list[Batch] = []
        with told_if_partly_sent(batches):
            for piece in core.pieces(info, columns, partition):
                for batch in piece:
                    taken = self._until_room(partial(core.offer_batch, info, batch), monotonic() + block_s)
                    batches.append(taken)
        return TableDelivery(batches)

    def send_and_wait(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> RecordMetadata:
        """Sends the record and waits until it is acknowledged."""
        return self.send(topic, value, key, headers, timestamp, partition).result()

    # Transactions.

    def init_transactions(self) -> None:
        """Prepares the producer for transactions: call it once, before the first. Waits until the previous transaction
        of this transactional.id is complete, aborts it if it is open, and fences the producer that began it."""
        self._run(self._core.transactional("init_transactions").init())

    @property
    def is_initialized(self) -> bool:
        """Whether `init_transactions` was called successfully."""
        return self._core.transactions is not None and self._core.transactions.is_initialized

    @property
    def is_committing(self) -> bool:
        """Whether a commit was interrupted that may have taken effect: call `commit_transaction` again to find out."""
        return self._core.transactions is not None and self._core.transactions.is_committing

    def begin_transaction(self) -> None:
        """Begins a transaction: from now on, records that are sent belong to it."""
        self._thread.check()
        self._core.begin_transaction()

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group_metadata: GroupMetadata
    ) -> None:
        """Commits consumed offsets as part of the transaction: pass the offsets of the next records to read, and
        `consumer.group_metadata()`. They count when the transaction is committed."""
        self._run(self._core.transactional("send_offsets_to_transaction").send_offsets(offsets, group_metadata))

    def commit_transaction(self) -> None:
        """Waits until all records of the transaction are acknowledged, and commits it. If this is interrupted or takes
        longer than max.block.ms, call it again."""
        self._run(self._core.transactional("commit_transaction").commit())

    def abort_transaction(self) -> None:
        """Drops records that were not sent yet, and aborts the transaction. If this is interrupted or takes longer than
        max.block.ms, call it again."""
        self._run(self._core.transactional("abort_transaction").abort())

    def prepare_transaction(self) -> PreparedTransaction:
        """Waits until all records of the transaction are acknowledged, and takes no more. Any process can then commit
        or abort it with `complete_transaction`, also after this producer is closed."""
        return self._run(self._core.transactional("prepare_transaction").prepare())

    def complete_transaction(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        """Commits or aborts a prepared transaction of this transactional.id, which another process may have begun. Call
        it before `init_transactions`, which aborts such a transaction. Can be repeated with the same outcome."""
        self._run(self._core.transactional("complete_transaction").complete(prepared, commit=commit))

    def change_transactional_id(self, transactional_id: str) -> None:
        """Goes on with another transactional.id, and with the connections that are open; call `init_transactions` next.
        No transaction may be open. A prepared one is left to whoever completes it."""
        self._run(self._core.transactional("change_transactional_id").change_id(transactional_id))

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """A context in which everything that is sent belongs to one transaction. Calls `init_transactions` if that was
        not done, commits at the end, and aborts if an exception leaves the block."""
        transactions = self._core.transactional("transaction")
        if not transactions.is_initialized:
            self.init_transactions()
        self.begin_transaction()
        try:
            yield self
            if transactions.is_unfinished:  # neither ended nor prepared in the block
                self.commit_transaction()
        except BaseException as error:
            if self._thread.is_open:
                self._run(transactions.abort_after(error))
            raise

    # The rest.

    def flush(self, timeout: float | None = None) -> None:
        """Sends everything without lingering, and waits until it is acknowledged or has failed; TimeoutError after
        `timeout` seconds. Raises the first failure of a record whose delivery nobody checked."""
        self._thread.check()
        timeout_s = seconds("timeout", timeout)
        began_s = monotonic()
        if self._core.flush_here(timeout_s):
            return
        if timeout_s is not None:
            timeout_s = max(0.0, timeout_s - (monotonic() - began_s))
        self._run(self._core.flush(), timeout_s)

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The partitions of a topic and their leaders."""
        self._thread.check()
        return self._run(self._core.partitions_for(topic))

    def metrics(self) -> dict[str, int]:
        """Counts of what was sent, and of what is waiting."""
        return self._core.metrics()

    def close(self, timeout: float | None = None) -> None:
        """Sends what is left, for at most `timeout` seconds; what is not acknowledged then has failed. Raises like
        `flush`. Idempotent."""
        timeout_s = seconds("timeout", timeout)
        if self._thread.is_open:
            self._accumulator.wait(partial(self._thread.finish, self._core.close(timeout_s)))
        else:
            self._thread.close()  # in case the coroutine was interrupted

    # The loop.

    def _run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        return self._accumulator.wait(partial(self._thread.run, work, timeout))

    async def _start(self) -> None:
        self._core.start()

    async def _send_at_exit(self) -> None:
        """Called if the program ends without `close`: sends what is left, or logs that it was lost."""
        try:
            await self._core.close(_EXIT_TIMEOUT_S)
        except Exception as error:
            _logger.error(
                "The producer was not closed, and not all of its records were delivered before the program ended: %s. "
                "Call close() or flush() before the program ends.",
                error,
            )

    def _wake(self) -> None:
        if self._core.sender is not None:
            self._thread.call_soon(self._core.sender.look)
