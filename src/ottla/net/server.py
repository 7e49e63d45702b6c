"""Listens, accepts connections within limits, and manages them: idle time, memory, invalid frames."""

from __future__ import annotations

import errno
import logging
import select
import socket
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from ottla.net.limits import ConnectionCount, Limits, MemoryBudget
from ottla.net.memory_queue import MemoryQueue
from ottla.net.sender import AnswerSender
from ottla.net.socket_connection import UNANSWERED, SocketConnection
from ottla.wire.errors import ProtocolError

_logger = logging.getLogger(__name__)

SCRATCH_BYTES: Final = 1 << 20
_BACKLOG: Final = 1024
_ACCEPTED_AT_ONCE: Final = 64
_OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_UPKEEP_S: Final = 5.0
_HUNG_UP: Final = getattr(select, "POLLRDHUP", 0)
_HTTP_METHODS: Final = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN")
_HTTP_ANSWER: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"This port uses Kafka's protocol, not HTTP. Connect with a Kafka client.\n"
)


class ConnectionCounters(Protocol):
    """Counts connections as they open and close."""

    opened: int
    closed: int

    def count_refused(self, reason: str) -> None: ...


@dataclass(frozen=True, slots=True)
class BoundListener:
    """The address of a listener that listens; port 0 is replaced by the real port."""

    name: str
    host: str
    port: int


