"""One connection to one ZooKeeper server: requests out, answers and events in, in order.

ZooKeeper answers in the order of the requests, so the oldest request that waits gets the next answer. Belongs to one
loop. When it breaks, everything that waits fails with `ConnectionLossError`, and `lost` is called once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ottla.base.coordination import ConnectionLossError, CoordinationError, EventKind, WatchEvent
from ottla.zookeeper.protocol.jute import JuteError, JuteReader, JuteWriter, Record
from ottla.zookeeper.protocol.messages import (
    NOTIFICATION_XID,
    PING_XID,
    ConnectRequest,
    ConnectResponse,
    OpCode,
    ReplyHeader,
    RequestHeader,
    WatcherEvent,
)

_SIZE_BYTES: Final = 4
_MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""Of a list of very many children; a larger one is not ZooKeeper's."""
_NO_PASSWORD: Final = bytes(16)

Answered = Callable[[ReplyHeader, JuteReader], None]
"""Called on the loop in the order of the answers; the reader stands behind the header."""


@dataclass(frozen=True, slots=True)
class SessionToken:
    """What a client needs to come back to its session."""

    session_id: int = 0
    password: bytes = _NO_PASSWORD


@dataclass(slots=True)
class _Waiting:
    xid: int
    path: str
    answered: Answered
    failed: Callable[[CoordinationError], None]


