"""Frames: sizes, headers, and which version of a header goes with which message."""

from __future__ import annotations

import pytest

from ottla.wire import codec
from ottla.wire.errors import FrameSizeError, TruncatedError, UnknownApiError, UnsupportedVersionError
from ottla.wire.framing import (
    SIZE_BYTES,
    RequestRoute,
    api_of,
    frame_size,
    peek_route,
    read_request,
    read_response,
    request_frame,
    response_frame,
)
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.wire.messages.headers import RequestHeader, ResponseHeader
from ottla.wire.messages.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
)
from ottla.wire.registry import apis
from ottla.wire.schema import Request


def whole(chunks: list[bytes]) -> bytes:
    frame = b"".join(chunks)
    assert frame_size(frame, 2**31 - 1) == len(frame) - SIZE_BYTES
    return frame[SIZE_BYTES:]


@pytest.mark.parametrize(
    ("request_", "version", "header_version"),
    [
        (ControlledShutdownRequest(broker_id=3), 0, 0),
        (ControlledShutdownRequest(broker_id=3), 1, 1),
        (ApiVersionsRequest(), 2, 1),
        (ApiVersionsRequest(client_software_name="c"), 3, 2),
    ],
)
def test_the_version_of_a_request_header(request_: Request, version: int, header_version: int) -> None:
    assert api_of(request_.api_key).request_header_version(version) == header_version
    frame = whole(request_frame(request_, version, 77, "client"))
    header = RequestHeader(
        request_api_key=request_.api_key,
        request_api_version=version,
        correlation_id=77,
        client_id="client" if header_version else "",
    )
    assert frame == codec.encode(header, header_version) + codec.encode(request_, version)
    assert peek_route(frame) == RequestRoute(request_.api_key, version, 77)
    received = read_request(frame)
    assert (received.header, received.request) == (header, request_)


def test_the_header_of_an_api_versions_response_is_the_oldest_in_every_version() -> None:
    api = api_of(ApiVersionsResponse.api_key)
    assert {api.response_header_version(version) for version in api.versions} == {0}
    frame = whole(response_frame(ApiVersionsResponse(error_code=35), 3, 9))
    assert frame == b"\0\0\0\x09" + codec.encode(ApiVersionsResponse(error_code=35), 3)
    assert read_response(api, 3, frame) == (9, ApiVersionsResponse(error_code=35))


@pytest.mark.parametrize("key", apis())
def test_other_flexible_responses_have_a_flexible_header(key: int) -> None:
    api = apis()[key]
    for version in api.versions:
        flexible = version in api.response.flexible
        assert api.response_header_version(version) == int(flexible and key != ApiVersionsResponse.api_key)
        frame = whole(response_frame(api.response(), version, 5))
        header = codec.encode(ResponseHeader(correlation_id=5), api.response_header_version(version))
        assert frame.startswith(header)
        correlation_id, response = read_response(api, version, frame)
        assert correlation_id == 5
        assert codec.encode(response, version) == frame[len(header) :]


def test_large_records_are_not_copied_into_the_frame() -> None:
    records = memoryview(bytes(100_000))
    partition = ProducePartition(index=0, records=records)
    request = ProduceRequest(topic_data=[ProduceTopic(name="t", partition_data=[partition])])
    chunks = request_frame(request, 9, 1, None)
    assert any(chunk is records for chunk in chunks)
    frame = bytearray(whole(chunks))
    received = read_request(frame).request
    assert isinstance(received, ProduceRequest)
    view = received.topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview)
    assert view.obj is frame


@pytest.mark.parametrize("prefix", [b"\xff\xff\xff\xff", b"\x00\x00\x04\x01", b"\x7f\xff\xff\xff"])
def test_a_frame_beyond_the_limit_is_refused_before_it_is_read(prefix: bytes) -> None:
    with pytest.raises(FrameSizeError, match="the limit is 1024"):
        frame_size(prefix, 1024)


def test_the_largest_frame_allowed() -> None:
    assert frame_size(b"\x00\x00\x04\x00", 1024) == 1024


def test_a_frame_too_short_for_a_header() -> None:
    with pytest.raises(TruncatedError, match="7 bytes cannot hold a request header"):
        peek_route(bytes(7))


def test_an_api_that_does_not_exist() -> None:
    with pytest.raises(UnknownApiError, match="unknown API key 999"):
        read_request(b"\x03\xe7\x00\x00\x00\x00\x00\x01\xff\xff")


def test_a_version_that_does_not_exist_can_still_be_answered() -> None:
    frame = bytes.fromhex("0012 03e7 0000002a ffff")
    with pytest.raises(UnsupportedVersionError, match="ApiVersionsRequest v999"):
        read_request(frame)
    assert peek_route(frame) == RequestRoute(18, 999, 42)
