"""The encoded headers at the end of a record: their count, and a length and bytes for each key and value.

A producer encodes them when `send` is called. The bytes take less memory than the objects, cannot change any more, and
are copied into the batch as they are, whichever codec writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ottla.records.record import Header
from ottla.records.varint import write_varint

_TABLE_SIZE: Final = 1024
_NAMES_MAX: Final = 4096


def _encoded(number: int) -> bytes:
    out = bytearray()
    write_varint(out, number)
    return bytes(out)


VARINTS: Final = tuple(_encoded(number) for number in range(_TABLE_SIZE))
"""Encoded small numbers, which nearly all are."""
NULL: Final = _encoded(-1)
_ONE: Final = VARINTS[1]
_TWO: Final = VARINTS[2]


def varint(number: int) -> bytes:
    """Encodes a number that is not negative."""
    return VARINTS[number] if number < _TABLE_SIZE else _encoded(number)


_names: Final[dict[str, bytes]] = {}
"""Encoded header keys with their lengths: a program uses only a few."""


def _name(name: str) -> bytes:
    encoded = _names.get(name)
    if encoded is None:
        data = name.encode()
        if len(_names) >= _NAMES_MAX:
            _names.clear()
        _names[name] = encoded = varint(len(data)) + data
    return encoded


def header_section(headers: Sequence[Header]) -> bytes:
    """Encodes headers that are known to be pairs of str and bytes or None."""
    parts = [varint(len(headers))]
    for name, content in headers:
        parts.append(_name(name))
        if content is None:
            parts.append(NULL)
        else:
            parts.append(varint(len(content)))
            parts.append(content)
    return b"".join(parts)


def fast_header_section(headers: Any) -> bytes | None:
    """The same for the most common forms: a list, a tuple or a dict of str and bytes. None for anything else, and for
    one or two headers with a key that is seen for the first time.

    The code for one or two headers is written out: that takes half the time of a loop."""
    kind = headers.__class__
    if kind is dict:
        headers = headers.items()
    elif kind is not list and kind is not tuple:
        return None
    try:
        count = len(headers)
        if count == 1:
            ((key, value),) = headers
            if value.__class__ is bytes:
                return b"".join((_ONE, _names[key], VARINTS[len(value)], value))
        elif count == 2:
            (key, value), (key_2, value_2) = headers
            if value.__class__ is bytes and value_2.__class__ is bytes:
                start, start_2 = VARINTS[len(value)], VARINTS[len(value_2)]
                return b"".join((_TWO, _names[key], start, value, _names[key_2], start_2, value_2))
        parts = [VARINTS[count]]
        for name, content in headers:
            if content.__class__ is not bytes:
                return None
            parts += _name(name), VARINTS[len(content)], content
    except (TypeError, ValueError, AttributeError, LookupError):
        return None
    return b"".join(parts)
