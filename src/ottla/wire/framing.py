"""Frames: a size, a header, a message. What a connection needs to know about requests besides their bodies.

A request frame is `size i32 | request header | request`, a response frame `size i32 | response header | response`. The
version of the header follows from the API and its version; a response does not name its API, only the correlation id of
its request.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from ottla.wire.codec import Chunk, check_version, decode, decode_from, encode_parts, join_parts
from ottla.wire.errors import FrameSizeError, TruncatedError, UnknownApiError
from ottla.wire.messages.headers import RequestHeader, ResponseHeader
from ottla.wire.registry import Api, apis
from ottla.wire.schema import Request, Response

SIZE_BYTES: Final = 4
_ROUTE = struct.Struct(">hhi")


class RequestRoute(NamedTuple):
    """The start of every request, whatever its version: enough to answer it, if only with an error."""

    api_key: int
    api_version: int
    correlation_id: int


class ReceivedRequest(NamedTuple):
    """A request frame, read."""

    api: Api
    header: RequestHeader
    request: Request


def frame_size(prefix: bytes | bytearray | memoryview, max_bytes: int) -> int:
    """The size in the first four bytes of a frame, checked before the rest is awaited."""
    size = int.from_bytes(prefix[:SIZE_BYTES], "big", signed=True)
    if not 0 <= size <= max_bytes:
        reason = f"a frame of {size} bytes is announced; the limit is {max_bytes}"
        raise FrameSizeError(reason, offset=0)
    return size


def peek_route(frame: bytes | bytearray | memoryview) -> RequestRoute:
    """The API, version and correlation id of a request frame (without its size)."""
    if len(frame) < _ROUTE.size:
        raise TruncatedError(f"{len(frame)} bytes cannot hold a request header", message="RequestHeader", offset=0)
    return RequestRoute(*_ROUTE.unpack_from(frame))


def api_of(api_key: int) -> Api:
    try:
        return apis()[api_key]
    except KeyError:
        raise UnknownApiError(f"unknown API key {api_key}") from None


def read_request(frame: bytes | bytearray | memoryview) -> ReceivedRequest:
    """The request in a frame (without its size).

    A version that the API does not have raises `UnsupportedVersionError`; `peek_route` still identifies the request. An
    ApiVersions request in an unknown version is answered in version 0 (KIP-511).
    """
    api_key, version, _ = peek_route(frame)
    api = api_of(api_key)
    check_version(api.request, version)
    header, end = decode_from(RequestHeader, api.request_header_version(version), memoryview(frame))
    return ReceivedRequest(api, header, decode(api.request, version, memoryview(frame)[end:]))


def read_response(api: Api, version: int, frame: bytes | bytearray | memoryview) -> tuple[int, Response]:
    """The correlation id and the response in a frame (without its size), to a request of that API and version."""
    header, end = decode_from(ResponseHeader, api.response_header_version(version), memoryview(frame))
    return header.correlation_id, decode(api.response, version, memoryview(frame)[end:])


def request_frame(request: Request, version: int, correlation_id: int, client_id: str | None) -> list[Chunk]:
    """The whole frame of a request, size included, in few chunks."""
    api = api_of(request.api_key)
    header = RequestHeader(
        request_api_key=request.api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return _frame(encode_parts(header, api.request_header_version(version)), encode_parts(request, version))


def response_frame(response: Response, version: int, correlation_id: int) -> list[Chunk]:
    """The whole frame of a response, size included, in few chunks."""
    header = ResponseHeader(correlation_id=correlation_id)
    header_version = api_of(response.api_key).response_header_version(version)
    return _frame(encode_parts(header, header_version), encode_parts(response, version))


def _frame(header: list[Chunk], body: list[Chunk]) -> list[Chunk]:
    parts: list[Any] = [*header, *body]
    size = sum(map(len, parts))
    if size > 2**31 - 1:
        raise FrameSizeError(f"a frame of {size} bytes cannot be announced in 32 bits")
    return join_parts([size.to_bytes(SIZE_BYTES, "big"), *parts])
