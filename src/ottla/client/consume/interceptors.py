"""Consumer interceptors."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.base.ids import TopicPartition
from ottla.client.consume.record import ConsumerRecord
from ottla.client.offsets import OffsetAndMetadata

_logger = logging.getLogger(__name__)


class ConsumerInterceptor:
    """Override the methods that you need. An exception is logged, and the next interceptor is still called."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Called with the records that a poll is about to return, in the thread that polls; returns the records to
        return instead. Not called for Arrow batches."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called in the loop after these offsets were committed."""

    def close(self) -> None:
        """Called when the consumer is closed."""


class ConsumerInterceptors:
    """All interceptors of a consumer, in order. Any object with some of the methods can be used."""

    def __init__(self, interceptors: Sequence[Any]) -> None:
        self._on_consume = _methods(interceptors, "on_consume")
        self._on_commit = _methods(interceptors, "on_commit")
        self._close = _methods(interceptors, "close")

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        for method in self._on_consume:
            try:
                records = method(records)
            except Exception:
                _logger.exception("%r failed; the records are returned unchanged", method)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for method in self._on_commit:
            try:
                method(offsets)
            except Exception:
                _logger.exception("%r failed; the offsets were committed", method)

    def close(self) -> None:
        for method in self._close:
            try:
                method()
            except Exception:
                _logger.exception("%r failed", method)


def _methods(interceptors: Sequence[Any], name: str) -> list[Any]:
    return [getattr(one, name) for one in interceptors if hasattr(one, name)]
