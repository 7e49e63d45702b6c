"""A client's connection to one broker, with many requests in flight.

`ClientConnection.open` connects and asks which API versions the broker serves; every request is then sent in the
highest version that both sides know. Responses are matched by correlation id. A connection that fails once stays
closed: every pending request fails with the same reason, and the caller has to open another connection.

Belongs to the loop in which it was opened. A caller that is cancelled only stops waiting; its response is dropped.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary, WeakSet

from ottla.base.error_codes import ErrorCode
from ottla.base.errors import OttlaError
from ottla.net.frame_exchange import Frame, FrameExchange
from ottla.wire.errors import ProtocolError
from ottla.wire.framing import SIZE_BYTES, api_of, frame_size, read_response, request_frame
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.registry import API_VERSIONS, Api, apis
from ottla.wire.schema import Request, Response
from ottla.wire.versions import Versions

AnyResponse = TypeVar("AnyResponse", bound=Response)

MAX_RESPONSE_BYTES: Final = 256 * 1024 * 1024
"""Larger than any reasonable fetch response, smaller than the "size" in the first bytes of a TLS or HTTP server."""

_INBOX_BYTES: Final = 64 * 1024
_LARGE_BYTES: Final = 128 * 1024
_CORRELATION_ID_BYTES: Final = 4
_CORRELATION_ID_AT: Final = 8
"""In a request frame: after its size, the API key and the version."""


class BrokerConnectionError(OttlaError):
    """A broker could not be reached or did not answer. Another attempt or another broker may succeed."""


class BrokerUnreachableError(BrokerConnectionError):
    """No Kafka broker could be reached at the address."""

    is_wrong_address = False
    """Whether the address itself appears to be wrong, so that a retry cannot help."""
    is_refused = False
    """Whether the host answered that nothing listens at the address."""


class ConnectionLostError(BrokerConnectionError):
    """The connection was lost with requests unanswered: they may or may not have taken effect."""


class RequestTimeoutError(BrokerConnectionError):
    """The broker did not answer in time: the request may or may not have taken effect."""


class UnsupportedApiError(BrokerConnectionError):
    """The broker does not serve this API in a version that the client knows."""


class Address(NamedTuple):
    """The address of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Connection options and timeouts."""

    client_id: str = "ottla"
    connect_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    max_response_bytes: int = MAX_RESPONSE_BYTES
    receive_buffer_bytes: int | None = None
    """SO_RCVBUF; None keeps the system's default."""
    send_buffer_bytes: int | None = None
    keep_alive: bool = False
    """SO_KEEPALIVE: an idle connection to a host that vanished ends after some time."""


class _Waiting(NamedTuple):
    """A request in flight, and how to decode its response."""

    name: str
    read: Callable[[Frame], Any]
    answer: asyncio.Future[Response] | _Answering | FrameExchange


class _Answering:
    """Used like a future, but calls back in the same turn of the loop in which the response arrives."""

    __slots__ = ("_answered", "_loop", "_timer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timer: asyncio.TimerHandle,
        answered: Callable[[Response | Exception], None],
    ) -> None:
        self._loop = loop
        self._timer = timer
        self._answered = answered

    def done(self) -> bool:
        return False

    def set_result(self, response: Response) -> None:
        self._timer.cancel()
        self._answered(response)

    def set_exception(self, error: Exception) -> None:
        self._timer.cancel()
        self._loop.call_soon(self._answered, error)


