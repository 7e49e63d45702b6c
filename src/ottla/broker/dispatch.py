"""Decodes request frames, calls their handlers, and encodes the responses.

The hot path of the broker: what is known about a connection and an API is looked up once and cached.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import struct
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers import handlers
from ottla.broker.observability.logging_setup import ThrottledLog
from ottla.broker.observability.request_stats import ApiStats, RequestStats
from ottla.broker.requests.api import BrokerError, Deferred, EncodedResponse, HandlerEntry, RequestContext
from ottla.net.core import Chunk, Slot
from ottla.net.socket_connection import SocketConnection
from ottla.wire.codec import JOIN_BELOW_BYTES, decode_from, encode_parts, join_parts, reader_of
from ottla.wire.errors import InvalidValueError, ProtocolError, UnknownApiError, UnsupportedVersionError
from ottla.wire.framing import SIZE_BYTES, api_of, peek_route
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.headers import RequestHeader
from ottla.wire.messages.join_group import JoinGroupRequest
from ottla.wire.messages.sync_group import SyncGroupRequest
from ottla.wire.registry import API_VERSIONS, Api
from ottla.wire.schema import Request, Response

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_logger = logging.getLogger(__name__)

_START = struct.Struct(">hhih")
"""API key, version, correlation id and the length of the client id: the start of every request but one."""
_FRAME_MAX: Final = 2**31 - 1
_WAITING: Final = frozenset({FetchRequest.api_key, JoinGroupRequest.api_key, SyncGroupRequest.api_key})
"""APIs whose requests wait deliberately, for records or for other members."""
_SHOWN_MAX: Final = 10_000
"""Maximum number of characters of a failed request in the log."""


class HandlerRoute:
    """What is known about one version of an API."""

    __slots__ = ("answer_head", "api", "entry", "handle", "is_flexible", "read", "slow_s", "stats", "version", "wait_s")

    def __init__(self, api: Api, entry: HandlerEntry, version: int, stats: ApiStats, slow_s: float) -> None:
        self.api = api
        self.entry = entry
        self.version = version
        self.stats = stats
        self.read = reader_of(entry.request, version) if entry.reader is None else entry.reader(version)
        self.handle = entry.function
        self.is_flexible = api.request_header_version(version) == 2
        self.slow_s = slow_s
        """A request that takes longer is slow."""
        self.wait_s = math.inf if api.key in _WAITING else slow_s
        """The same for a request that is answered later."""
        # Size and correlation id, and the empty tags of a newer header.
        self.answer_head = struct.Struct(">ii" if api.response_header_version(version) == 0 else ">iix")


class ConnectionState:
    """The dispatcher's state of a connection: the last context of each route, with the client id's bytes."""

    __slots__ = ("contexts",)

    def __init__(self) -> None:
        self.contexts: dict[HandlerRoute, tuple[bytes, RequestContext]] = {}


class Dispatcher:
    """The server's handler of frames. Owned by the loop."""

    def __init__(
        self,
        broker: Broker,
        stats: RequestStats,
        refuse: Callable[[SocketConnection, ProtocolError], None],
    ) -> None:
        self._broker = broker
        self._stats = stats
        self._refuse = refuse
        self._routes: dict[tuple[int, int], HandlerRoute] = {}
        self._entries = handlers(in_cluster=broker.config.zookeeper is not None)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        slow_ms: int = broker.config["ottla.slow.request.ms"]
        self._slow_s = slow_ms / 1000 if slow_ms >= 0 else math.inf
        self._slow_requests = ThrottledLog(_logger, broker.clock)

    def on_frame(self, connection: SocketConnection, frame: memoryview) -> None:
        """Starts a request. The frame is valid only during this call: handlers copy what they need later."""
        started_s = perf_counter()
        try:
            api_key, version, correlation_id, id_size = _START.unpack_from(frame)
            route = self._routes.get((api_key, version)) or self._new_route(api_key, version)
            end = 10 + id_size if id_size > 0 else 10
            client = bytes(frame[8:end])
            if route.is_flexible:
                if frame[end]:  # tagged fields: rare, so they are read by the general codec
                    end = decode_from(RequestHeader, 2, frame)[1]
                else:
                    end += 1
            state = connection.attachment
            if type(state) is ConnectionState and (known := state.contexts.get(route)) and known[0] == client:
                context = known[1]
            else:
                context = self._new_context(connection, route, client)
            # Bytes after the last field are ignored, as in Kafka: librdkafka sends some in Metadata v13.
            request = route.read(frame[end:])
        except (ProtocolError, struct.error, IndexError, UnicodeDecodeError) as error:
            self._not_read(connection, frame, error)
            return
        try:
            result = route.handle(self._broker, request, context)
        except Exception as error:
            result = self._failure(route, request, error)
        is_encoded = type(result) is EncodedResponse
        if not is_encoded and isinstance(result, Deferred):  # commits: asked before what takes longer to tell
            pending = _LaterAnswer(self, connection, route, correlation_id, len(frame), started_s)
            connection.reserve(pending)
            pending.wait_for(result)
        elif is_encoded or isinstance(result, Response):
            try:
                chunks = self._frame(connection, route, correlation_id, result, len(frame), started_s, route.slow_s)
            except Exception as error:
                self._hang_up(connection, route, error)
                return
            connection.answer(chunks)
        elif result is None:  # a request without a response
            route.stats.observe(len(frame), 0, perf_counter() - started_s)
        else:
            pending = _LaterAnswer(self, connection, route, correlation_id, len(frame), started_s)
            connection.reserve(pending)
            if inspect.iscoroutine(result):
                self._start(pending, request, result)
            else:  # a connection that must be closed
                pending.hang_up(result)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _new_route(self, api_key: int, version: int) -> HandlerRoute:
        entry = self._entries.get(api_key)
        if entry is None:
            raise UnknownApiError(f"API {api_key} is not served")
        if version not in entry.served:
            name = entry.request.__name__.removesuffix("Request")
            raise UnsupportedVersionError(f"versions {entry.served} are served", message=f"{name} v{version}")
        route = self._routes[api_key, version] = HandlerRoute(
            api_of(api_key), entry, version, self._stats.api(api_key), self._slow_s
        )
        return route

    def _new_context(self, connection: SocketConnection, route: HandlerRoute, client: bytes) -> RequestContext:
        state = connection.attachment
        if type(state) is not ConnectionState:
            state = connection.attachment = ConnectionState()
        context = RequestContext(
            version=route.version,
            client_id=client[2:].decode() if client[:2] != b"\xff\xff" else None,
            client_host=connection.address,
            listener=connection.listener,
            connection_id=connection.connection_id,
        )
        state.contexts[route] = client, context
        return context

    def _not_read(self, connection: SocketConnection, frame: memoryview, error: Exception) -> None:
        """Handles a frame that is not a supported request. Only ApiVersions can be answered with an error (KIP-511)."""
        if isinstance(error, UnsupportedVersionError):
            api_key, _, correlation_id = peek_route(frame)
            if api_key == API_VERSIONS:
                route = self._routes.get((API_VERSIONS, 0)) or self._new_route(API_VERSIONS, 0)
                context = self._new_context(connection, route, b"\xff\xff")
                response = route.entry.function(self._broker, ApiVersionsRequest(), context)
                response.error_code = ErrorCode.UNSUPPORTED_VERSION
                connection.answer(frame_of(route, correlation_id, response)[1])
                return
        told = error if isinstance(error, ProtocolError) else InvalidValueError(f"a truncated request ({error})")
        self._refuse(connection, told)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _failure(self, route: HandlerRoute, request: Request, error: Exception) -> Response | Exception:
        """The response when a handler raised: with the error code, if the response has a field for one in that version.
        Without the code it would look like an empty success, so then the error itself is returned."""
        if not isinstance(error, BrokerError):
            _logger.error("%s v%d failed: %s", route.api.name, route.version, _shown(request), exc_info=error)
        code = getattr(error, "code", ErrorCode.UNKNOWN_SERVER_ERROR)
        response = route.api.response()
        if not any(field.name == "error_code" and route.version in field.versions for field in response.fields):
            return error
        response.error_code = code  # type: ignore[attr-defined]
        if any(field.name == "error_message" for field in response.fields):
            response.error_message = str(error)  # type: ignore[attr-defined]
        return response

    def _frame(
        self,
        connection: SocketConnection,
        route: HandlerRoute,
        correlation_id: int,
        response: Response | EncodedResponse | None,
        request_size: int,
        started_s: float,
        slow_s: float,
    ) -> list[Chunk]:
        """The chunks of the response; empty for a request without a response. Counts the request, and logs one that
        took longer than `slow_s`."""
        chunks: list[Chunk]
        if type(response) is bytes:  # most responses of busy clients: as short as possible
            head = route.answer_head
            size = head.size + len(response)
            chunks = [head.pack(size - SIZE_BYTES, correlation_id) + response]
        elif response is None:
            size, chunks = 0, []
        else:
            size, chunks = frame_of(route, correlation_id, response)
            if error_code := getattr(response, "error_code", 0):
                route.stats.count_error(error_code)
        taken_s = perf_counter() - started_s
        route.stats.observe(request_size, size, taken_s)
        if taken_s > slow_s:
            self.tell_slow(connection, route, taken_s)
        return chunks

    def tell_slow(self, connection: SocketConnection, route: HandlerRoute, taken_s: float) -> None:
        """Logs a slow request, at most one per API in ten seconds."""
        state, name = connection.attachment, f"{route.api.name} v{route.version}"
        known = state.contexts.get(route) if type(state) is ConnectionState else None
        client = "a client" if known is None else known[1].client_id or "a client"
        told = name, client, connection.address, connection.port, taken_s
        self._slow_requests.info(route.api.key, "slow request: %s of %s at %s:%s took %.3f s", *told)

    def _hang_up(self, connection: SocketConnection, route: HandlerRoute, error: BaseException) -> None:
        if not isinstance(error, ConnectionAbortedError):  # which the handler has logged
            name = route.api.name
            _logger.error("closed the connection of %s: %s could not be answered: %s", connection, name, _told(error))
        connection.close()

    def _start(
        self, pending: _LaterAnswer, request: Request, work: Coroutine[Any, Any, Response | Deferred | None]
    ) -> None:
        async def run() -> None:
            try:
                response: Response | Deferred | Exception | None = await work
            except asyncio.CancelledError as error:
                # The broker stops, or what the handler awaited was cancelled.
                if self._is_closed:
                    pending.connection.close()
                    raise
                pending.hang_up(error)
                return
            except Exception as error:
                response = self._failure(pending.route, request, error)
            if isinstance(response, Exception):
                pending.hang_up(response)
            elif isinstance(response, Deferred):
                pending.wait_for(response)
            else:
                pending.answer(response)

        task = asyncio.get_running_loop().create_task(run(), name=f"{pending.route.api.name} handler")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancels the handlers that are still running."""
        self._is_closed = True
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


class _LaterAnswer(Slot):
    """A request that is answered later."""

    __slots__ = ("connection", "correlation_id", "deferred", "dispatcher", "route", "size", "started_s")

    def __init__(
        self,
        dispatcher: Dispatcher,
        connection: SocketConnection,
        route: HandlerRoute,
        correlation_id: int,
        size: int,
        started_s: float,
    ) -> None:
        self.chunks = None
        self.dispatcher = dispatcher
        self.connection = connection
        self.route = route
        self.correlation_id = correlation_id
        self.size = size
        self.started_s = started_s
        self.deferred: Deferred | None = None

    def connection_closed(self) -> None:
        """Cancels an operation that only waits. A coroutine runs to its end: its changes must not stop halfway."""
        if self.deferred is not None:
            self.deferred.cancel()

    def wait_for(self, deferred: Deferred) -> None:
        if self.connection.is_closed:  # while a coroutine was running
            deferred.cancel()
            return
        self.deferred = deferred
        deferred.when_answered(self.answer)

    def answer(self, response: Response | EncodedResponse | None) -> None:
        """Never raises: an answer that cannot be encoded closes the connection."""
        route = self.route
        try:
            connection = self.connection
            chunks = self.dispatcher._frame(
                connection, route, self.correlation_id, response, self.size, self.started_s, route.wait_s
            )
            connection.fill(self, chunks)
        except Exception as error:
            self.hang_up(error)

    def hang_up(self, error: BaseException) -> None:
        self.dispatcher._hang_up(self.connection, self.route, error)


def frame_of(route: HandlerRoute, correlation_id: int, response: Response | EncodedResponse) -> tuple[int, list[Chunk]]:
    """The size of the answer's frame, and its chunks."""
    head = route.answer_head
    if isinstance(response, EncodedResponse):
        size = head.size + len(response)
        return size, [head.pack(size - SIZE_BYTES, correlation_id) + response]
    parts = encode_parts(response, route.version)
    size = head.size + sum(map(len, parts))
    if size - SIZE_BYTES > _FRAME_MAX:
        raise InvalidValueError(f"a response of {size} bytes does not fit a 32-bit frame size", message=route.api.name)
    parts.insert(0, head.pack(size - SIZE_BYTES, correlation_id))
    return size, [b"".join(parts)] if size < JOIN_BELOW_BYTES else join_parts(parts)


def _told(error: BaseException) -> str:
    """Only the message for errors with messages for people."""
    return str(error) if isinstance(error, (ProtocolError, BrokerError, ConnectionError)) else repr(error)


def _shown(request: object) -> str:
    """The request, shortened for the log. It may have views of a frame that is gone."""
    try:
        shown = repr(request)
    except Exception as error:
        return f"a {type(request).__name__} that cannot be shown ({error!r})"
    return shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}… ({len(shown)} characters)"