class Server:
    """All listeners and connections of a broker. Owned by the loop.

    `on_frame` is called with every request frame. It calls `connection.answer`, or reserves a slot and fills it later.
    The frame is valid only until it returns.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        on_frame: Callable[[SocketConnection, memoryview], None],
        limits: Limits,
        counters: ConnectionCounters,
        complain: Callable[[str, str], None],
    ) -> None:
        self.loop = loop
        self.on_frame = on_frame
        self.on_handled: Callable[[], None] = _nothing
        """Called when all frames of one receive are handled, before their answers are sent: it wakes waiting requests,
        which then need not wait for these answers."""
        self.limits = limits
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.budget = MemoryBudget(limits.queued_bytes)
        self.connections: dict[int, SocketConnection] = {}
        self._counters = counters
        self._complain = complain
        """Given an address and a message; logs it, with a rate limit."""
        self._count = ConnectionCount(limits)
        self._listening: list[tuple[socket.socket, str]] = []
        self._memory_queue = MemoryQueue(self)
        self.sender = AnswerSender(loop)
        self.held: list[SocketConnection] | None = None
        """Connections with answers to send, while answers are held back."""
        self._next_id = 0
        self._upkeep: TimerHandle | None = None

    # --- listen -------------------------------------------------------------------------------------------------------

    def listen(self, name: str, host: str, port: int) -> BoundListener:
        """Binds; `start` begins to accept connections. An empty host means all interfaces."""
        try:
            sock = _bound_socket(host, port)
        except OSError as error:
            taken = "another process uses the port. Stop it, or choose another port"
            reason = taken if error.errno == errno.EADDRINUSE else error.strerror
            raise OSError(error.errno, f"cannot listen on {host or '*'}:{port}: {reason}") from error
        self._listening.append((sock, name))
        return BoundListener(name, host, sock.getsockname()[1])

    def start(self) -> None:
        for sock, name in self._listening:
            sock.listen(_BACKLOG)
            self.loop.add_reader(sock.fileno(), self._acceptable, sock, name)
        self._upkeep = self.loop.call_later(self._upkeep_s(), self._look_after)

    def _acceptable(self, listening: socket.socket, name: str) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, peer = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _OUT_OF_DESCRIPTORS:
                    self._rest(listening, name, error)
                    return
                continue  # the client disconnected before it was accepted
            try:
                self._accept(sock, (peer[0].removeprefix("::ffff:"), peer[1]), name)
            except OSError as error:  # the client disconnected
                _logger.debug("Could not serve a connection from %s: %s", peer[0], error)
                sock.close()

    def _rest(self, listening: socket.socket, name: str, error: OSError) -> None:
        """Stops accepting for a while: retrying immediately would take all CPU time from other connections."""
        self._complain(
            "accept", f"cannot accept connections: {error.strerror}; raise the limit of open files (ulimit -n)"
        )
        self._counters.count_refused("descriptors")
        self.loop.remove_reader(listening.fileno())
        self.loop.call_later(1.0, self._accept_again, listening, name)

    def _accept_again(self, listening: socket.socket, name: str) -> None:
        if listening.fileno() >= 0:
            self.loop.add_reader(listening.fileno(), self._acceptable, listening, name)

    def _accept(self, sock: socket.socket, peer: tuple[str, int], listener: str) -> None:
        refusal = self._count.refusal(peer[0])
        if refusal is not None:
            self._complain(peer[0], f"refused a connection from {peer[0]}: {refusal}")
            self._counters.count_refused("limit")
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self.limits.receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.limits.receive_buffer_bytes)
        if self.limits.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.limits.send_buffer_bytes)
        self.adopt(sock, peer, listener)

    def adopt(self, sock: socket.socket, peer: tuple[str, int], listener: str) -> SocketConnection:
        """Serves a connected, non-blocking socket."""
        self._next_id += 1
        connection = SocketConnection(self, sock, peer, listener, self._next_id)
        self.connections[connection.connection_id] = connection
        self._count.opened(peer[0])
        self._counters.opened += 1
        return connection

    # --- what connections tell ----------------------------------------------------------------------------------------

    def closed(self, connection: SocketConnection) -> None:
        if self.connections.pop(connection.connection_id, None) is not None:
            self._memory_queue.leave(connection)
            self._count.closed(connection.address)
            self._counters.closed += 1

    def lost(self, connection: SocketConnection, error: Exception) -> None:
        if not isinstance(error, (ConnectionError, BrokenPipeError, TimeoutError)):
            self._complain(connection.address, f"closed the connection of {connection}: {str(error) or repr(error)}")

    def failed(self, connection: SocketConnection, error: BaseException) -> None:
        """A handler raised, or memory is exhausted: closes the connection, so that the client does not wait."""
        _logger.error("Closed the connection of %s: a request could not be handled.", connection, exc_info=error)
        connection.close()

    def refuse(self, connection: SocketConnection, error: ProtocolError, seen: bytes = b"") -> None:
        """Logs bytes that are not a request, and closes the connection. HTTP clients get an HTTP response."""
        what, words = str(error), b""
        if seen[:4] in _HTTP_METHODS:
            what, words = "this looks like HTTP, but the port uses Kafka's protocol", _HTTP_ANSWER
        elif seen[:2] == b"\x16\x03":
            what = "this looks like a TLS handshake, but the listener is PLAINTEXT"
        self._complain(connection.address, f"closed the connection of {connection}: {what}")
        self._counters.count_refused("bad frame")
        connection.say_and_close(words)

    def wait_for_memory(self, connection: SocketConnection) -> None:
        self._memory_queue.join(connection)

    def stalled(self, connection: SocketConnection) -> None:
        """Closes a connection whose partial request holds memory that others wait for, and makes no progress."""
        incoming = connection.incoming
        self._complain(
            connection.address,
            f"closed the connection of {connection}: its request stalled after {incoming.filled} bytes while others "
            f"wait for memory; queued.max.request.bytes is {self.budget.limit}",
        )
        self._counters.count_refused("stalled")
        connection.close()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Sends the answers that are given inside of the context together, at its end."""
        if self.held is not None:
            yield
            return
        self.held = []
        try:
            yield
        finally:
            held, self.held = self.held, None
            self.sender.send_all(held)

    # --- from time to time --------------------------------------------------------------------------------------------

    def _upkeep_s(self) -> float:
        return min(_UPKEEP_S, self.limits.idle_s / 4)

    def _look_after(self) -> None:
        """Closes idle connections, and releases memory of quiet ones."""
        unread: dict[int, SocketConnection] = {}
        self._upkeep = self.loop.call_later(self._upkeep_s(), self._look_after)
        now_s = self.loop.time()
        quiet_since, idle_since = now_s - _UPKEEP_S, now_s - self.limits.idle_s
        for connection in list(self.connections.values()):
            if connection.last_active_s < idle_since:
                connection.close()
            elif connection.last_active_s < quiet_since:
                connection.release_memory()
                if connection.held_by == UNANSWERED:
                    unread[connection.descriptor] = connection
        if unread:
            self._close_those_that_left(unread)

    def _close_those_that_left(self, unread: dict[int, SocketConnection]) -> None:
        """Closes connections whose peer hung up while they are not read: their requests would wait for nobody."""
        poll = select.poll()
        for descriptor in unread:
            poll.register(descriptor, _HUNG_UP)
        for descriptor, events in poll.poll(0):
            if events & (_HUNG_UP | select.POLLHUP | select.POLLERR):
                unread[descriptor].close()

    def change_limits(self, limits: Limits) -> None:
        """Applies to new connections; open ones are kept."""
        self.limits = self._count.limits = limits

    def stop_accepting(self) -> None:
        for sock, _ in self._listening:
            self.loop.remove_reader(sock.fileno())
            sock.close()
        self._listening.clear()

    def close(self) -> None:
        self.stop_accepting()
        if self._upkeep is not None:
            self._upkeep.cancel()
        for connection in list(self.connections.values()):
            connection.close()
        self._memory_queue.close()
        self.sender.close()


def _bound_socket(host: str, port: int) -> socket.socket:
    everywhere = host in ("", "*")
    family = socket.AF_INET6 if ":" in host or (everywhere and socket.has_dualstack_ipv6()) else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if everywhere else 1)
        sock.bind(("" if everywhere else host, port))
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _nothing() -> None:
    pass