class ClientConnection(asyncio.BufferedProtocol):
    """One connection, made by `open`. Small responses are copied from a shared inbox, large ones are received into
    memory of their own: either way a response owns its bytes."""

    def __init__(self, address: Address, options: ConnectionOptions) -> None:
        self.address = address
        self.served: dict[int, Versions] = {}
        """The versions that both sides know, by API key."""
        self.finalized_features: dict[str, int] = {}
        """The level of each feature that the whole cluster has agreed to use (KIP-584), when this was connected."""
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._closed = self._loop.create_future()
        self._failure: BrokerConnectionError | None = None
        self._waiting: dict[int, _Waiting] = {}
        self._next_correlation_id = 0
        self._used_at_s = self._loop.time()
        self._is_welcome: bool | None = None
        """None until the versions are known; then whether any other request was answered."""
        self._writable = asyncio.Event()
        self._writable.set()
        self._inbox = bytearray(_INBOX_BYTES)
        self._inbox_view = memoryview(self._inbox)
        self._inbox_filled = 0
        self._frame: memoryview | None = None
        self._frame_filled = 0

    @classmethod
    async def open(cls, address: Address, options: ConnectionOptions | None = None) -> ClientConnection:
        """Connects, and asks for the broker's API versions."""
        options = options or ConnectionOptions()
        loop = asyncio.get_running_loop()
        connection = cls(address, options)
        try:
            async with asyncio.timeout(options.connect_timeout_s):
                await loop.create_connection(lambda: connection, address.host, address.port)
                await connection._agree_on_versions()
                connection._is_welcome = False
        except TimeoutError:
            reason = f"no answer within {options.connect_timeout_s:g} s; is it a Kafka broker on a port without TLS?"
            failure = BrokerUnreachableError(f"{address}: {reason}")
            connection._fail(failure)  # not awaited, see below
            raise failure from None
        except (OSError, UnicodeError) as error:
            await connection.close()
            unreachable = BrokerUnreachableError(f"{address}: {_words(error)}")
            unreachable.is_wrong_address = isinstance(error, UnicodeError) or (
                isinstance(error, socket.gaierror) and error.errno != socket.EAI_AGAIN
            )
            unreachable.is_refused = _is_refused(error)
            raise unreachable from error
        except ConnectionLostError as error:
            await connection.close()
            raise BrokerUnreachableError(str(error)) from error
        except BaseException:
            # Not awaited: uvloop does not report a connection that was cancelled just as it was made.
            connection._fail(ConnectionLostError(f"{address}: connecting was cancelled"))
            raise
        return connection

    async def close(self) -> None:
        """Closes the connection; pending requests fail. Returns when the socket is closed."""
        self.abort()
        if self._transport is not None:
            await asyncio.shield(self._closed)

    def abort(self) -> None:
        """The same without waiting: the socket is closed in a later turn of the loop."""
        self._fail(ConnectionLostError(f"{self.address}: the connection was closed"))

    async def wait_closed(self) -> BrokerConnectionError:
        """Waits until the socket is closed, by either side. Returns the reason."""
        await asyncio.shield(self._closed)
        return self._failure or ConnectionLostError(f"{self.address}: the connection was closed")

    @property
    def client_id(self) -> str:
        return self._options.client_id

    @property
    def connect_timeout_s(self) -> float:
        return self._options.connect_timeout_s

    @property
    def max_response_bytes(self) -> int:
        return self._options.max_response_bytes

    @property
    def peer(self) -> Any:
        """The address that was connected to, as sockets have it. For an open connection."""
        return self._open_transport().get_extra_info("peername")

    @property
    def family(self) -> int:
        """The family of that address."""
        return cast(int, self._open_transport().get_extra_info("socket").family)

    @property
    def is_open(self) -> bool:
        return self._transport is not None and self._failure is None

    @property
    def idle_s(self) -> float:
        """How long the connection has been idle."""
        return 0.0 if self._waiting else self._loop.time() - self._used_at_s

    # Requests.

    def version_for(self, request: type[Request], at_most: int | None = None) -> int:
        """The highest version that both sides know."""
        versions = self.served.get(request.api_key)
        if versions is None or (at_most is not None and at_most < versions.low):
            name = request.__name__.removesuffix("Request")
            raise UnsupportedApiError(f"{self.address} does not serve {name} in a version that this client knows")
        return versions.high if at_most is None else min(versions.high, at_most)

    async def send(
        self,
        request: Request,
        response: type[AnyResponse],
        *,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> AnyResponse:
        """The broker's response. A timeout closes the connection: later requests would wait too."""
        if version is None:
            version = self.version_for(type(request))
        api = api_of(request.api_key)
        timeout_s = self._options.request_timeout_s if timeout_s is None else timeout_s
        answer: asyncio.Future[Response] | None = None
        try:
            async with asyncio.timeout(timeout_s):
                # Includes the wait for buffer space: a broker that does not read does not answer either.
                answer = await self._send(request, version, lambda frame: read_response(api, version, frame)[1])
                received = await answer
        except TimeoutError:
            raise self._give_up(api.name, timeout_s) from None
        except asyncio.CancelledError:
            if answer is not None:
                self._abandon(answer, api.name, timeout_s)
            raise
        if not isinstance(received, response):
            raise TypeError(f"the response of {api.name} is {api.response.__name__}, not {response.__name__}")
        return received

    def post(
        self, request: Request, answered: Callable[[Response | Exception], None], *, version: int, timeout_s: float
    ) -> None:
        """Queues the request immediately, in order, without waiting for buffer space: for callers that limit their
        requests in flight themselves. Calls `answered` with the response, or with the exception that `send` would
        raise. `answered` must not raise."""
        correlation_id = self._write(request, version)
        api = api_of(request.api_key)
        timer = self._loop.call_later(timeout_s, self._give_up, api.name, timeout_s)
        self._waiting[correlation_id] = _Waiting(
            api.name, lambda frame: read_response(api, version, frame)[1], _Answering(self._loop, timer, answered)
        )

    def exchange(
        self,
        request: type[Request],
        *,
        answered: Callable[[Frame], None],
        failed: Callable[[Exception], None],
        timeout_s: float,
    ) -> FrameExchange:
        """For requests of one kind that the caller encodes, one at a time. If one is not answered within the timeout,
        the connection is closed."""
        name = api_of(request.api_key).name
        return FrameExchange(
            name,
            self._loop,
            self._write_frame,
            answered=answered,
            failed=failed,
            timeout_s=timeout_s,
            on_timeout=lambda: self._give_up(name, timeout_s),
        )

    def _write_frame(self, frame: bytearray, exchange: FrameExchange) -> None:
        transport = self._open_transport()
        correlation_id = self._new_correlation_id()
        frame[_CORRELATION_ID_AT : _CORRELATION_ID_AT + _CORRELATION_ID_BYTES] = correlation_id.to_bytes(4, "big")
        transport.write(bytes(frame))
        self._waiting[correlation_id] = _Waiting(exchange.name, _as_received, exchange)

    async def send_unanswered(
        self, request: Request, *, version: int | None = None, timeout_s: float | None = None
    ) -> None:
        """Sends the one request without a response: Produce with acks=0. Closes the connection if the broker does not
        read for the timeout."""
        if version is None:
            version = self.version_for(type(request))
        if not self._writable.is_set():
            timeout_s = self._options.request_timeout_s if timeout_s is None else timeout_s
            try:
                async with asyncio.timeout(timeout_s):
                    await self._writable.wait()
            except TimeoutError:
                raise self._give_up(api_of(request.api_key).name, timeout_s) from None
        self._write(request, version)

    async def _send(
        self, request: Request, version: int, read: Callable[[bytes | memoryview], Response]
    ) -> asyncio.Future[Response]:
        await self._writable.wait()
        correlation_id = self._write(request, version)
        answer: asyncio.Future[Response] = self._loop.create_future()
        # After its caller was cancelled, nobody retrieves the exception.
        answer.add_done_callback(lambda done: None if done.cancelled() else done.exception() and None)
        self._waiting[correlation_id] = _Waiting(type(request).__name__, read, answer)
        return answer

    def _abandon(self, answer: asyncio.Future[Response], name: str, timeout_s: float) -> None:
        """The caller no longer waits for this response. A broker that hangs is still detected."""
        for correlation_id, waiting in self._waiting.items():
            if waiting.answer is answer:
                timer = self._loop.call_later(timeout_s, self._give_up, name, timeout_s)
                ignored = _Answering(self._loop, timer, lambda _: None)
                self._waiting[correlation_id] = waiting._replace(answer=ignored)
                return

    def _give_up(self, name: str, timeout_s: float) -> RequestTimeoutError:
        error = RequestTimeoutError(f"{self.address} did not answer {name} within {timeout_s:g} s")
        self._fail(error)
        return error

    def _write(self, request: Request, version: int) -> int:
        transport = self._open_transport()
        correlation_id = self._new_correlation_id()
        transport.writelines(request_frame(request, version, correlation_id, self._options.client_id))
        return correlation_id

    def _open_transport(self) -> asyncio.Transport:
        """The transport, for a request; raises if the connection is closed."""
        if self._failure is not None:
            raise self._failure
        transport = self._transport
        if transport is None:
            raise ConnectionLostError(f"{self.address}: the connection is not open")
        if transport.is_closing():
            # `connection_lost` is called in a later turn of the loop. Until then `writelines` of asyncio's transport
            # fails with a TypeError in Python 3.12 and 3.13.
            raise ConnectionLostError(f"{self.address}: {self._why_closed()}")
        return transport

    def _new_correlation_id(self) -> int:
        self._used_at_s = self._loop.time()
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        return correlation_id

    # API versions.

    async def _agree_on_versions(self) -> None:
        asked = ApiVersionsRequest.versions.high
        answer = await self._ask_versions(asked)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # The broker is older than this client, and answers in version 0 with the versions that it knows (KIP-511).
            known = [api for api in answer.api_keys if api.api_key == API_VERSIONS]
            answer = await self._ask_versions(min(asked, known[0].max_version) if known else 0)
        if answer.error_code != ErrorCode.NONE:
            code = ErrorCode.of(answer.error_code)
            raise BrokerUnreachableError(f"{self.address} did not answer ApiVersions: {code.name}, {code.description}")
        for served in answer.api_keys:
            api = apis().get(served.api_key)
            if api is not None:
                low, high = max(api.versions.low, served.min_version), min(api.versions.high, served.max_version)
                if low <= high:
                    self.served[served.api_key] = Versions(low, high)
        self.finalized_features = {one.name: one.max_version_level for one in answer.finalized_features}

    async def _ask_versions(self, version: int) -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version=_software_version())
        api = api_of(API_VERSIONS)
        answer = await self._send(request, version, lambda frame: _read_api_versions(api, version, frame))
        return cast(ApiVersionsResponse, await answer)

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._failure is not None:
            self._transport.abort()
            return
        _open_in.setdefault(self._loop, WeakSet()).add(self)
        sizes = {
            socket.SO_RCVBUF: self._options.receive_buffer_bytes,
            socket.SO_SNDBUF: self._options.send_buffer_bytes,
        }
        for option, size in sizes.items():
            if size is not None:
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, option, size)
        if self._options.keep_alive:
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, error: Exception | None) -> None:
        reason = f"the connection was lost ({_words(error)})" if error else self._why_closed()
        self._fail(ConnectionLostError(f"{self.address}: {reason}"))
        if not self._closed.done():
            self._closed.set_result(None)

    def _why_closed(self) -> str:
        if self._is_welcome is None:
            return (
                "it closed the connection before it answered ApiVersions; is it a Kafka broker on a port without TLS?"
            )
        if not self._is_welcome and self._waiting:
            return "the broker closed the connection on the first request; does it require TLS or SASL on this port?"
        return "the broker closed the connection"

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        if self._frame is not None:
            return self._frame[self._frame_filled :]
        return self._inbox_view[self._inbox_filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._frame is not None:
            self._frame_filled += nbytes
            if self._frame_filled == len(self._frame):
                frame, self._frame = self._frame, None
                self._take(frame)
            return
        self._inbox_filled += nbytes
        self._empty_inbox()

    def eof_received(self) -> None:
        """Closes the connection: a broker never half-closes."""

    def _empty_inbox(self) -> None:
        start, filled = 0, self._inbox_filled
        while filled - start >= SIZE_BYTES and self._failure is None:
            try:
                size = frame_size(self._inbox_view[start : start + SIZE_BYTES], self._options.max_response_bytes)
            except ProtocolError as error:
                heard = _who_speaks(bytes(self._inbox_view[start:filled])) or f"{error.reason}; is it a TLS port?"
                stranger = BrokerUnreachableError(f"{self.address}: not a Kafka broker, but {heard}")
                stranger.is_wrong_address = True
                self._fail(stranger)
                return
            start += SIZE_BYTES
            if filled - start < size:
                self._frame = _room_for(size)
                self._frame_filled = filled - start
                self._frame[: self._frame_filled] = self._inbox_view[start:filled]
                start = filled
                break
            self._take(bytes(self._inbox_view[start : start + size]))
            start += size
        self._inbox[: filled - start] = self._inbox_view[start:filled]
        self._inbox_filled = filled - start

    def _take(self, frame: bytes | memoryview) -> None:
        correlation_id = int.from_bytes(frame[:_CORRELATION_ID_BYTES], "big", signed=True)
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None:
            reason = f"{self.address} answered request {correlation_id}, which was never sent"
            self._fail(BrokerUnreachableError(reason))
            return
        if waiting.answer.done():
            return
        try:
            response = waiting.read(frame)
        except Exception as error:  # whatever it is, the caller must not wait any longer
            told = error if isinstance(error, ProtocolError) else repr(error)
            reason = f"cannot decode the response of {self.address} to {waiting.name}: {told}"
            self._fail(BrokerUnreachableError(reason))
            waiting.answer.set_exception(BrokerUnreachableError(reason))
            return
        if self._is_welcome is False:
            self._is_welcome = True
        self._used_at_s = self._loop.time()
        waiting.answer.set_result(response)

    def _fail(self, error: BrokerConnectionError) -> None:
        if self._failure is None:
            self._failure = error
            _open_in.get(self._loop, WeakSet()).discard(self)
            # Requests that wait for buffer space are not sent: `_write` raises the failure.
            self._writable.set()
            waiting, self._waiting = self._waiting, {}
            for one in waiting.values():
                if not one.answer.done():
                    one.answer.set_exception(error)
        if self._transport is not None:
            self._transport.abort()


_open_in: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakSet[ClientConnection]] = WeakKeyDictionary()
"""The connections of each loop, used by its own thread only."""


