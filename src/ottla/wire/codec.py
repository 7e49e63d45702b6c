"""Reads and writes messages, with code that is compiled for a message and a version on first use."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar

from ottla.wire import plain
from ottla.wire.errors import (
    InvalidValueError,
    ProtocolError,
    TrailingBytesError,
    TruncatedError,
    UnsupportedVersionError,
)
from ottla.wire.reader import FAILURES as READ_FAILURES
from ottla.wire.reader import compile_reader, reads_view
from ottla.wire.schema import Message
from ottla.wire.writer import FAILURES as WRITE_FAILURES
from ottla.wire.writer import compile_writer

M = TypeVar("M", bound=Message)

Chunk = Any
"""Bytes, or an object with a length that the connection can send, such as a slice of a file."""

JOIN_BELOW_BYTES: Final = 4096
"""Records smaller than this are cheaper to copy into the previous chunk than to send on their own."""

BYTES: Final = (bytes, bytearray, memoryview)


def decode(message: type[M], version: int, data: bytes | bytearray | memoryview) -> M:
    """The message that fills the data; its records fields are views into the data."""
    value: M
    read, source_type = _reader(message, version)
    source = data if type(data) is source_type else source_type(data)
    try:
        value, end = read(source)
    except READ_FAILURES as failure:
        raise _explained_read(message, version, source, failure) from None
    if end != len(source):
        reason = f"{len(source) - end} bytes are left after the last field"
        raise TrailingBytesError(reason, message=f"{message.__name__} v{version}", offset=end)
    return value


def decode_from(message: type[M], version: int, data: bytes | bytearray | memoryview) -> tuple[M, int]:
    """The message at the start of the data, and where it ends."""
    read, source_type = _reader(message, version)
    source = data if type(data) is source_type else source_type(data)
    try:
        return read(source)
    except READ_FAILURES as failure:
        raise _explained_read(message, version, source, failure) from None


def reader_of(message: type[M], version: int) -> Callable[[memoryview], M]:
    """Like `decode_from` without the end of the message, for callers that read many messages of one kind."""
    read, source_type = _reader(message, version)

    def decode_message(data: memoryview) -> M:
        source = data if source_type is memoryview else bytes(data)
        try:
            value: M = read(source)[0]
        except READ_FAILURES as failure:
            raise _explained_read(message, version, source, failure) from None
        return value

    return decode_message


def prepare(message: type[Message], version: int) -> None:
    """Compiles what reads and writes the message in that version, which otherwise happens on first use."""
    _reader(message, version)
    _writer(message, version)


def encode(value: Message, version: int) -> bytes:
    """The bytes of the message in that version."""
    return b"".join(encode_parts(value, version))


def encode_chunks(value: Message, version: int) -> list[Chunk]:
    """The message in few chunks: everything is joined, except large records and objects that are not bytes."""
    return join_parts(encode_parts(value, version))


def encode_parts(value: Message, version: int) -> list[Chunk]:
    """The message as the many small parts that the writer produces."""
    parts: list[Chunk] = []
    write = _writer(type(value), version)
    try:
        write(value, parts.append)
    except WRITE_FAILURES as failure:
        raise _explained_write(value, version, failure) from None
    return parts


def join_parts(parts: list[Chunk]) -> list[Chunk]:
    """The same bytes in few chunks."""
    if parts and max(map(len, parts)) < JOIN_BELOW_BYTES:
        try:
            return [b"".join(parts)]
        except TypeError:  # something small that is not bytes
            pass
    chunks: list[Chunk] = []
    run: list[Chunk] = []
    for part in parts:
        if len(part) < JOIN_BELOW_BYTES and isinstance(part, BYTES):
            run.append(part)
            continue
        if run:
            chunks.append(b"".join(run))
            run = []
        chunks.append(part)
    if run:
        chunks.append(b"".join(run))
    return chunks


def encode_versioned(value: Message, version: int) -> bytes:
    """The message, preceded by its version as an int16: the form of internal topics' records and consumer metadata."""
    return version.to_bytes(2, "big", signed=True) + encode(value, version)


def decode_versioned(message: type[M], data: bytes | bytearray | memoryview) -> tuple[M, int]:
    """The message in data that begins with its version, and that version."""
    if len(data) < 2:
        raise TruncatedError(f"{len(data)} bytes cannot hold a version", message=message.__name__, offset=0)
    version = int.from_bytes(data[:2], "big", signed=True)
    return decode(message, version, data[2:]), version


@cache
def _reader(message: type[M], version: int) -> tuple[Callable[[Any], tuple[M, int]], type[bytes | memoryview]]:
    """The function that reads the message, and the type of data that it reads."""
    check_version(message, version)
    return compile_reader(message, version), memoryview if reads_view(message) else bytes


@cache
def _writer(message: type[Message], version: int) -> Callable[[Any, Callable[[Any], None]], None]:
    check_version(message, version)
    return compile_writer(message, version)


def check_version(message: type[Message], version: int) -> None:
    if version not in message.versions:
        raise UnsupportedVersionError(
            f"there are versions {message.versions} only", message=f"{message.__name__} v{version}"
        )


def _explained_read(message: type[M], version: int, data: bytes | memoryview, failure: Exception) -> ProtocolError:
    try:
        plain.read(message, version, data)
    except ProtocolError as explained:
        return explained
    return ProtocolError(f"cannot be read ({failure!r})", message=f"{message.__name__} v{version}")


def _explained_write(value: Message, version: int, failure: Exception) -> ProtocolError:
    try:
        plain.write(value, version)
    except ProtocolError as explained:
        return explained
    return InvalidValueError(f"cannot be written ({failure!r})", message=f"{type(value).__name__} v{version}")
