"""A batch that a broker creates itself, before it has a place in a log.

The log assigns offset and leader epoch, which come before the bytes that the CRC covers: so all of the batch except its
first bytes can be created beforehand, and the first bytes when the log knows them.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from ottla.records.layout import (
    ATTRIBUTES_AT,
    LENGTH_PREFIX_SIZE,
    MAGIC_V2,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
)

_PLACE = Struct(">qiibI")
"""Base offset, length, leader epoch, magic, CRC: everything before the attributes."""
_BODY_START = Struct(">hiqqqhii")
"""From the attributes to the number of records."""
_BEFORE_BODY: Final = ATTRIBUTES_AT - LENGTH_PREFIX_SIZE


class NewBatch(NamedTuple):
    """Uncompressed records that all have the same timestamp."""

    body: bytes
    """Everything from the attributes on."""
    record_count: int
    timestamp_ms: int
    is_transactional: bool = False

    @property
    def size(self) -> int:
        return ATTRIBUTES_AT + len(self.body)

    def placed(self, base_offset: int, leader_epoch: int) -> bytes:
        """The whole batch, with its first record at that offset."""
        body = self.body
        return _PLACE.pack(base_offset, _BEFORE_BODY + len(body), leader_epoch, MAGIC_V2, crc32c(body)) + body


def new_batch(records: bytes, count: int, timestamp_ms: int) -> NewBatch:
    """Creates a batch of that many encoded records."""
    # Half the time of the class's own constructor: a commit makes one.
    return tuple.__new__(NewBatch, (_body_start(count, timestamp_ms) + records, count, timestamp_ms, False))


def new_batch_of_transaction(
    records: bytes, count: int, timestamp_ms: int, producer_id: int, producer_epoch: int, *, attributes: int = 0
) -> NewBatch:
    """`attributes` beside that of a transaction."""
    start = _BODY_START.pack(
        *(TRANSACTIONAL_BIT | attributes, count - 1, timestamp_ms, timestamp_ms),
        *(producer_id, producer_epoch, NO_SEQUENCE, count),
    )
    return NewBatch(start + records, count, timestamp_ms, is_transactional=True)


@lru_cache(64)
def _body_start(count: int, timestamp_ms: int) -> bytes:
    """The same for most batches that are created within a millisecond."""
    return _BODY_START.pack(
        0, count - 1, timestamp_ms, timestamp_ms, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, count
    )
