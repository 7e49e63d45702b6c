"""Producer interceptors: the user's objects that see every record before it is sent, and its result.

An interceptor has `on_send(record)`, which returns the record to continue with, `on_acknowledgement(metadata, error)`,
or both. Several are called in the order of the config. If one raises, that is logged, and the record is still sent.
`on_send` runs in the thread that sends, `on_acknowledgement` in the producer's loop, which waits for it.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable
from typing import Any

from ottla.client.callbacks import Callbacks
from ottla.client.errors import ConfigError
from ottla.client.produce.batch import Batch, Outcome
from ottla.client.produce.delivery import NO_OFFSET, RecordMetadata
from ottla.client.produce.record import ProducerRecord

_logger = logging.getLogger(__name__)

NO_PARTITION = -1


class Interceptors:
    """All interceptors of one producer; false if there are none."""

    def __init__(self, interceptors: Iterable[Any], callbacks: Callbacks) -> None:
        self._all = tuple(interceptors)
        self._callbacks = callbacks
        for one in self._all:
            if not (hasattr(one, "on_send") or hasattr(one, "on_acknowledgement")):
                reason = f"{one!r} has neither on_send(record) nor on_acknowledgement(metadata, error)"
                raise ConfigError("interceptor.classes", reason)
            if inspect.iscoroutinefunction(getattr(one, "on_send", None)):
                raise ConfigError(
                    "interceptor.classes", f"{one!r}: on_send must be a function, not a coroutine function"
                )
            if hasattr(one, "on_acknowledgement"):
                callbacks.check(one.on_acknowledgement, "on_acknowledgement")
        self._on_send = [one.on_send for one in self._all if hasattr(one, "on_send")]
        self._on_acknowledgement = [one.on_acknowledgement for one in self._all if hasattr(one, "on_acknowledgement")]

    def __bool__(self) -> bool:
        return bool(self._all)

    def send(self, record: ProducerRecord) -> ProducerRecord:
        """Returns the record to send."""
        for on_send in self._on_send:
            try:
                answered = on_send(record)
                if not isinstance(answered, ProducerRecord):
                    raise TypeError(f"on_send answers a ProducerRecord, not {type(answered).__name__}")
                record = answered
            except Exception:
                _logger.exception(
                    "an interceptor failed for a record of topic %r, which goes on without it", record.topic
                )
        return record

    def acknowledge(self, batch: Batch, outcome: Outcome) -> None:
        """Reports the result of each record of the batch, before callers that wait for it get it."""
        if not self._on_acknowledgement or not batch.has_times:  # columns have no interceptors
            return
        for index in range(batch.count):
            self._tell(batch.metadata_of(index, outcome), outcome.error)

    def fail(self, record: ProducerRecord, error: Exception) -> None:
        """Reports a record that was refused before it was sent."""
        partition = NO_PARTITION if record.partition is None else record.partition
        timestamp = -1 if record.timestamp is None else record.timestamp
        self._tell(RecordMetadata(record.topic, partition, NO_OFFSET, timestamp), error)

    def _tell(self, metadata: RecordMetadata, error: Exception | None) -> None:
        for on_acknowledgement in self._on_acknowledgement:
            self._callbacks.call(on_acknowledgement, metadata, error)

    def close(self) -> None:
        for one in self._all:
            close = getattr(one, "close", None)
            if close is not None:
                try:
                    close()
                except Exception:
                    _logger.exception("an interceptor could not be closed")
