"""A client's connection, against brokers that behave and brokers that do not."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Awaitable, Coroutine
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from ottla.net.client_connection import (
    Address,
    BrokerUnreachableError,
    ClientConnection,
    ConnectionLostError,
    ConnectionOptions,
    RequestTimeoutError,
    UnsupportedApiError,
    parse_addresses,
)
from ottla.wire.messages.fetch import FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse
from ottla.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataTopic
from ottla.wire.messages.produce import ProduceRequest, ProduceResponse
from ottla.wire.schema import Request, Response
from support.clients.scripted_broker import Answer, HangUp, ScriptedBroker, Silence


def metadata_of(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataTopic(name=name)])


def test_responses_out_of_order_go_to_their_callers() -> None:
    async def scenario() -> None:
        last_came = asyncio.Event()
        topics = [f"t{index}" for index in range(20)]

        async def backwards(request: Request) -> Answer:
            assert isinstance(request, MetadataRequest)
            assert request.topics is not None
            if request.topics[0].name == topics[-1]:
                last_came.set()
            else:
                await last_came.wait()
            return broker.metadata(request)

        async with ScriptedBroker(backwards, dict.fromkeys(topics, 1)) as broker:
            connection = await ClientConnection.open(broker.address)
            answers = await asyncio.gather(*(connection.send(metadata_of(name), MetadataResponse) for name in topics))
            assert [answer.topics[0].name for answer in answers] == topics
            await connection.close()

    asyncio.run(scenario())


def test_the_highest_common_version_is_spoken() -> None:
    async def scenario() -> None:
        async with ScriptedBroker(unserved=frozenset({ProduceRequest.api_key})) as broker:
            connection = await ClientConnection.open(broker.address)
            assert connection.version_for(MetadataRequest) == MetadataRequest.versions.high
            assert connection.version_for(MetadataRequest, at_most=5) == 5
            with pytest.raises(UnsupportedApiError, match="does not serve Produce"):
                await connection.send(ProduceRequest(), ProduceResponse)
            await connection.close()

    asyncio.run(scenario())


def test_an_older_broker_is_asked_again_in_the_version_that_it_names() -> None:
    async def scenario() -> None:
        async with ScriptedBroker(api_versions_max=2) as broker:
            connection = await ClientConnection.open(broker.address)
            assert broker.versions == [4, 2]
            assert (await connection.send(metadata_of("events"), MetadataResponse)).cluster_id == "scripted"
            await connection.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("size", [1, 60_000, 70_000, 5_000_000])
@pytest.mark.parametrize("numpy_is", ["there", "missing", "being loaded"])
def test_an_answer_of_any_size_comes_whole(size: int, numpy_is: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import_module("numpy")
    if numpy_is == "missing":
        monkeypatch.delitem(sys.modules, "numpy")
    elif numpy_is == "being loaded":
        monkeypatch.setitem(sys.modules, "numpy", ModuleType("numpy"))

    async def scenario() -> None:
        records = bytes(range(256)) * (size // 256 + 1)

        def fetched(_: Request) -> Response:
            partition = FetchPartitionResponse(records=records[:size])
            return FetchResponse(responses=[FetchTopicResponse(topic="events", partitions=[partition])])

        async with ScriptedBroker(fetched) as broker:
            connection = await ClientConnection.open(broker.address)
            # The second has to begin where the first ends.
            for _ in range(2):
                answer = await connection.send(FetchRequest(), FetchResponse)
                assert answer.responses[0].partitions[0].records == records[:size]
            await connection.close()

    asyncio.run(scenario())


def test_a_timeout_ends_the_connection_for_all_waiting_callers() -> None:
    async def scenario() -> None:
        async with ScriptedBroker(lambda _: Silence()) as broker:
            connection = await ClientConnection.open(broker.address)
            other = asyncio.create_task(connection.send(metadata_of("events"), MetadataResponse))
            with pytest.raises(RequestTimeoutError, match=r"did not answer ListOffsets within 0.05 s"):
                await connection.send(ListOffsetsRequest(), ListOffsetsResponse, timeout_s=0.05)
            with pytest.raises(RequestTimeoutError):
                await other
            assert not connection.is_open
            with pytest.raises(RequestTimeoutError):
                await connection.send(metadata_of("events"), MetadataResponse)
            await connection.close()

    asyncio.run(scenario())


def test_a_closed_connection_is_reported_to_all_waiting_callers() -> None:
    async def scenario() -> None:
        both_came = asyncio.Event()

        async def hang_up(_: Request) -> Answer:
            if len(broker.requests) == 2:
                both_came.set()
            await both_came.wait()
            return HangUp()

        async with ScriptedBroker(hang_up) as broker:
            connection = await ClientConnection.open(broker.address)
            waiting: list[Awaitable[MetadataResponse]] = [
                asyncio.create_task(connection.send(metadata_of("events"), MetadataResponse)) for _ in range(2)
            ]
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [ConnectionLostError] * 2
            assert not connection.is_open
            await connection.close()

    asyncio.run(scenario())


def test_a_cancelled_caller_does_not_affect_the_others() -> None:
    async def scenario() -> None:
        came, may_answer = asyncio.Event(), asyncio.Event()

        async def late(request: Request) -> Answer:
            if len(broker.requests) == 1:
                came.set()
                await may_answer.wait()
            assert isinstance(request, MetadataRequest)
            return broker.metadata(request)

        async with ScriptedBroker(late, {"a": 1, "b": 1}) as broker:
            connection = await ClientConnection.open(broker.address)
            first = asyncio.create_task(connection.send(metadata_of("a"), MetadataResponse))
            await came.wait()
            first.cancel()
            may_answer.set()
            answer = await connection.send(metadata_of("b"), MetadataResponse)
            assert answer.topics[0].name == "b"
            assert first.cancelled()
            await connection.close()

    asyncio.run(scenario())


def test_a_broker_that_takes_nothing_is_given_up_in_time() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            for is_asked in (True, False):
                connection = await ClientConnection.open(broker.address)
                connection.pause_writing()  # as the transport does when the broker takes nothing
                sending: Coroutine[Any, Any, object] = (
                    connection.send(metadata_of("a"), MetadataResponse, timeout_s=0.01)
                    if is_asked
                    else connection.send_unanswered(ProduceRequest(acks=0), timeout_s=0.01)
                )
                with pytest.raises(RequestTimeoutError, match="did not answer"):
                    await sending
                assert not connection.is_open
                await connection.close()

    asyncio.run(scenario())


def test_an_unreadable_response_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            connection = await ClientConnection.open(broker.address)
            monkeypatch.setattr("ottla.net.client_connection.read_response", fail)
            with pytest.raises(BrokerUnreachableError, match=r"cannot decode the response of .*: ZeroDivisionError"):
                await connection.send(metadata_of("a"), MetadataResponse, timeout_s=20)
            await connection.close()

    asyncio.run(scenario())


def test_closing_fails_waiting_callers_and_frees_the_socket() -> None:
    async def scenario() -> None:
        came = asyncio.Event()

        def silent(_: Request) -> Answer:
            came.set()
            return Silence()

        async with ScriptedBroker(silent) as broker:
            connection = await ClientConnection.open(broker.address)
            waiting = asyncio.create_task(connection.send(metadata_of("a"), MetadataResponse))
            await came.wait()
            await connection.close()
            await connection.close()
            with pytest.raises(ConnectionLostError, match="was closed"):
                await waiting

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("greeting", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not a Kafka broker, but an HTTP server"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not a Kafka broker, but an SSH server"),
        (
            b"\x15\x03\x03\x00\x02\x02\x46",
            "not a Kafka broker, but a TLS port: use a port of the broker",
        ),
        (b"\xff\xff\xff\xff", "not a Kafka broker, but .*; is it a TLS port"),
        (b"", "it closed the connection before it answered ApiVersions; is it a Kafka broker on a port without TLS"),
    ],
)
def test_another_service_is_distinguished_from_a_broker(greeting: bytes, words: str) -> None:
    async def scenario() -> None:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(greeting)
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        with pytest.raises(BrokerUnreachableError, match=f"127.0.0.1:{port}: {words}"):
            await ClientConnection.open(Address(host, port))
        server.close()
        await server.wait_closed()

    asyncio.run(scenario())


def test_a_tls_port_is_distinguished_from_a_broker() -> None:
    async def scenario() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # it needs no certificate to see that we speak no TLS
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
        host, port = server.sockets[0].getsockname()
        with pytest.raises(BrokerUnreachableError, match="TLS"):
            await ClientConnection.open(Address(host, port))
        server.close()
        await server.wait_closed()

    asyncio.run(scenario())


def test_a_broker_that_ends_the_talk_at_the_first_request_may_want_more() -> None:
    async def scenario() -> None:
        answers: list[Answer | None] = [HangUp()]
        async with ScriptedBroker(lambda _: answers.pop(0)) as broker:
            connection = await ClientConnection.open(broker.address)
            with pytest.raises(
                ConnectionLostError, match="on the first request; does it require TLS or SASL on this port"
            ):
                await connection.send(metadata_of("a"), MetadataResponse)
            answers[:] = [None, HangUp()]
            connection = await ClientConnection.open(broker.address)
            await connection.send(metadata_of("events"), MetadataResponse)
            with pytest.raises(ConnectionLostError, match=r"the broker closed the connection$"):
                await connection.send(metadata_of("a"), MetadataResponse)

    asyncio.run(scenario())


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".example"])
def test_an_unknown_host(host: str) -> None:
    with pytest.raises(BrokerUnreachableError, match="invalid host name"):
        asyncio.run(ClientConnection.open(Address(host, 9092)))


def test_a_host_that_nobody_knows() -> None:
    with pytest.raises(BrokerUnreachableError, match=r"no\.such\.host\.invalid:9092: cannot resolve the host name"):
        asyncio.run(ClientConnection.open(Address("no.such.host.invalid", 9092)))


def test_one_that_accepts_and_says_nothing_is_given_up() -> None:
    async def scenario() -> None:
        connected: list[asyncio.StreamWriter] = []
        server = await asyncio.start_server(lambda _, writer: connected.append(writer), "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        with pytest.raises(BrokerUnreachableError, match=r"no answer within 0.1 s"):
            await ClientConnection.open(Address(host, port), ConnectionOptions(connect_timeout_s=0.1))
        server.close()
        for writer in connected:
            writer.close()
        await server.wait_closed()

    asyncio.run(scenario())


def test_nobody_listening_is_said_so() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            address = broker.address
        with pytest.raises(BrokerUnreachableError, match="connection refused: nothing listens there"):
            await ClientConnection.open(address)

    asyncio.run(scenario())


def test_addresses() -> None:
    assert parse_addresses("a:1, b.example:9092,") == [Address("a", 1), Address("b.example", 9092)]
    assert parse_addresses("[::1]:9092") == [Address("::1", 9092)]
    assert str(Address("::1", 9092)) == "[::1]:9092"


@pytest.mark.parametrize("text", ["localhost", ":9092", "a:", "a:x", "a:0", "a:65536", "::1:9092", "a:-1"])
def test_an_invalid_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not (an|the) address"):
        parse_addresses(text)


def test_a_hanging_broker_is_detected_without_waiting_callers() -> None:
    async def scenario() -> None:
        async with ScriptedBroker(lambda _: Silence()) as broker:
            connection = await ClientConnection.open(broker.address, ConnectionOptions(request_timeout_s=0.02))
            asking = asyncio.create_task(connection.send(metadata_of("t"), MetadataResponse))
            while not broker.requests:
                await asyncio.sleep(0.001)
            asking.cancel()
            await asyncio.wait([asking])
            async with asyncio.timeout(30):
                while connection.is_open:
                    await asyncio.sleep(0.001)
            await connection.close()

    asyncio.run(scenario())
