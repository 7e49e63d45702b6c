"""Reads rows with one field of bytes, as Spark pickles them.

Java pickles each row with the schema, as JSON that is parsed again for every row, and bytes as text in which each
character stands for one byte. Rows of the same schema differ only in that text, so it can be taken out without running
the pickle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_TEXT: Final = b"X"
"""The opcode for a text. Its length in bytes follows, and the text in UTF-8."""
_LENGTH_BYTES: Final = 4
_LEAST_BYTES: Final = 4
"""Shorter fields may also occur elsewhere in a row."""
_SAMPLE: Final = bytes(range(0, 256, 3))


class PickledBytes:
    """Of rows that most likely have the same schema."""

    def __init__(self, unpickle: Callable[[bytes], Any]) -> None:
        self._unpickle = unpickle
        self._before: bytes | None = None
        self._after = b""

    def bytes_of(self, row: bytes) -> bytes:
        before, after = self._before, self._after
        if before is not None and row.startswith(before) and row.endswith(after):
            begin, end = len(before) + _LENGTH_BYTES, len(row) - len(after)
            # A pickle is read from its beginning: what follows these bytes is a text of this length in any case.
            if begin + int.from_bytes(row[len(before) : begin], "little") == end:
                return row[begin:end].decode().encode("latin-1")
        field = bytes(self._unpickle(row)[0])
        if before is None and len(field) >= _LEAST_BYTES:
            self._learn(row, field)
        return field

    def _learn(self, row: bytes, field: bytes) -> None:
        before, found, after = row.partition(_text(field))
        if not found:
            return
        before += _TEXT
        try:
            is_understood = bytes(self._unpickle(before + _text(_SAMPLE)[1:] + after)[0]) == _SAMPLE
        except Exception:  # whatever a pickle raises that was changed in the wrong place
            return
        if is_understood:
            self._before, self._after = before, after


def _text(field: bytes) -> bytes:
    """How bytes are pickled."""
    data = field.decode("latin-1").encode()
    return _TEXT + len(data).to_bytes(_LENGTH_BYTES, "little") + data
