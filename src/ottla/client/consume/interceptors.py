"""Code of the user's that looks at what a consumer hands out and commits."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.base.ids import TopicPartition
from ottla.client.consume.record import ConsumerRecord
from ottla.client.offsets import OffsetAndMetadata

_logger = logging.getLogger(__name__)


class ConsumerInterceptor:
    """Override what is of interest. What a method raises is logged, and the next interceptor is called all the same."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """The records that a poll hands out; what this gives is handed out in their place. In the thread that polls.
        Arrow batches are not shown."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These are committed. Called in the loop."""

    def close(self) -> None:
        """The consumer is closed."""


class ConsumerInterceptors:
    """All of a consumer's, in their order. Any object with some of the methods will do."""

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
