"""`Producer`: records sent from ordinary code, from any thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack, overload

from ottla.client.config import ProducerConfig
from ottla.client.config_keywords import ProducerKeywords
from ottla.client.loop_thread import LoopThread
from ottla.client.metadata import PartitionInfo
from ottla.client.produce.batch import Batch
from ottla.client.produce.core import ProducerCore
from ottla.client.produce.delivery import Delivery, RecordMetadata, wait_for
from ottla.client.produce.record import Headers, PreparedRecord
from ottla.client.produce.send_path import SendPath
from ottla.client.produce.table_delivery import TableDelivery, told_if_partly_sent
from ottla.client.serializers.contract import AnyKey, AnyValue, Buffer, Serializer

_logger = logging.getLogger(__name__)

_EXIT_TIMEOUT_S: Final = 2.5
"""Time limit for what is left when the interpreter exits."""

T = TypeVar("T")
if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    K = DefaultTypeVar("K", default=Any)
    V = DefaultTypeVar("V", default=Any)
else:
    K = TypeVar("K")
    V = TypeVar("V")


class Producer(SendPath[K, V, Delivery]):
    """Sends records; `send` returns at once, and its delivery can be waited for: `producer.send(…).result()`.

    Batches are sent by a thread of its own, whatever yours do. Use it as a context, or `close` it: either sends what is
    left. Can be used by any number of threads.
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
        # Before the thread: what is wrong with the settings leaves nothing to close.
        core = ProducerCore(ProducerConfig.parse(settings, keywords), self._wake, may_block=True)
        super().__init__(core, self._offer_and_wait)
        self._thread = LoopThread("the producer")
        self._thread.on_exit = self._send_at_exit
        self._thread.run(self._start())

    @property
    def config(self) -> ProducerConfig:
        return self._core.config

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        elif self._thread.is_open:
            self._thread.finish(self._core.close_quietly())

    def _offer_and_wait(self, record: PreparedRecord) -> Delivery:
        self._thread.check()
        core = self._core
        deadline_s = monotonic() + core.config.max_block_ms / 1000
        info = core.known(record.topic) or self._thread.run(core.learn(record.topic))
        return self._until_room(lambda: core.offer(info, record), deadline_s)

    def _until_room(self, offer: Callable[[], T | None], deadline_s: float) -> T:
        """What the offer answers, made again whenever there is more room."""
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
            if not wait_for(made, deadline_s - monotonic()):
                raise self._core.no_room()

    def send_batch(self, topic: str, data: Any, partition: int | None = None) -> TableDelivery:
        """Sends an Arrow table, a record batch, a data frame, or a mapping of columns: `value`, and if there are,
        `key`, `headers`, `timestamp` and `partition`. Rows are encoded without a Python object for each; serializers
        and interceptors are not asked. Waits for room, like `send`, for max.block.ms at a time. Raises
        `PartlySentError` for what fails after some rows were sent."""
        self._thread.check()
        core = self._core
        columns = core.prepare_columns(topic, data)
        info = core.known(topic) or self._thread.run(core.learn(topic))
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
        """Sends the record and waits until a broker has it."""
        return self.send(topic, value, key, headers, timestamp, partition).result()

    def flush(self, timeout: float | None = None) -> None:
        """Waits until all that was sent is acknowledged or has failed, without lingering; TimeoutError after so many
        seconds. Raises the first failure of a record whose delivery nobody looked at."""
        self._thread.check()
        self._thread.run(self._core.flush(), timeout)

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The partitions of a topic, and who leads them."""
        self._thread.check()
        return self._thread.run(self._core.partitions_for(topic))

    def metrics(self) -> dict[str, int]:
        """How much was sent, and how much waits."""
        return self._core.metrics()

    def close(self, timeout: float | None = None) -> None:
        """Sends what is left, for at most so many seconds; what is not acknowledged then has failed. Raises like
        `flush`. Idempotent."""
        if self._thread.is_open:
            self._thread.finish(self._core.close(timeout))
        else:
            self._thread.close()  # should that have been interrupted

    # The loop.

    async def _start(self) -> None:
        self._core.start()

    async def _send_at_exit(self) -> None:
        """The program ends without `close`: sends what is left, or says that it was lost."""
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
