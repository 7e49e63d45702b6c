"""The server without I/O: frames of connections in, effects out, in the order in which they are to be done.

Everything happens within a commit of the tree's file. Take the effects of each step with `take_effects`, and do them
only after that commit; if it fails, call `roll_back` and do none of them. Events of a write stand before its answer and
before every later answer, so no client sees a newer state before it was told of the change.

The broker in the same process needs no frames: it reads from `file` and writes with `write` and `delete_trees`. Belongs
to the thread that owns the tree.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from ottla.base.clock import Clock
from ottla.base.coordination import ANY_VERSION, CoordinationError, WatchEvent
from ottla.zookeeper.protocol.jute import JuteError, JuteReader, JuteWriter, Record
from ottla.zookeeper.protocol.messages import (
    NOTIFICATION_XID,
    SYNC_CONNECTED,
    ConnectRequest,
    ConnectResponse,
    OpCode,
    ReplyHeader,
    RequestHeader,
    WatcherEvent,
    ZooKeeperCode,
)
from ottla.zookeeper.server.multi import multi, multi_read
from ottla.zookeeper.server.operations import OPERATIONS, Asked, RefusedError, code_of
from ottla.zookeeper.server.sessions import PASSWORD_BYTES, Session, SessionTable
from ottla.zookeeper.server.undo import UndoLog
from ottla.zookeeper.server.watches import ConnectionId, WatchTable
from ottla.zookeeper.transaction import Transaction
from ottla.zookeeper.tree_file import TreeFile

_logger = logging.getLogger(__name__)

T = TypeVar("T")

_OPERATIONS: Final = {**OPERATIONS, OpCode.MULTI: multi, OpCode.MULTI_READ: multi_read}
_NO_PASSWORD: Final = bytes(PASSWORD_BYTES)


@dataclass(frozen=True, slots=True)
class Send:
    """A whole frame, with its size."""

    connection: ConnectionId
    frame: bytes


@dataclass(frozen=True, slots=True)
class Close:
    """After everything before it was sent."""

    connection: ConnectionId


@dataclass(frozen=True, slots=True)
class Tell:
    """An event for a watch of the broker in this process."""

    event: WatchEvent


Effect = Send | Close | Tell


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The timeouts that clients may ask for: by default those of an ensemble with a tick of two seconds."""

    min_timeout_ms: int = 4_000
    max_timeout_ms: int = 40_000


@dataclass(eq=False, slots=True)
class Connection:
    """What the server knows of a client. `session` is None until it has connected."""

    connection_id: ConnectionId
    address: str
    session: Session | None = None
    received: int = 0
    sent: int = 0


LOCAL: Final[ConnectionId] = 0
"""The broker in this process."""


