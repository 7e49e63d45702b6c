"""Writes that share a batch: those that one turn of the event loop brings for a shard are appended together.

Appending a batch costs as much as a dozen records, so a write that can wait for the end of the turn is gathered. The
runtime appends what is gathered before it does anything else with the shard, so the order of the log is the order in
which writes were decided. Owned by the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.key_values import Record
from ottla.coordinator.shards import Shard
from ottla.records.new_batch import NewBatch, new_batch

_logger = logging.getLogger(__name__)

S = TypeVar("S", bound=Shard)
S_contra = TypeVar("S_contra", bound=Shard, contravariant=True)

_BATCH_RECORDS_MAX: Final = 2_000
"""Keeps a batch below max.message.bytes: names of groups and topics can have 249 characters each."""
_OWN_BATCH_RECORDS: Final = 16
"""A write with this many records starts a new batch: the cost of the batch is small beside that of its records."""


class GatheredWrite(Protocol[S_contra]):
    """A write whose records can share a batch with those of others."""

    count: int
    """The number of records."""

    def decide(self, shard: S_contra, /) -> bool:
        """Looks at the state and says whether there is anything to append. The caller gets what it raises."""
        ...

    def encoded(self, first: int, /) -> bytes:
        """The records' bytes in a batch that has this many records before them."""
        ...

    def records(self) -> Sequence[Collection[Record]]:
        """The same records, in pieces to replay."""
        ...

    def tell(self, error: CoordinatorError | None, /) -> None:
        """The records are committed, or the write failed. Must not raise."""
        ...


Settled: TypeAlias = list[tuple[Sequence[GatheredWrite[Any]], CoordinatorError | None]]
"""Writes, each group with the error to tell them, or None."""


def in_batches(writes: Sequence[GatheredWrite[S]]) -> Iterator[Sequence[GatheredWrite[S]]]:
    """The writes in order, split into those that share a batch."""
    some: list[GatheredWrite[S]] = []
    count = 0
    for write in writes:
        if some and (write.count >= _OWN_BATCH_RECORDS or count + write.count > _BATCH_RECORDS_MAX):
            yield some
            some, count = [], 0
        some.append(write)
        count += write.count
    yield some


def batch_of(writes: Sequence[GatheredWrite[S]], now_ms: int) -> tuple[NewBatch, int]:
    """One batch with the records of all writes, and the number of records."""
    first = writes[0]
    encoded, count = first.encoded(0), first.count
    if len(writes) > 1:
        parts = [encoded]
        for write in writes[1:]:
            parts.append(write.encoded(count))
            count += write.count
        encoded = b"".join(parts)
    return new_batch(encoded, count, now_ms), count


def tell_all(settled: Settled) -> None:
    """Tells every write its result; one that raises does not keep the others from being told."""
    for writes, error in settled:
        for write in writes:
            try:
                write.tell(error)
            except Exception:
                _logger.exception("A gathered write failed to handle its result.")


def tell_committed(writes: Sequence[GatheredWrite[Any]], error: ErrorCode) -> None:
    """Tells writes that waited for other replicas whether their records are committed."""
    tell_all([(writes, CoordinatorError(error) if error else None)])