class ZooKeeperConnection:
    """Use `connect`."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        response: ConnectResponse,
        on_event: Callable[[WatchEvent], None],
        lost: Callable[[ZooKeeperConnection], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self.token = SessionToken(response.session_id, response.password or _NO_PASSWORD)
        self.timeout_ms = response.timeout_ms
        """What the server granted; 0 if it does not know the session."""
        self.last_zxid = 0
        self._on_event = on_event
        self._lost = lost
        self._waiting: deque[_Waiting] = deque()
        self._unsent: list[bytes] = []
        self._last_xid = 0
        self._loop = asyncio.get_running_loop()
        self._last_heard_s = self._loop.time()
        self._last_sent_s = self._loop.time()
        self._is_closed = False
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def connect(
        cls,
        server: tuple[str, int],
        token: SessionToken,
        timeout_ms: int,
        seen_zxid: int,
        on_event: Callable[[WatchEvent], None],
        lost: Callable[[ZooKeeperConnection], None],
    ) -> ZooKeeperConnection:
        """Raises OSError or EOFError if there is no server, or it refuses. Look at `timeout_ms`, then `start`."""
        reader, writer = await asyncio.open_connection(*server, limit=2**20)
        try:
            request = JuteWriter()
            ConnectRequest(0, seen_zxid, timeout_ms, token.session_id, token.password).write(request)
            request.boolean(False)
            writer.write(request.frame())
            answer = JuteReader(await _frame(reader))
            response = ConnectResponse.read(answer) if answer.left > _OLD_RESPONSE_BYTES else _old_response(answer)
        except BaseException:
            writer.transport.abort()
            raise
        return cls(reader, writer, response, on_event, lost)

    def start(self) -> None:
        self._tasks = [self._loop.create_task(self._receive()), self._loop.create_task(self._keep_alive())]

    def request(
        self,
        operation: OpCode,
        body: Record | bytes | None,
        path: str,
        answered: Answered,
        failed: Callable[[CoordinationError], None],
        xid: int | None = None,
    ) -> None:
        """Sends in this turn of the loop; `answered` or `failed` is called later, never from here."""
        if self._is_closed or self._writer.transport.is_closing():
            self._loop.call_soon(failed, ConnectionLossError(path, "the connection to ZooKeeper is closed"))
            return
        if xid is None:
            self._last_xid = xid = self._last_xid % 0x7FFF_FFFF + 1
        writer = JuteWriter()
        RequestHeader(xid, operation).write(writer)
        if isinstance(body, Record):
            body.write(writer)
        elif body is not None:
            writer.raw(body)
        self._waiting.append(_Waiting(xid, path, answered, failed))
        self._write(writer.frame())

    def _write(self, frame: bytes) -> None:
        """Frames of one turn of the loop leave together: ten thousand nodes are read at once."""
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(frame)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        # Of a transport that is closing, `_receive` learns soon, and `drop` tells those who wait.
        if not self._is_closed and not self._writer.transport.is_closing():
            self._last_sent_s = self._loop.time()
            self._writer.write(b"".join(unsent))

    def _ping(self) -> None:
        writer = JuteWriter()
        RequestHeader(PING_XID, OpCode.PING).write(writer)
        self._write(writer.frame())

    async def close(self) -> bool:
        """Ends the session, if the server still answers: then its ephemeral nodes are gone, and this is true."""
        ended: asyncio.Future[bool] = self._loop.create_future()

        def end(has_ended: bool) -> None:
            if not ended.done():
                ended.set_result(has_ended)

        self.request(OpCode.CLOSE_SESSION, None, "/", lambda *_: end(True), lambda _: end(False))
        try:
            return await asyncio.wait_for(ended, timeout=2)
        except TimeoutError:
            return False
        finally:
            self.drop("the client was closed")

    def drop(self, reason: str) -> None:
        """Gives the connection up; the session may go on by another."""
        if self._is_closed:
            return
        self._is_closed = True
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self._writer.transport.abort()
        while self._waiting:
            waiting = self._waiting.popleft()
            waiting.failed(ConnectionLossError(waiting.path, f"the connection to ZooKeeper was lost: {reason}"))
        self._lost(self)

    # --- in the background ------------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        reason = "the server closed it"
        try:
            while True:
                frame = await _frame(self._reader)
                self._last_heard_s = self._loop.time()
                self._handle(frame)
        except (OSError, EOFError) as error:
            reason = str(error) or reason
        except JuteError as error:
            reason = f"the server sent what cannot be read: {error}"
        finally:
            self.drop(reason)

    def _handle(self, frame: bytes) -> None:
        reader = JuteReader(frame)
        header = ReplyHeader.read(reader)
        if header.xid == NOTIFICATION_XID:
            event = WatcherEvent.read(reader)
            self._on_event(WatchEvent(_event_kind(event.event), event.path))
            return
        if header.xid == PING_XID:  # may overtake the answers of requests
            return
        if not self._waiting or self._waiting[0].xid != header.xid:
            raise JuteError(f"an answer to request {header.xid}, which is not the next one")
        self.last_zxid = max(self.last_zxid, header.zxid)
        self._waiting.popleft().answered(header, reader)

    async def _keep_alive(self) -> None:
        """Heard of nothing for two thirds of the timeout, the server counts as gone: another one may still be reached
        within the timeout."""
        timeout_s = self.timeout_ms / 1000
        while True:
            now_s = self._loop.time()
            if self._writer.transport.is_closing():  # uvloop's raises when something is written
                self.drop("the server closed it")
                return
            if now_s - self._last_heard_s > timeout_s * 2 / 3:
                self.drop(f"nothing was heard from the server for {now_s - self._last_heard_s:.1f} s")
                return
            if now_s - self._last_sent_s >= timeout_s / 3:
                self._ping()
            await asyncio.sleep(timeout_s / 6)


_OLD_RESPONSE_BYTES: Final = 4 + 4 + 8 + 4 + 16


def _old_response(answer: JuteReader) -> ConnectResponse:
    """Of a server that does not know read-only clients."""
    return ConnectResponse(answer.int32(), answer.int32(), answer.int64(), answer.buffer(), False)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(_SIZE_BYTES), "big", signed=True)
    if not 0 <= size <= _MAX_ANSWER_BYTES:
        raise JuteError(f"a frame of {size} bytes was announced")
    return await reader.readexactly(size)


def _event_kind(number: int) -> EventKind:
    try:
        return EventKind(number)
    except ValueError:
        raise JuteError(f"a watch event of kind {number}, which is not known") from None