class ServerCore:
    def __init__(self, file: TreeFile, clock: Clock, settings: ServerSettings | None = None) -> None:
        self.file = file
        self.clock = clock
        self._settings = settings or ServerSettings()
        self._undo_log = UndoLog()
        self.watches = WatchTable(self._undo_log)
        self.sessions = SessionTable(self._undo_log, file.sessions(), clock.monotonic_s())
        self.connections: dict[ConnectionId, Connection] = {}
        self._effects: list[Effect] = []
        self.received = 0
        self.sent = 0

    # --- commits ----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """The commit is done."""
        self._undo_log.settle()

    def roll_back(self) -> None:
        """The commit failed: watches and sessions are as before it. Its effects must not be done."""
        self._undo_log.roll_back()
        self._effects.clear()

    # --- connections ------------------------------------------------------------------------------------------------

    def opened(self, connection_id: ConnectionId, address: str) -> None:
        self.connections[connection_id] = Connection(connection_id, address)

    def closed(self, connection_id: ConnectionId) -> None:
        """The session goes on until its timeout."""
        connection = self.connections.pop(connection_id, None)
        self.watches.forget(connection_id)
        if connection and connection.session and connection.session.connection == connection_id:
            connection.session.connection = None

    def handle(self, connection_id: ConnectionId, frame: bytes) -> None:
        """One frame without its size. A connection that was closed meanwhile is passed over."""
        connection = self.connections.get(connection_id)
        if connection is None:
            return
        connection.received += 1
        self.received += 1
        try:
            if connection.session is None:
                self._connect(connection, frame)
            else:
                self._serve(connection, connection.session, frame)
        except JuteError as error:
            _logger.warning("Closing the ZooKeeper connection from %s: %s", connection.address, error)
            self._effects.append(Close(connection_id))

    def _connect(self, connection: Connection, frame: bytes) -> None:
        reader = JuteReader(frame)
        request = ConnectRequest.read(reader)
        knows_read_only = reader.left > 0
        if request.last_zxid_seen > self.file.last_zxid:
            _logger.warning(
                "Refusing the ZooKeeper client at %s: it has seen zxid %#x, and this server is at %#x. Was its data"
                " replaced by an older copy?",
                connection.address,
                request.last_zxid_seen,
                self.file.last_zxid,
            )
            self._effects.append(Close(connection.connection_id))
            return
        session = self._session_for(connection, request)
        if session is None:
            response = ConnectResponse(0, 0, 0, _NO_PASSWORD, False)
        else:
            connection.session = session
            self._undo_log.note(lambda: setattr(connection, "session", None))
            response = ConnectResponse(0, session.timeout_ms, session.session_id, session.password, False)
        writer = JuteWriter()
        response.write(writer)
        # Clients older than ZooKeeper 3.4 do not expect the last byte.
        self._send(connection, writer.frame() if knows_read_only else _without_last_byte(writer.body()))
        if session is None:
            self._effects.append(Close(connection.connection_id))

    def _session_for(self, connection: Connection, request: ConnectRequest) -> Session | None:
        now_s = self.clock.monotonic_s()
        settings = self._settings
        timeout_ms = min(max(request.timeout_ms, settings.min_timeout_ms), settings.max_timeout_ms)
        if request.session_id == 0:
            session = self.sessions.begin(self.new_session_id(), timeout_ms, now_s)
            self.sessions.attach(session, connection.connection_id, timeout_ms, now_s)
        else:
            found = self.sessions.find(request.session_id)
            if found is None or found.password != request.password:
                return None
            session = found
            before = self.sessions.attach(session, connection.connection_id, timeout_ms, now_s)
            if before is not None:
                self._effects.append(Close(before))
        self.file.keep_session(session.stored())
        return session

    def _serve(self, connection: Connection, session: Session, frame: bytes) -> None:
        if session.connection != connection.connection_id or self.sessions.find(session.session_id) is not session:
            return  # the session has moved to another connection, or is over: this connection is being closed
        self.sessions.touch(session, self.clock.monotonic_s())
        reader = JuteReader(frame)
        header = RequestHeader.read(reader)
        operation = _OPERATIONS.get(header.operation)
        if header.operation == OpCode.CLOSE_SESSION:
            self._end(session)
            self._reply(connection, header.xid, ZooKeeperCode.OK)
            self._effects.append(Close(connection.connection_id))
        elif operation is None:
            self._reply(connection, header.xid, ZooKeeperCode.UNIMPLEMENTED)
        else:
            try:
                body = operation(Asked(self, connection, session, reader))
            except RefusedError as error:
                self._reply(connection, header.xid, error.code)
            except (CoordinationError, ValueError) as error:
                self._reply(connection, header.xid, code_of(error))
                if isinstance(error, JuteError):
                    raise
            else:
                self._reply(connection, header.xid, ZooKeeperCode.OK, body)

    # --- sessions ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Removes ephemeral nodes whose sessions are not known: those of a broker that was in this process before."""
        for owner in self.file.owners():
            if self.sessions.find(owner) is None:
                self.remove_owned(owner)

    def expire(self) -> None:
        """Ends the sessions whose time is over. Call it at `sessions.next_look_s`."""
        for session in self.sessions.expired(self.clock.monotonic_s()):
            _logger.info("Session %#x has expired after %d ms", session.session_id, session.timeout_ms)
            connection = session.connection
            self._end(session)
            if connection is not None:
                self._effects.append(Close(connection))

    def _end(self, session: Session) -> None:
        self.sessions.end(session)
        self.file.forget_session(session.session_id)
        self.remove_owned(session.session_id)

    def new_session_id(self) -> int:
        """Also for the session of this process, which is not kept: it ends with the process."""
        return self.sessions.new_id(self.clock.now_ms())

    def remove_owned(self, session_id: int) -> None:
        """Removes the ephemeral nodes of a session."""
        paths = self.file.owned_by(session_id)

        def remove_all(transaction: Transaction) -> None:
            for path in paths:
                transaction.delete(path, ANY_VERSION)

        if paths:
            self.write(paths, remove_all, session_id)

    # --- the tree ---------------------------------------------------------------------------------------------------

    def write(self, paths: Collection[str], act: Callable[[Transaction], T], session_id: int) -> T:
        answer, events = self.file.write(paths, act, self.clock.now_ms(), session_id)
        self._tell(events)
        return answer

    def delete_trees(self, paths: Collection[str]) -> None:
        """Nodes and all below them, as far as they are there."""
        self._tell(self.file.delete_trees(paths, self.clock.now_ms()))

    def tell_one(self, connection: Connection, event: WatchEvent) -> None:
        """What a client missed while it was not connected."""
        self._send(connection, _event_frame(event))

    def _tell(self, events: Iterable[WatchEvent]) -> None:
        for event in events:
            told = self.watches.told(event)
            frame = _event_frame(event) if told else b""
            for connection_id in told:
                if connection_id == LOCAL:
                    self._effects.append(Tell(event))
                elif connection := self.connections.get(connection_id):
                    self._send(connection, frame)

    # --- answers ----------------------------------------------------------------------------------------------------

    def _reply(self, connection: Connection, xid: int, code: int, body: Record | bytes | None = None) -> None:
        writer = JuteWriter()
        ReplyHeader(xid, self.file.last_zxid, code).write(writer)
        if isinstance(body, Record):
            body.write(writer)
        elif body is not None:
            writer.raw(body)
        self._send(connection, writer.frame())

    def _send(self, connection: Connection, frame: bytes) -> None:
        connection.sent += 1
        self.sent += 1
        self._effects.append(Send(connection.connection_id, frame))

    def take_effects(self) -> list[Effect]:
        """Those that were not taken yet."""
        effects, self._effects = self._effects, []
        return effects


def _event_frame(event: WatchEvent) -> bytes:
    writer = JuteWriter()
    ReplyHeader(NOTIFICATION_XID, -1, ZooKeeperCode.OK).write(writer)
    WatcherEvent(event.kind, SYNC_CONNECTED, event.path).write(writer)
    return writer.frame()


def _without_last_byte(body: bytes) -> bytes:
    return (len(body) - 1).to_bytes(4, "big") + body[:-1]