async def close_all_in_loop() -> None:
    """Closes the open connections of the running loop: uvloop cannot be closed while sockets are open."""
    connections = _open_in.get(asyncio.get_running_loop(), ())
    await asyncio.gather(*(connection.close() for connection in list(connections)))


def parse_addresses(text: str) -> list[Address]:
    """The addresses in a list like `broker1:9092,[::1]:9093`."""
    return [_parse_address(part.strip()) for part in text.split(",") if part.strip()]


def _parse_address(text: str) -> Address:
    scheme, found, rest = text.partition("://")
    if found:
        place = rest.split("/")[0] or "localhost:9092"
        raise ValueError(
            f"{text!r} is a URL, but brokers use Kafka's own protocol, not {scheme!r}; write host:port, "
            f"for instance {place if ':' in place else f'{place}:9092'}"
        )
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r} is not an address: put an IPv6 host in brackets, as in [::1]:9092")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not the address of a broker: write host:port, for instance localhost:9092")
    return Address(host, int(port))


def _as_received(frame: Frame) -> Frame:
    return frame


def _read_api_versions(api: Api, version: int, frame: bytes | memoryview) -> Response:
    """A broker that does not know the version answers in version 0. All versions start with the error code."""
    code = int.from_bytes(frame[_CORRELATION_ID_BYTES : _CORRELATION_ID_BYTES + 2], "big", signed=True)
    return read_response(api, 0 if code == ErrorCode.UNSUPPORTED_VERSION else version, frame)[1]


