"""Inspects fetched data by the headers of its batches: where the next fetch begins, and which pieces to decode.

Runs in the loop, once per partition of a response, with work per batch. Records are neither read nor checked here; the
poll does that.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from ottla.client.consume.record import NO_TIMESTAMP_TYPE
from ottla.client.subscriptions.subscription import NO_EPOCH, Position
from ottla.records import (
    BatchView,
    ByteBuffer,
    Compression,
    RecordError,
    expanded_bytes,
    iter_entries,
    read_transaction_marker,
)
from ottla.records.layout import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LENGTH_PREFIX_SIZE,
    MAGIC_AT,
    MAGIC_V0,
    MAGIC_V2,
    TIMESTAMP_TYPE_BIT,
)
from ottla.wire.messages.fetch import AbortedTransaction

PIECE_BYTES: Final = 1024 * 1024
"""Batches are decoded together up to this size: large enough to be efficient, small enough to be available soon."""

DECODED_BYTES: Final = 16 * 1024 * 1024
"""The limit for their decompressed size: half a megabyte of compressed zeros can become a gigabyte of records. A larger
batch is decoded alone."""

_START: Final = struct.Struct(">qiibIhi")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta."""
_CODECS: Final = {int(codec): codec for codec in Compression}


class SurveyedPiece(NamedTuple):
    """Consecutive batches that agree in all fields that are copied to every record."""

    data: ByteBuffer
    next: Position
    """The position after it."""
    timestamp_type: int
    leader_epoch: int
    decoded_bytes: int = 0
    """Its approximate size after decompression."""


class Survey(NamedTuple):
    """The result for one partition of a response."""

    pieces: list[SurveyedPiece]
    next: Position
    failure: RecordError | None
    """The error after the last piece. An incomplete batch at the end is not an error: it is fetched again."""


def survey(data: ByteBuffer, begin: Position, aborted: Collection[AbortedTransaction] | None = None) -> Survey:
    """Inspects what was fetched for a position. Batches of aborted transactions are left out."""
    found = _survey(data, begin)
    if not aborted:
        return found
    kept: list[memoryview] = []
    failure = found.failure
    try:
        kept.extend(_committed(data, aborted))
    except RecordError as error:
        failure = error
    pieces = _survey(b"".join(kept), begin).pieces if kept else []
    if failure is None and (not pieces or pieces[-1].next != found.next):
        pieces.append(SurveyedPiece(b"", found.next, NO_TIMESTAMP_TYPE, NO_EPOCH))
    return Survey(pieces, pieces[-1].next if pieces else begin, failure)


class _Pieces:
    """Combines batches into pieces, from the start to the end of a buffer."""

    __slots__ = ("_decoded_bytes", "_kind", "_start", "end", "position", "view", "whole")

    def __init__(self, view: memoryview, begin: Position) -> None:
        self.view = view
        self.whole: list[SurveyedPiece] = []
        self.position = begin
        self.end = 0
        self._start = 0
        self._decoded_bytes = 0
        self._kind: tuple[int, int] = (NO_TIMESTAMP_TYPE, NO_EPOCH)

    def add(self, size: int, timestamp_type: int, leader_epoch: int, next_offset: int, codec: int) -> None:
        kind = (timestamp_type, leader_epoch)
        decoded_bytes = size
        if codec:
            payload = self.view[self.end + HEADER_SIZE : self.end + size]
            decoded_bytes = expanded_bytes(_CODECS.get(codec, Compression.NONE), payload)
        if (
            kind != self._kind
            or self.end - self._start >= PIECE_BYTES
            or self._decoded_bytes + decoded_bytes > DECODED_BYTES
        ):
            self.cut()
            self._kind = kind
        self._decoded_bytes += decoded_bytes
        self.end += size
        self.position = Position(next_offset, leader_epoch)

    def cut(self) -> None:
        if self._start < self.end:
            data = self.view[self._start : self.end]
            self.whole.append(SurveyedPiece(data, self.position, *self._kind, self._decoded_bytes))
            self._start = self.end
            self._decoded_bytes = 0


def _survey(data: ByteBuffer, begin: Position) -> Survey:
    view = memoryview(data)
    pieces = _Pieces(view, begin)
    unpack, end, at, failure = _START.unpack_from, len(view), 0, None
    while at < end:
        if end - at < HEADER_SIZE or view[at + MAGIC_AT] != MAGIC_V2:
            # An incomplete batch, garbage, or messages of an older magic: all rare.
            failure = _survey_entries(pieces)
            break
        base_offset, length, leader_epoch, _, _, attributes, last_delta = unpack(view, at)
        size = length + LENGTH_PREFIX_SIZE
        if size > end - at:
            break
        if size < HEADER_SIZE or last_delta < 0:
            failure = _fault_at(view, at)
            break
        pieces.add(
            size,
            1 if attributes & TIMESTAMP_TYPE_BIT else 0,
            leader_epoch,
            base_offset + last_delta + 1,
            attributes & COMPRESSION_MASK,
        )
        at += size
    pieces.cut()
    return Survey(pieces.whole, pieces.position, failure)


def _survey_entries(pieces: _Pieces) -> RecordError | None:
    """The same for the rest of the buffer, with any magic."""
    try:
        for entry in iter_entries(pieces.view, pieces.end, partial_tail=True):
            epoch, type_ = NO_EPOCH, int(entry.timestamp_type)
            if isinstance(entry, BatchView):
                epoch = entry.leader_epoch
            elif entry.magic == MAGIC_V0:
                type_ = NO_TIMESTAMP_TYPE
            pieces.add(entry.size_in_bytes, type_, epoch, entry.last_offset + 1, 0)
    except RecordError as error:
        return error
    return None


def _fault_at(view: memoryview, at: int) -> RecordError | None:
    try:
        BatchView(view, at).validate(verify_crc=False)
    except RecordError as error:
        return error
    return None


def _committed(data: ByteBuffer, aborted: Collection[AbortedTransaction]) -> Iterator[memoryview]:
    """Yields the parts of the data that were not aborted. The broker lists the aborted transactions with their first
    offsets; each ends with the next abort marker of its producer."""
    beginnings = sorted(((one.first_offset, one.producer_id) for one in aborted), reverse=True)
    open_: set[int] = set()
    for entry in iter_entries(data, partial_tail=True):
        view = memoryview(data)[entry.position : entry.position + entry.size_in_bytes]
        if not isinstance(entry, BatchView):
            yield view
            continue
        header = entry.header
        while beginnings and beginnings[-1][0] <= header.last_offset:
            open_.add(beginnings.pop()[1])
        if header.is_control:
            marker = read_transaction_marker(entry, verify_crc=False)
            if marker is not None and not marker.committed:
                open_.discard(header.producer_id)
            yield view
        elif not header.is_transactional or header.producer_id not in open_:
            yield view
