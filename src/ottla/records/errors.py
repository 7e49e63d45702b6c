"""Errors in record bytes that came from outside. Readers in this package raise only these.

Each error says which batch it is about (its base offset if that could be read, and its position in the buffer), what is
wrong with it, and the offending value.
"""

from __future__ import annotations

from typing import Self


class RecordError(ValueError):
    """Bytes that are not a valid record batch. `position` is the position in the buffer where the batch begins."""

    def __init__(self, reason: str, *, position: int | None = None, base_offset: int | None = None) -> None:
        self.reason = reason
        self.position = position
        self.base_offset = base_offset
        where = []
        if base_offset is not None:
            where.append(f"with base offset {base_offset}")
        if position is not None:
            where.append(f"at byte {position}")
        super().__init__(f"record batch {' '.join(where)}: {reason}" if where else reason)

    def located(self, *, position: int, base_offset: int) -> Self:
        """The same error with the batch that it is about, which the parser of a single record does not know."""
        return type(self)(self.reason, position=position, base_offset=base_offset)


class TruncatedBatchError(RecordError):
    """The batch, or a record in it, claims more bytes than there are."""


class BatchLengthError(RecordError):
    """A length that no batch can have: negative, or too small for a header."""


class CorruptBatchError(RecordError):
    """The CRC does not match the bytes."""


class RecordCountError(RecordError):
    """The header's record count is not the number of records found."""


class OffsetDeltaError(RecordError):
    """The header's last offset delta, or a record's own, does not match the records found."""


class MalformedRecordError(RecordError):
    """A record in a batch is corrupt: a negative length, an invalid varint, trailing bytes."""


class UnknownMagicError(RecordError):
    """A magic byte that is not 0, 1 or 2."""


class UnknownCompressionError(RecordError):
    """Compression bits that name no codec, or a codec that is not allowed there."""


class DecompressionError(RecordError):
    """Compressed bytes that the codec cannot read."""


class DecompressionLimitError(DecompressionError):
    """Compressed bytes that would grow beyond the limit: refused before they are decompressed."""
