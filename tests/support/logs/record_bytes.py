"""Records and batches byte by byte, so that every field can lie."""

from __future__ import annotations

from ottla.records import BatchView, Compression
from ottla.records.batch import HEADER
from ottla.records.layout import HEADER_SIZE, LENGTH_PREFIX_SIZE, MAGIC_V2
from ottla.records.varint import write_varint, write_varlong
from support.logs.batches import NOW_MS


def _varint(number: int) -> bytes:
    out = bytearray()
    write_varint(out, number)
    return bytes(out)


def _cell(data: bytes | None, size: int | None = None) -> bytes:
    given = -1 if data is None else len(data)
    return _varint(given if size is None else size) + (data or b"")


def header_bytes(*headers: tuple[bytes | None, bytes | None], count: int | None = None) -> bytes:
    """The headers of a record, with their number before them."""
    written = b"".join(_cell(key) + _cell(value) for key, value in headers)
    return _varint(len(headers) if count is None else count) + written


def record_bytes(
    offset_delta: int,
    *,
    timestamp_delta: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: bytes = b"\0",
    attributes: int = 0,
    size: int | None = None,
    key_size: int | None = None,
    tail: bytes = b"",
) -> bytes:
    """One record; sizes may be others than they are."""
    body = bytearray([attributes])
    write_varlong(body, timestamp_delta)
    body += _varint(offset_delta) + _cell(key, key_size) + _cell(value) + headers + tail
    return _varint(len(body) if size is None else size) + bytes(body)


def sealed(
    payload: bytes, count: int, codec: Compression = Compression.NONE, *, max_timestamp_ms: int = NOW_MS
) -> bytes:
    """A batch that says it holds so many records, under a CRC that is right."""
    out = bytearray(HEADER_SIZE) + payload
    HEADER.pack_into(
        out, 0, 0, len(out) - LENGTH_PREFIX_SIZE, -1, MAGIC_V2, 0, int(codec), count - 1, NOW_MS, max_timestamp_ms,
        -1, -1, -1, count,
    )  # fmt: skip
    BatchView(out).refresh_crc()
    return bytes(out)
