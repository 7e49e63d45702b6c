"""Frames to handlers and back: versions, headers, failures, order."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers import handlers
from ottla.broker.requests.api import BrokerError, Deferred, HandlerEntry
from ottla.wire.framing import api_of, read_response, request_frame
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.list_offsets import ListOffsetsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataTopic
from ottla.wire.messages.offset_fetch import OffsetFetchRequest
from ottla.wire.schema import Request
from support.brokers import Client, with_client

API_VERSIONS = 18


def send_bytes(client: Client, frame: bytes) -> None:
    client.broker.dispatcher.on_frame(client.connection, memoryview(bytearray(frame)))  # type: ignore[arg-type]


@pytest.mark.parametrize("version", range(5))
def test_api_versions_tells_what_is_served(tmp_path: Path, version: int) -> None:
    async def work(client: Client) -> None:
        response = await client.ask(ApiVersionsRequest(), ApiVersionsResponse, version)
        told = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        assert told == {key: (entry.advertised.low, entry.advertised.high) for key, entry in handlers().items()}

    with_client(tmp_path, work)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        send_bytes(client, struct.pack(">hhih", API_VERSIONS, 99, 7, -1) + b"\x00whatever the future brings")
        response = await client.answer(ApiVersionsResponse, 0)
        assert ErrorCode.of(response.error_code) is ErrorCode.UNSUPPORTED_VERSION
        assert any(each.api_key == API_VERSIONS for each in response.api_keys)
        assert not client.connection.is_closed

    with_client(tmp_path, work)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00",
        struct.pack(">hhi", 3, 9, 1),
        struct.pack(">hhih", 3, 99, 1, -1),
        struct.pack(">hhih", 3, -1, 1, -1),
        struct.pack(">hhih", 999, 0, 1, -1),
        struct.pack(">hhih", -1, 0, 1, -1),
        struct.pack(">hhih", 3, 9, 1, 30_000),
        struct.pack(">hhih", 3, 9, 1, 4) + b"\xff\xfe\xfd\xfc\x00\x01\x01\x00\x00",
        struct.pack(">hhih", 3, 9, 1, -1) + b"\x00\xff\xff\xff\xff\x07",
        struct.pack(">hhih", 4, 0, 1, -1) + bytes(100),
    ],
)
def test_a_frame_that_is_no_request_closes_its_connection_only(tmp_path: Path, frame: bytes) -> None:
    async def work(client: Client) -> None:
        closed: list[Any] = []
        client.connection.say_and_close = lambda words: closed.append(words)  # type: ignore[attr-defined]
        send_bytes(client, frame)
        assert closed == [b""]
        assert not client.is_answered
        other = Client(client.broker)
        await other.ask(MetadataRequest(topics=[]), MetadataResponse, 9)

    with_client(tmp_path, work)


def test_tags_in_a_header_and_bytes_after_a_request_are_skipped(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        frame = b"".join(request_frame(MetadataRequest(topics=[]), 12, 7, "me"))[4:]
        head, body = frame[:12], frame[13:]
        send_bytes(client, head + b"\x01\x05\x02ab" + body + b"more")
        response = await client.answer(MetadataResponse, 12)
        assert response.cluster_id == client.broker.metadata.cluster_id

    with_client(tmp_path, work)


def replaced(client: Client, api_key: int, function: Callable[..., Any]) -> None:
    """Puts another handler in, for this broker only."""
    entry = handlers()[api_key]
    client.broker.dispatcher._entries = {
        **handlers(),
        api_key: HandlerEntry(entry.request, entry.served, entry.advertised, function),
    }


def test_an_error_of_a_handler_becomes_the_answers(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        def refuse(*_: object) -> None:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "not today")

        async def refuse_later(*_: object) -> None:
            await asyncio.sleep(0)
            raise BrokerError(ErrorCode.INVALID_REQUEST, "not today")

        for function in (refuse, refuse_later):
            client.broker.dispatcher._routes.clear()
            replaced(client, DescribeClusterRequest.api_key, function)
            response = await client.ask(DescribeClusterRequest(), DescribeClusterResponse, 0)
            assert ErrorCode.of(response.error_code) is ErrorCode.INVALID_REQUEST
            assert response.error_message == "not today"

    with_client(tmp_path, work)


def test_a_handler_that_breaks_breaks_nothing_else(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        def fail(*_: object) -> None:
            raise ZeroDivisionError

        replaced(client, DescribeClusterRequest.api_key, fail)
        response = await client.ask(DescribeClusterRequest(), DescribeClusterResponse, 0)
        assert ErrorCode.of(response.error_code) is ErrorCode.UNKNOWN_SERVER_ERROR
        # ListOffsets has no place for an error of the whole: the client is hung up on, and asks again.
        client.broker.dispatcher._routes.clear()
        replaced(client, ListOffsetsRequest.api_key, fail)
        client.send(ListOffsetsRequest(replica_id=-1, topics=[]), 7)
        assert client.connection.is_closed
        other = Client(client.broker)
        await other.ask(MetadataRequest(topics=[]), MetadataResponse, 9)

    with_client(tmp_path, work)


def test_a_failure_that_a_version_has_no_place_for_is_not_taken_for_an_empty_answer(tmp_path: Path) -> None:
    """A consumer would take an empty answer to OffsetFetch for a group that has committed nothing."""

    def fail(*_: object) -> None:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)

    async def fail_later(*_: object) -> None:
        fail()

    asked: list[tuple[type[Request], int]] = [
        (FetchRequest, 6),
        (MetadataRequest, 12),
        (OffsetFetchRequest, 1),
        (OffsetFetchRequest, 8),
        (OffsetFetchRequest, 10),
        (DescribeLogDirsRequest, 2),
        (FindCoordinatorRequest, 4),
    ]

    async def work(first: Client) -> None:
        for request, version in asked:
            for function in (fail, fail_later):
                client = Client(first.broker)
                client.broker.dispatcher._routes.clear()
                replaced(client, request.api_key, function)
                client.send(request(), version)
                async with asyncio.timeout(30):
                    while not client.connection.is_closed and not client.is_answered:
                        await asyncio.sleep(0)
                assert not client.is_answered, (request, version)

    with_client(tmp_path, work)


def test_an_operation_that_waits_is_cancelled_when_its_connection_closes(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        cancelled: list[Deferred] = []

        def wait(*_: object) -> Deferred:
            deferred = Deferred()
            deferred.when_cancelled(lambda: cancelled.append(deferred))
            waiting.append(deferred)
            return deferred

        waiting: list[Deferred] = []
        replaced(client, DescribeClusterRequest.api_key, wait)
        for _ in range(3):
            client.send(DescribeClusterRequest(), 0)
        waiting[1].answer(DescribeClusterResponse())
        client.connection.close()
        assert cancelled == [waiting[0], waiting[2]]
        client.connection.close()
        assert len(cancelled) == 2

    with_client(tmp_path, work)


async def _cancelled_elsewhere() -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def _later(response: object) -> object:
    await asyncio.sleep(0)
    return response


def _answered_at_once(response: Any) -> Deferred:
    deferred = Deferred()
    deferred.answer(response)
    return deferred


_UNENCODABLE = DescribeClusterResponse(cluster_id=cast(str, 5))


@pytest.mark.parametrize(
    "handler",
    [
        lambda *_: _UNENCODABLE,
        lambda *_: _answered_at_once(_UNENCODABLE),
        lambda *_: _later(_UNENCODABLE),
        lambda *_: _cancelled_elsewhere(),
        lambda *_: "no response at all",
    ],
    ids=["now", "deferred", "later", "cancelled", "nonsense"],
)
def test_a_request_that_cannot_be_answered_closes_its_connection(
    tmp_path: Path, handler: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def work(client: Client) -> None:
        replaced(client, DescribeClusterRequest.api_key, handler)
        client.send(DescribeClusterRequest(), 0)
        async with asyncio.timeout(10):
            while not client.connection.is_closed:
                await asyncio.sleep(0)
        assert not client.is_answered
        assert "could not be answered" in caplog.text

    with_client(tmp_path, work)


def test_a_request_that_failed_is_logged_in_part_however_large_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(client: Client) -> None:
        def fail(*_: object) -> None:
            raise ZeroDivisionError

        replaced(client, MetadataRequest.api_key, fail)
        client.send(MetadataRequest(topics=[MetadataTopic(name="t" * 1000)] * 1000), 7)
        assert len(caplog.text) < 50_000
        assert "ZeroDivisionError" in caplog.text

    with_client(tmp_path, work)


def test_requests_are_counted(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        for _ in range(3):
            await client.ask(MetadataRequest(topics=[]), MetadataResponse, 9)
        stats = client.broker.request_stats.api(MetadataRequest.api_key)
        assert stats.requests == 3
        assert stats.request_bytes > 0
        assert stats.response_bytes > 0

    with_client(tmp_path, work)


def test_every_handler_is_of_an_api_that_is_declared() -> None:
    for key, entry in handlers().items():
        api = api_of(key)
        assert api.request is entry.request
        assert entry.served.low >= api.versions.low
        assert entry.served.high <= api.versions.high
        assert read_response is not None
