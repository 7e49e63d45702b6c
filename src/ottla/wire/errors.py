"""Errors in messages. Reading raises only these, whatever the bytes; so does writing.

Each says which message and version, which field (as a path: `topics[2].partitions[0].records`) and, when reading, at
which byte of the message.
"""

from __future__ import annotations


class ProtocolError(ValueError):
    """A message that cannot be read or written."""

    def __init__(self, reason: str, *, message: str = "", field: str = "", offset: int | None = None) -> None:
        self.reason = reason
        self.message = message
        self.field = field
        self.offset = offset
        where = [part for part in (message, f"field {field}" if field else "") if part]
        if offset is not None:
            where.append(f"byte {offset}")
        super().__init__(f"{', '.join(where)}: {reason}" if where else reason)


class UnsupportedVersionError(ProtocolError):
    """A version that the message does not have, or a field that a version cannot contain."""


class UnknownApiError(ProtocolError):
    """An API key that no declared message has."""


class TruncatedError(ProtocolError):
    """The bytes end before the message does."""


class TrailingBytesError(ProtocolError):
    """The message ends before the bytes do."""


class InvalidLengthError(ProtocolError):
    """A length that is negative, or larger than the rest of the frame."""


class InvalidVarintError(ProtocolError):
    """A variable-length number that does not end within its five bytes."""


class InvalidTextError(ProtocolError):
    """A string that is not UTF-8."""


class UnexpectedNullError(ProtocolError):
    """Null where the version does not allow it."""


class InvalidTagError(ProtocolError):
    """A tagged field whose stated size is not the size of its value."""


class FrameSizeError(ProtocolError):
    """A frame with a negative size, or one beyond the limit."""


class InvalidValueError(ProtocolError):
    """A value that its field cannot hold: out of range, too long, of another type."""
