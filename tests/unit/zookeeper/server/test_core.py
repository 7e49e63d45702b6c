"""The server's core under a clock turned by hand: sessions, watches, and commits that fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.coordination import EventKind, WatchEvent
from ottla.testing.manual_clock import ManualClock
from ottla.zookeeper.protocol.jute import JuteReader, JuteWriter, Record
from ottla.zookeeper.protocol.messages import (
    OPEN_ACL,
    AddWatchRequest,
    ConnectRequest,
    ConnectResponse,
    CreateRequest,
    DataResponse,
    OpCode,
    ReplyHeader,
    RequestHeader,
    SetDataRequest,
    VersionedPathRequest,
    WatchedPathRequest,
    WatcherEvent,
    WatchMode,
    WatchType,
    WatchTypeRequest,
    ZooKeeperCode,
)
from ottla.zookeeper.server.core import Close, Effect, Send, ServerCore
from ottla.zookeeper.tree_file import TreeFile

TIMEOUT_MS = 10_000


class Server:
    """Commits after each frame, and keeps what connections were sent."""

    def __init__(self, place: Path) -> None:
        self.clock = ManualClock()
        self.file = TreeFile.open(place / "tree.db")
        self.core = ServerCore(self.file, self.clock)
        self.sent: dict[int, list[bytes]] = {}
        self.closed: list[int] = []

    def restart(self) -> None:
        self.core = ServerCore(self.file, self.clock)
        with self.file.commit():
            self.core.start()
        self.core.settle()

    def frame(self, connection: int, body: bytes) -> None:
        with self.file.commit():
            self.core.handle(connection, body)
        self.core.settle()
        self.do(self.core.take_effects())

    def do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.sent.setdefault(effect.connection, []).append(effect.frame[4:])
            elif isinstance(effect, Close):
                self.closed.append(effect.connection)
                self.core.closed(effect.connection)

    def connect(
        self, connection: int, session_id: int = 0, password: bytes = bytes(16), seen_zxid: int = 0
    ) -> ConnectResponse | None:
        self.core.opened(connection, f"127.0.0.1:{connection}")
        writer = JuteWriter()
        ConnectRequest(0, seen_zxid, TIMEOUT_MS, session_id, password).write(writer)
        writer.boolean(False)
        self.frame(connection, writer.body())
        answers = self.sent.pop(connection, [])
        return ConnectResponse.read(JuteReader(answers[0])) if answers else None

    def send(self, connection: int, operation: int, request: Record | None = None, xid: int = 1) -> None:
        writer = JuteWriter()
        RequestHeader(xid, operation).write(writer)
        if request is not None:
            request.write(writer)
        self.frame(connection, writer.body())

    def ask(
        self, connection: int, operation: int, request: Record | None = None
    ) -> tuple[int, JuteReader, list[WatchEvent]]:
        """The code and the rest of the answer, and the events that came before it."""
        self.send(connection, operation, request)
        *events, answer = self.sent.pop(connection)
        reader = JuteReader(answer)
        return ReplyHeader.read(reader).error, reader, [event_of(each) for each in events]

    def create(self, connection: int, path: str, flags: int = 0) -> int:
        return self.ask(connection, OpCode.CREATE, CreateRequest(path, b"data", OPEN_ACL, flags))[0]

    def expire(self) -> None:
        with self.file.commit():
            self.core.expire()
        self.core.settle()
        self.do(self.core.take_effects())

    def events(self, connection: int) -> list[WatchEvent]:
        return [event_of(each) for each in self.sent.pop(connection, [])]


def event_of(frame: bytes) -> WatchEvent:
    reader = JuteReader(frame)
    assert ReplyHeader.read(reader).xid == -1
    event = WatcherEvent.read(reader)
    return WatchEvent(EventKind(event.event), event.path)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.file.close()


def connected(server: Server, connection: int) -> ConnectResponse:
    response = server.connect(connection)
    assert response is not None
    return response


# --- sessions -------------------------------------------------------------------------------------------------------


def test_a_timeout_is_granted_within_limits(server: Server) -> None:
    assert connected(server, 1).timeout_ms == TIMEOUT_MS
    server.core.opened(2, "127.0.0.1:2")
    for asked, granted in ((1, 4_000), (10**6, 40_000)):
        writer = JuteWriter()
        ConnectRequest(0, 0, asked, 0, bytes(16)).write(writer)
        server.core.opened(asked, "127.0.0.1:3")
        server.frame(asked, writer.body())
        (answer,) = server.sent.pop(asked)
        assert len(answer) == 36, "a client that does not know read-only servers expects one byte less"
        reader = JuteReader(answer + b"\x00")
        assert ConnectResponse.read(reader).timeout_ms == granted


def test_a_session_expires_after_silence(server: Server) -> None:
    connected(server, 1)
    connected(server, 2)
    server.create(1, "/mine", flags=1)
    server.ask(2, OpCode.EXISTS, WatchedPathRequest("/mine", True))
    server.clock.advance_ms(6_000)
    server.ask(2, OpCode.PING)
    server.clock.advance_ms(4_000)
    server.expire()
    assert server.closed == [1]
    assert server.events(2) == [WatchEvent(EventKind.DELETED, "/mine")]
    assert server.file.read("/mine") is None
    server.clock.advance_ms(6_000)
    server.expire()
    assert server.closed == [1, 2]
    assert len(server.core.sessions) == 0
    assert server.core.sessions.next_look_s is None


def test_a_stall_of_the_server_expires_nobody(server: Server) -> None:
    connected(server, 1)
    server.clock.advance_ms(60_000)
    server.expire()
    assert server.closed == []
    server.clock.advance_ms(TIMEOUT_MS)
    server.expire()
    assert server.closed == [1]


def test_a_session_moves_to_a_new_connection(server: Server) -> None:
    first = connected(server, 1)
    server.create(1, "/mine", flags=1)
    again = server.connect(2, first.session_id, first.password or b"")
    assert again is not None
    assert (again.session_id, again.timeout_ms) == (first.session_id, TIMEOUT_MS)
    assert server.closed == [1]
    assert server.ask(2, OpCode.GET_DATA, WatchedPathRequest("/mine", False))[0] == ZooKeeperCode.OK
    server.send(1, OpCode.CLOSE_SESSION)
    assert server.file.read("/mine") is not None, "what the old connection still says counts no more"


def test_a_session_needs_its_password(server: Server) -> None:
    first = connected(server, 1)
    for session_id, password in ((first.session_id, bytes(16)), (12345, first.password or b"")):
        refused = server.connect(2, session_id, password)
        assert refused is not None
        assert (refused.session_id, refused.timeout_ms) == (0, 0)
        assert server.closed.pop() == 2


def test_a_client_that_has_seen_more_is_refused(server: Server) -> None:
    connected(server, 1)
    server.create(1, "/a")
    assert server.connect(2, seen_zxid=server.file.last_zxid) is not None
    assert server.connect(3, seen_zxid=server.file.last_zxid + 1) is None
    assert server.closed == [3]


def test_a_restart_keeps_sessions_and_gives_them_their_whole_timeout(server: Server) -> None:
    first = connected(server, 1)
    server.create(1, "/mine", flags=1)
    server.clock.advance_ms(9_000)
    server.restart()
    server.clock.advance_ms(9_000)
    server.expire()
    again = server.connect(2, first.session_id, first.password or b"")
    assert again is not None
    assert again.session_id == first.session_id
    assert server.file.read("/mine") is not None


def test_a_restart_removes_what_nobody_owns(server: Server) -> None:
    with server.file.commit():
        server.core.write(["/lost"], lambda transaction: transaction.create("/lost", None, ephemeral=True), 77)
    server.core.settle()
    server.restart()
    assert server.file.read("/lost") is None


def test_closing_ends_the_session_at_once(server: Server) -> None:
    connected(server, 1)
    connected(server, 2)
    server.create(1, "/mine", flags=1)
    server.ask(2, OpCode.GET_CHILDREN, WatchedPathRequest("/", True))
    assert server.ask(1, OpCode.CLOSE_SESSION)[0] == ZooKeeperCode.OK
    assert server.closed == [1]
    assert server.events(2) == [WatchEvent(EventKind.CHILDREN, "/")]


def test_what_follows_the_end_of_a_session_is_skipped(server: Server) -> None:
    """It was on its way already: nobody would remove its ephemeral nodes."""
    connected(server, 1)
    writer = JuteWriter()
    RequestHeader(2, OpCode.CLOSE_SESSION).write(writer)
    create = JuteWriter()
    RequestHeader(3, OpCode.CREATE).write(create)
    CreateRequest("/late", None, OPEN_ACL, 1).write(create)
    with server.file.commit():
        for body in (writer.body(), create.body(), writer.body()):
            server.core.handle(1, body)
    server.core.settle()
    server.do(server.core.take_effects())
    assert server.file.read("/late") is None
    assert len(server.sent[1]) == 1


# --- requests -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [4, 5, 6, -1, 99])
def test_containers_and_nodes_with_a_time_to_live_are_refused(server: Server, flags: int) -> None:
    connected(server, 1)
    assert server.create(1, "/a", flags) == ZooKeeperCode.UNIMPLEMENTED


@pytest.mark.parametrize("path", ["", "a", "/a/", "/a//b", "/..", "/a\x00"])
def test_wrong_paths_are_refused(server: Server, path: str) -> None:
    connected(server, 1)
    assert server.create(1, path) == ZooKeeperCode.BAD_ARGUMENTS
    for operation in (OpCode.EXISTS, OpCode.GET_DATA, OpCode.GET_CHILDREN2):
        assert server.ask(1, operation, WatchedPathRequest(path, True))[0] == ZooKeeperCode.BAD_ARGUMENTS


def test_an_unknown_operation_is_refused(server: Server) -> None:
    connected(server, 1)
    assert server.ask(1, 99)[0] == ZooKeeperCode.UNIMPLEMENTED
    assert server.closed == []


def test_a_broken_request_is_answered_and_ends_the_connection(server: Server) -> None:
    connected(server, 1)
    writer = JuteWriter()
    RequestHeader(5, OpCode.GET_DATA).write(writer)
    server.frame(1, writer.body() + b"\x00\x00\x01\x00short")
    header = ReplyHeader.read(JuteReader(server.sent[1][0]))
    assert (header.xid, header.error) == (5, ZooKeeperCode.MARSHALLING_ERROR)
    assert server.closed == [1]


def test_null_is_not_empty(server: Server) -> None:
    connected(server, 1)
    for path, data in (("/null", None), ("/empty", b"")):
        server.ask(1, OpCode.CREATE, CreateRequest(path, data, OPEN_ACL, 0))
        _, reader, _ = server.ask(1, OpCode.GET_DATA, WatchedPathRequest(path, False))
        assert DataResponse.read(reader).data == data


# --- watches --------------------------------------------------------------------------------------------------------


def test_an_event_comes_before_the_answer_that_shows_it(server: Server) -> None:
    connected(server, 1)
    server.create(1, "/a")
    server.ask(1, OpCode.GET_DATA, WatchedPathRequest("/a", True))
    _, _, events = server.ask(1, OpCode.SET_DATA, SetDataRequest("/a", b"", -1))
    assert events == [WatchEvent(EventKind.CHANGED, "/a")]


def test_persistent_watches_stay(server: Server) -> None:
    connected(server, 1)
    connected(server, 2)
    server.create(1, "/a")
    server.ask(2, OpCode.ADD_WATCH, AddWatchRequest("/a", WatchMode.PERSISTENT))
    server.create(1, "/a/b")
    server.create(1, "/a/b/c")
    for _ in range(2):
        server.ask(1, OpCode.SET_DATA, SetDataRequest("/a", b"", -1))
    changed = WatchEvent(EventKind.CHANGED, "/a")
    assert server.events(2) == [WatchEvent(EventKind.CHILDREN, "/a"), changed, changed]
    remove = WatchTypeRequest("/a", WatchType.ANY)
    assert server.ask(2, OpCode.CHECK_WATCHES, remove)[0] == ZooKeeperCode.OK
    assert server.ask(2, OpCode.REMOVE_WATCHES, remove)[0] == ZooKeeperCode.OK
    assert server.ask(2, OpCode.REMOVE_WATCHES, remove)[0] == ZooKeeperCode.NO_WATCHER
    server.ask(1, OpCode.SET_DATA, SetDataRequest("/a", b"", -1))
    assert server.events(2) == []


def test_recursive_watches_cover_everything_below(server: Server) -> None:
    connected(server, 1)
    connected(server, 2)
    server.ask(2, OpCode.ADD_WATCH, AddWatchRequest("/a", WatchMode.PERSISTENT_RECURSIVE))
    for path in ("/a", "/a/b", "/a/b/c", "/ab"):
        server.create(1, path)
    server.ask(1, OpCode.DELETE, VersionedPathRequest("/a/b/c", -1))
    assert [(event.kind, event.path) for event in server.events(2)] == [
        (EventKind.CREATED, "/a"),
        (EventKind.CREATED, "/a/b"),
        (EventKind.CREATED, "/a/b/c"),
        (EventKind.DELETED, "/a/b/c"),
    ]


def test_watches_end_with_their_connection(server: Server) -> None:
    connected(server, 1)
    connected(server, 2)
    server.ask(2, OpCode.EXISTS, WatchedPathRequest("/a", True))
    server.core.closed(2)
    server.create(1, "/a")
    assert server.events(2) == []
    assert len(server.core.watches) == 0


# --- commits that fail ----------------------------------------------------------------------------------------------


def test_a_failed_commit_leaves_watches_and_sessions_as_they_were(server: Server) -> None:
    connected(server, 1)
    connected(server, 2)
    server.create(1, "/mine", flags=1)
    server.ask(2, OpCode.EXISTS, WatchedPathRequest("/mine", True))
    server.ask(2, OpCode.GET_CHILDREN, WatchedPathRequest("/", True))
    writer = JuteWriter()
    RequestHeader(9, OpCode.CLOSE_SESSION).write(writer)

    def fail() -> None:
        with server.file.commit():
            server.core.handle(1, writer.body())
            assert any(isinstance(each, Close) for each in server.core.take_effects())
            raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        fail()
    server.core.roll_back()
    assert server.core.take_effects() == []
    assert len(server.core.sessions) == 2
    assert server.ask(1, OpCode.PING)[0] == ZooKeeperCode.OK
    assert server.ask(1, OpCode.CLOSE_SESSION)[0] == ZooKeeperCode.OK
    assert server.events(2) == [WatchEvent(EventKind.DELETED, "/mine"), WatchEvent(EventKind.CHILDREN, "/")]
