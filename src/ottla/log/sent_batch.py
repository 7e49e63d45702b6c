"""The quick look at a batch as producers send most: one, whole and not compressed. Whoever appends a batch of a
transaction has verified that it may be.

It accepts nothing that `validation` would refuse or change. Everything else is left to `validation`, which has the
error messages.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from crc32c import crc32c

from ottla.base.disk import Buffer
from ottla.log.record_validation import LOOP_RECORDS_MAX
from ottla.records.batch import HEADER
from ottla.records.errors import RecordError
from ottla.records.layout import ATTRIBUTES_AT, HEADER_SIZE, LENGTH_PREFIX_SIZE, MAGIC_V2
from ottla.records.record_walk import walk, walk_one

place_batch: Final = Struct(">qii").pack_into
"""Writes base offset, length and leader epoch to the start of a batch, which the CRC does not cover."""


def header_of_sent(data: Buffer, max_bytes: int, attributes_wanted: int = 0) -> tuple[int, ...] | None:
    """The fields of the header of such a batch, in the order of `BatchHeader`, if the batch is valid and may be kept
    as it is by a topic that neither limits records nor changes batches; None for every other batch.
    `attributes_wanted`: those of a transaction, or none."""
    size = len(data)
    if type(data) is not memoryview or data.readonly or not HEADER_SIZE <= size <= max_bytes:
        return None
    header = HEADER.unpack_from(data)
    (
        base_offset,
        length,
        _,
        magic,
        crc,
        attributes,
        last_delta,
        base_ms,
        newest_ms,
        producer_id,
        epoch,
        sequence,
        count,
    ) = header
    if (
        base_offset
        or attributes != attributes_wanted
        or magic != MAGIC_V2
        or length + LENGTH_PREFIX_SIZE != size
        or count != last_delta + 1
        or not 0 < count <= LOOP_RECORDS_MAX
        or ((producer_id >= 0 or attributes) and (producer_id < 0 or sequence < 0 or epoch < 0))
        or crc32c(data[ATTRIBUTES_AT:]) != crc
    ):
        return None
    try:
        facts = walk_one(data, HEADER_SIZE, base_ms) if count == 1 else walk(data, HEADER_SIZE, count, base_ms)
    except RecordError:
        return None
    if facts is None or facts[0] != newest_ms:
        return None
    return header