def _room_for(size: int) -> memoryview:
    """A buffer for a response. Python would fill it with zeros, which takes as long as receiving it."""
    if size < _LARGE_BYTES:
        return memoryview(bytearray(size))
    # Another thread may be importing numpy: then the module exists, but is still empty.
    empty = getattr(sys.modules.get("numpy"), "empty", None)
    return memoryview(bytearray(size) if empty is None else empty(size, "u1"))


@cache
def _software_version() -> str:
    from importlib.metadata import (
        PackageNotFoundError,
        version,
    )  # importing it would take longer than the rest of this module

    try:
        return version("ottla")
    except PackageNotFoundError:
        return "0"


def _who_speaks(first_bytes: bytes) -> str | None:
    """What listens at the address instead of a broker, if it can be recognised."""
    if first_bytes[:2] in (b"\x15\x03", b"\x16\x03"):
        return "a TLS port: use a port of the broker without TLS"
    if first_bytes.startswith((b"HTTP", b"<htm", b"<!DO", b"<HTM")):
        return "an HTTP server"
    if first_bytes.startswith(b"SSH-"):
        return "an SSH server"
    return None


def _is_refused(error: BaseException) -> bool:
    """Whether every address of the host refused the connection."""
    if isinstance(error, ConnectionRefusedError):
        return True
    # asyncio joins the errors of a host with several addresses into one message.
    told = str(error)
    refused = told.count(f"[Errno {errno.ECONNREFUSED}]")
    return isinstance(error, OSError) and 0 < refused == told.count("[Errno ")


def _words(error: BaseException | None) -> str:
    """The system's error message, without error numbers."""
    # asyncio joins the errors of a host with several addresses into one message.
    if isinstance(error, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in str(error):
        return "connection refused: nothing listens there"
    if isinstance(error, UnicodeError):
        return f"invalid host name ({error})"
    if isinstance(error, socket.gaierror):
        return f"cannot resolve the host name ({error.strerror})"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
