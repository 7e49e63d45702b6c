"""Large frames that compete for memory, in made-up time: each is received in the end, or its connection is closed."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from models.step_loop import StepLoop
from ottla.net.core import SMALL_FRAME
from ottla.net.limits import Limits
from ottla.net.memory_queue import PATIENCE_S, STALLED_S
from ottla.net.server import Server
from ottla.net.socket_connection import MEMORY, SocketConnection
from support.servers import Counters, echo, framed

BUDGET = 16 * SMALL_FRAME
LARGE = framed(bytes(12 * SMALL_FRAME))
"""Two of them half received take more than the budget."""


class Serving:
    def __init__(self) -> None:
        self.loop = StepLoop()
        self.complaints: list[str] = []
        limits = Limits(queued_bytes=BUDGET)
        self.counters = Counters()
        self.server = Server(self.loop, echo, limits, self.counters, lambda _, what: self.complaints.append(what))
        self.sockets: list[socket.socket] = []

    def connect(self) -> tuple[SocketConnection, socket.socket]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self.sockets.append(theirs)
        return self.server.adopt(ours, ("peer", 1), "PLAINTEXT"), theirs

    def send(self, sock: socket.socket, data: bytes) -> bytes:
        """What the server takes of it; returns the rest."""
        sent = -1
        while sent and data:
            try:
                sent = sock.send(data)
            except BlockingIOError:
                sent = 0
            data = data[sent:]
            self.loop.turn(3)
        return data

    def receive(self, sock: socket.socket) -> bytes:
        received = bytearray()
        while True:
            try:
                data = sock.recv(1 << 20)
            except BlockingIOError:
                return bytes(received)
            received += data
            self.loop.turn(2)

    def pass_time(self, seconds: float, each: Callable[[], object] = lambda: None) -> None:
        until_s = self.loop.now_s + seconds
        while self.loop.now_s < until_s:
            each()
            self.loop.advance(0.1)


@pytest.fixture
def serving() -> Iterator[Serving]:
    with _serving() as made:
        yield made


@contextmanager
def _serving() -> Iterator[Serving]:
    made = Serving()
    try:
        yield made
    finally:
        made.server.close()
        for sock in made.sockets:
            sock.close()
        made.loop.turn()
        made.loop.close()


def test_half_received_frames_that_wait_for_each_other_are_received_one_after_the_other(serving: Serving) -> None:
    peers = [serving.connect() for _ in range(4)]
    first = 3 * SMALL_FRAME
    for _, sock in peers:
        assert not serving.send(sock, LARGE[:100])
        assert not serving.send(sock, LARGE[100:first])
    left = [serving.send(sock, LARGE[first:]) for _, sock in peers]
    assert all(left)
    assert all(connection.held_by == MEMORY for connection, _ in peers)
    most = 0
    received = [b""] * len(peers)

    def each() -> None:
        nonlocal most
        for number, (_, sock) in enumerate(peers):
            left[number] = serving.send(sock, left[number])
            received[number] += serving.receive(sock)
            most = max(most, serving.server.budget.used)

    serving.pass_time(8 * PATIENCE_S, each)
    assert received == [LARGE] * len(peers)
    assert most <= BUDGET + len(LARGE)
    assert not serving.complaints
    serving.pass_time(1)
    for connection, _ in peers:
        connection.release_memory()
    assert serving.server.budget.used == 0
    assert not serving.server.budget.is_short


def hold_all_memory(serving: Serving) -> tuple[SocketConnection, socket.socket, bytes]:
    connection, sock = serving.connect()
    rest = serving.send(sock, framed(bytes(15 * SMALL_FRAME))[: -SMALL_FRAME // 2])
    assert connection.held_by is None
    assert connection.incoming.reserved > BUDGET - 4 * SMALL_FRAME
    return connection, sock, rest


def test_a_peer_that_stalls_is_closed_when_others_wait_for_its_memory_and_only_then(serving: Serving) -> None:
    stalled, _, _ = hold_all_memory(serving)
    serving.pass_time(2 * STALLED_S)
    assert not stalled.is_closed
    waiting, sock = serving.connect()
    rest = serving.send(sock, LARGE)
    assert waiting.held_by == MEMORY
    serving.pass_time(PATIENCE_S / 2)
    assert not stalled.is_closed
    # The one that waits may overdraw the budget: it does not have to wait until the other is closed.
    received = bytearray()

    def each() -> None:
        nonlocal rest
        rest = serving.send(sock, rest)
        received.extend(serving.receive(sock))

    serving.pass_time(PATIENCE_S, each)
    assert received == LARGE
    assert not stalled.is_closed


def test_stalled_connections_give_up_memory_to_those_that_send(serving: Serving) -> None:
    stalled = hold_all_memory(serving)[0]
    favoured, sock = serving.connect()
    serving.send(sock, LARGE[: 6 * SMALL_FRAME])  # it waits, is the first to overdraw, and stops then, too
    honest, honest_sock = serving.connect()
    rest = serving.send(honest_sock, LARGE)
    received = bytearray()

    def each() -> None:
        nonlocal rest
        rest = serving.send(honest_sock, rest)
        received.extend(serving.receive(honest_sock))

    serving.pass_time(STALLED_S + 3 * PATIENCE_S, each)
    assert received == LARGE
    assert not honest.is_closed
    assert stalled.is_closed
    assert serving.counters.refused[:1] == ["stalled"]
    assert "its request stalled after" in serving.complaints[0]
    assert favoured.is_closed or favoured.held_by is None


def test_a_peer_that_sends_a_byte_now_and_then_has_stalled(serving: Serving) -> None:
    dripping, drip, _ = hold_all_memory(serving)
    other, sock = serving.connect()
    serving.send(sock, LARGE[: 6 * SMALL_FRAME])
    third, third_sock = serving.connect()
    serving.send(third_sock, LARGE)

    def each() -> None:
        if not dripping.is_closed:
            serving.send(drip, b"x")

    serving.pass_time(STALLED_S + PATIENCE_S, each)
    assert dripping.is_closed
    assert not third.is_closed or not other.is_closed


def test_a_failed_allocation_closes_only_its_connection(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hold_all_memory(serving)
    waiting = [serving.connect() for _ in range(2)]
    for _, sock in waiting:
        serving.send(sock, LARGE)
    first, second = (connection for connection, _ in waiting)

    def refuse(_incoming: object) -> None:
        raise MemoryError

    retry = type(first.incoming).retry
    monkeypatch.setattr(
        type(first.incoming), "retry", lambda self: refuse(self) if self is first.incoming else retry(self)
    )
    serving.pass_time(0.2)
    assert first.is_closed
    assert not second.is_closed
    serving.pass_time(PATIENCE_S)
    assert second.held_by is None
    assert "a request could not be handled" in caplog.text
