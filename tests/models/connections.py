"""A model of the server's connections: `SocketConnection` over socket pairs with tiny buffers, in a stepped loop.

Peers ask in frames that are cut anywhere, read or do not read, and hang up; requests are answered at once, later, by
large answers, by slices of a file, by the sending thread, or not at all; handlers raise and close; memory is refused
and granted. After every step:

- a connection is read unless one named reason holds it up (`held_by`), and whoever ends that reason is there;
- what a peer received is the beginning of the answers to its requests, in their order;
- the budget is exactly what the buffers of connections, and the model's rival, take.

And once peers send and read all, requests are answered and the rival is gone: every request of an open connection has
its answer, every open connection is read, and no memory is taken.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import tempfile
import threading
from collections import deque
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest import mock

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from models.step_loop import StepLoop
from ottla.base.file_slice import FileSlice
from ottla.log.local_disk import LocalDisk
from ottla.net import core, memory_queue, sender, sending_layout, socket_connection
from ottla.net.core import Slot
from ottla.net.limits import Limits
from ottla.net.server import Server
from ottla.net.socket_connection import MEMORY, UNHANDLED, SocketConnection
from support.servers import Counters, framed

SMALL_FRAME = 256
SCRATCH_BYTES = 1024
BUDGET_BYTES = 4096
FRAME_MAX_BYTES = 9000
UNANSWERED_MAX = 3
READY_CHUNKS = 8
PEERS = 3
FILE = bytes(range(256)) * 300
_ENDING = ("raise", "close")
_LATER = ("later", "later silent")
KINDS = ("small", "small", "large", "chunks", "file", "later", "later", "silent", "later silent", "wake", *_ENDING)


@dataclass
class Request:
    kind: str
    body: bytes
    answer: bytes
    is_handled: bool = False


class PendingSlot(Slot):
    """Of a request that is answered later."""

    def __init__(self, peer: Peer, request: Request) -> None:
        super().__init__()
        self.peer = peer
        self.request = request
        self.closed_count = 0

    def connection_closed(self) -> None:
        self.closed_count += 1


@dataclass
class Peer:
    """A client: what it has asked, and what it got."""

    number: int
    sock: socket.socket
    connection: SocketConnection
    requests: list[Request] = field(default_factory=list)
    outgoing: bytearray = field(default_factory=bytearray)
    received: bytearray = field(default_factory=bytearray)
    handled: int = 0
    has_hung_up: bool = False
    may_be_closed: bool = False
    """By a handler, or because others waited for the memory of its frame."""
    pending: list[PendingSlot] = field(default_factory=list)

    def send(self, most: int) -> int:
        sent = 0
        with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            sent = self.sock.send(self.outgoing[:most])
        del self.outgoing[:sent]
        return sent

    def receive(self, most: int) -> int:
        with suppress(BlockingIOError, ConnectionResetError):
            data = self.sock.recv(most)
            self.received += data
            return len(data)
        return 0


class SteppedTable:
    """In place of the compiled kernel: sends when the gate is open, and at most so much of each answer."""

    def __init__(self, gate: threading.Event) -> None:
        self.numbers = np.zeros((sending_layout.SLOTS, sending_layout.NUMBERS), np.int64)
        self.data = [memoryview(bytearray(sending_layout.BYTES_MAX)) for _ in range(sending_layout.SLOTS)]
        self.gate = gate
        self.at_most = 1 << 20

    def send_until_the_end(self, wake: int, done: int) -> None:
        number = 0
        while True:
            for _ in range(os.eventfd_read(wake)):
                self.gate.wait()
                batch = self.numbers[number]
                if batch[sending_layout.COUNT] < 0:
                    return
                at = 0
                for answer in range(batch[sending_layout.COUNT]):
                    size = int(batch[sending_layout.SIZES + answer])
                    piece = self.data[number][at : at + min(size, self.at_most)]
                    try:
                        sent = os.write(int(batch[sending_layout.DESCRIPTORS + answer]), piece)
                    except OSError:
                        sent = -1
                    batch[sending_layout.SENT + answer] = sent
                    at += size
                os.eventfd_write(done, 1)
                number = (number + 1) % sending_layout.SLOTS


class ServerConnectionModel(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.loop = StepLoop()
        self.stack.callback(self.loop.close)
        self.gate = threading.Event()
        self.gate.set()
        self.table: SteppedTable | None = None
        kernel = ModuleType("ottla.net.sending_kernel")
        kernel.BatchTable = self._new_table  # type: ignore[attr-defined]
        self.stack.enter_context(mock.patch.dict(sys.modules, {"ottla.net.sending_kernel": kernel}))
        self.stack.enter_context(mock.patch.object(core, "SMALL_FRAME", SMALL_FRAME))
        self.stack.enter_context(mock.patch.object(memory_queue, "SMALL_FRAME", SMALL_FRAME))
        self.stack.enter_context(mock.patch.object(socket_connection, "_READY_CHUNKS", READY_CHUNKS))
        self.stack.enter_context(mock.patch.object(sender, "MANY", 1))
        for module in ("core", "server", "socket_connection", "sender"):  # handlers raise on purpose
            self.stack.enter_context(mock.patch(f"ottla.net.{module}._logger"))
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-model-")))
        (folder / "file").write_bytes(FILE)
        self.file = LocalDisk().open(folder / "file")
        self.stack.callback(self.file.close)
        limits = Limits(
            frame_max_bytes=FRAME_MAX_BYTES, unanswered_per_connection=UNANSWERED_MAX, queued_bytes=BUDGET_BYTES
        )
        self.server = Server(self.loop, self._on_frame, limits, Counters(), self._complain)
        self.server.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.server.on_handled = self._on_handled
        self.server.sender.loading = SimpleNamespace(is_begun=True, is_going_on=False)  # type: ignore[assignment]
        self.all_peers: list[Peer] = []
        self.peers = [self._new_peer() for _ in range(PEERS)]
        self.rival_bytes = 0
        self.wakes = "nobody"

    def _new_table(self) -> SteppedTable:
        self.table = SteppedTable(self.gate)
        return self.table

    def _new_peer(self) -> Peer:
        number = len(self.all_peers)
        ours, theirs = socket.socketpair()
        for sock in (ours, theirs):
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # as little as the system allows
        self.stack.callback(theirs.close)
        peer = Peer(number, theirs, self.server.adopt(ours, (f"peer{number}", number), "PLAINTEXT"))
        self.all_peers.append(peer)
        return peer

    def _complain(self, address: str, what: str) -> None:
        if "stalled" in what:
            self.all_peers[int(address.removeprefix("peer"))].may_be_closed = True

    # --- the handler ----------------------------------------------------------------------------------------------

    def _on_frame(self, connection: SocketConnection, frame: memoryview) -> None:
        peer = self.all_peers[connection.port]
        request = peer.requests[peer.handled]
        assert bytes(frame) == request.body
        assert not connection.is_closed
        peer.handled += 1
        request.is_handled = True
        kind, answer = request.kind, request.answer
        if kind in _LATER:
            slot = PendingSlot(peer, request)
            connection.reserve(slot)
            peer.pending.append(slot)
        elif kind == "file":
            size = len(answer) - 4
            connection.answer([answer[:4], FileSlice(self.file, 0, size)])
        elif kind == "chunks":
            connection.answer([answer[at : at + 100] for at in range(0, len(answer), 100)])
        elif kind == "raise":
            peer.may_be_closed = True
            raise ZeroDivisionError
        elif kind == "close":
            peer.may_be_closed = True
            connection.close()
        elif kind != "silent":
            connection.answer([answer])
            if kind == "wake":
                self._fill_all()

    def _on_handled(self) -> None:
        if self.wakes == "everybody":
            self._fill_all()
        elif self.wakes == "nobody, and raises":
            raise ZeroDivisionError

    def _fill_all(self) -> None:
        for peer in self.all_peers:
            while peer.pending:
                self._fill(peer, -1)

    def _fill(self, peer: Peer, index: int) -> None:
        slot = peer.pending.pop(index)
        peer.connection.fill(slot, [slot.request.answer] if slot.request.kind == "later" else [])

    # --- what happens ---------------------------------------------------------------------------------------------

    numbers = st.integers(0, PEERS - 1)

    @initialize(wakes=st.sampled_from(["nobody", "nobody", "everybody", "nobody, and raises"]))
    def choose(self, wakes: str) -> None:
        self.wakes = wakes

    @rule(
        number=numbers,
        kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4),
        times=st.sampled_from([1, 1, 3, 8]),
        size=st.integers(5, 60),
        answer_size=st.sampled_from([0, 10, 3000, 20_000]),
        is_sent=st.booleans(),
    )
    def ask(self, number: int, kinds: list[str], times: int, size: int, answer_size: int, is_sent: bool) -> None:
        peer = self.peers[number]
        for kind in kinds * times:
            self._ask(peer, kind, size, answer_size)
        if is_sent:
            peer.send(1 << 20)

    @rule(
        number=numbers,
        kind=st.sampled_from([kind for kind in KINDS if kind not in _ENDING]),
        size=st.sampled_from([SMALL_FRAME - 4, SMALL_FRAME, 1500, 5000, FRAME_MAX_BYTES]),
        is_sent=st.booleans(),
    )
    def ask_with_a_large_frame(self, number: int, kind: str, size: int, is_sent: bool) -> None:
        peer = self.peers[number]
        self._ask(peer, kind, size, 10)
        if is_sent:
            peer.send(1 << 20)

    def _ask(self, peer: Peer, kind: str, size: int, answer_size: int) -> None:
        mark = len(peer.requests).to_bytes(4, "big")
        body = (mark * (size // 4 + 1))[:size]
        answer_size = {"large": 12_000, "chunks": 9000}.get(kind, answer_size)
        if kind == "file":
            answer = framed(FILE[: max(answer_size, 1)])
        else:
            answer = b"" if "silent" in kind or kind in _ENDING else framed(mark + bytes(answer_size))
        peer.requests.append(Request(kind, body, answer))
        peer.outgoing += framed(body)

    @rule(number=numbers, most=st.integers(1, 20) | st.sampled_from([64, 500, 3000, 1 << 20]))
    def peer_sends(self, number: int, most: int) -> None:
        self.peers[number].send(most)

    @rule(number=numbers, most=st.sampled_from([1, 100, 2000]))
    def peer_reads(self, number: int, most: int) -> None:
        self.peers[number].receive(most)

    @rule(count=st.integers(1, 4), seconds=st.sampled_from([0, 0, 0.1, 1.1, 4.0]))
    def loop_turns(self, count: int, seconds: float) -> None:
        self.loop.advance(seconds)
        self.loop.turn(count)

    @rule(number=numbers)
    def peer_reads_all(self, number: int) -> None:
        while self.peers[number].receive(1 << 20):
            self.loop.turn(2)

    @rule(number=numbers, index=st.integers(0, 10))
    def answer_one(self, number: int, index: int) -> None:
        peer = self.peers[number]
        if peer.pending:
            self._fill(peer, index % len(peer.pending))

    @rule(
        at_most=st.sampled_from([1 << 20, 3]),
        size=st.sampled_from([10, 8000]),
        is_slow=st.booleans(),
        behind=st.lists(st.sampled_from(["small", "chunks", "later"]), max_size=10),
    )
    def answer_together(self, at_most: int, size: int, is_slow: bool, behind: list[str]) -> None:
        """One answer of each, by the thread, which may take until `thread_goes_on`; more is asked meanwhile."""
        for peer in self.peers:
            if not peer.pending:
                self._ask(peer, "later", 10, size)
                peer.send(1 << 20)
        self.loop.turn(2)
        if is_slow:
            self.gate.clear()
        if self.table is not None:
            self.table.at_most = at_most
        with self.server.together():
            for peer in self.peers:
                if peer.pending:
                    self._fill(peer, 0)
        for peer in self.peers:
            for kind in behind:
                self._ask(peer, kind, 10, 10)
            peer.send(1 << 20)
        self._wait_for_thread()

    @rule()
    def thread_goes_on(self) -> None:
        self.gate.set()
        self._wait_for_thread()

    @rule(size=st.sampled_from([0, 1000, BUDGET_BYTES]))
    def rival_takes_memory(self, size: int) -> None:
        self.server.budget.used += size - self.rival_bytes
        self.rival_bytes = size

    @rule(number=numbers)
    def peer_hangs_up(self, number: int) -> None:
        peer = self.peers[number]
        peer.has_hung_up = True
        peer.sock.close()
        self.peers[number] = self._new_peer()

    @precondition(lambda self: any(peer.requests for peer in self.peers))
    @rule()
    def everything_is_answered(self) -> None:
        self._settle()

    # --- what holds -----------------------------------------------------------------------------------------------

    def _wait_for_thread(self) -> None:
        """Until an answer that the thread may send is sent: the next turn of the loop takes it back."""
        sending = self.server.sender
        if sending.is_busy and self.gate.is_set():
            deadline = 200
            poll = select.poll()  # unlike select, for any descriptor
            poll.register(sending._done, select.POLLIN)
            while sending.is_busy and deadline:
                poll.poll(5_000)
                self.loop.turn()
                deadline -= 1
            assert deadline, "the thread gives nothing back"

    @invariant()
    def promises_are_kept(self) -> None:
        assert not self.loop.failures, self.loop.failures
        queue = self.server._memory_queue
        for peer in self.all_peers:
            connection = peer.connection
            incoming = connection.incoming
            expected = b"".join(request.answer for request in peer.requests)
            assert expected.startswith(peer.received), f"peer {peer.number} received something else"
            if connection.is_closed:
                assert peer.has_hung_up or peer.may_be_closed, f"peer {peer.number} was closed for no reason"
                assert not incoming.reserved
                assert connection.connection_id not in queue._waiting
                assert all(slot.closed_count == (slot.chunks is None) for slot in peer.pending)
            else:
                held_by = connection.held_by
                is_read, is_written = self.loop.watches(connection.descriptor)
                assert is_read == (held_by is None), f"peer {peer.number}: read {is_read}, held by {held_by}"
                assert is_written == connection._is_blocked
                assert incoming.reserved in (0, len(incoming._own or b""))
                if held_by == MEMORY:
                    assert connection.connection_id in queue._waiting
                if held_by == UNHANDLED:
                    assert connection._is_resuming
        reserved = sum(peer.connection.incoming.reserved for peer in self.all_peers)
        assert self.server.budget.used == reserved + self.rival_bytes
        assert bool(queue._waiting) <= self.server.budget.is_short

    def _settle(self) -> None:
        """Everybody does what is theirs."""
        self.rival_takes_memory(0)
        self.thread_goes_on()
        quiet = 0
        recent: deque[str] = deque(maxlen=5)
        for _ in range(3000):
            moved = 0
            for peer in self.all_peers:
                if not peer.has_hung_up:
                    moved += peer.send(1 << 20) + peer.receive(1 << 20)
                while peer.pending:
                    self._fill(peer, 0)
                    moved += 1
            self.loop.advance(0.1)
            self._wait_for_thread()
            recent.append(str(moved))
            quiet = 0 if moved else quiet + 1
            if quiet == 25:  # more than the patience of those who wait for memory
                break
        else:
            raise AssertionError(f"it never becomes quiet: {recent}")
        for peer in self.all_peers:
            connection = peer.connection
            if peer.has_hung_up or peer.may_be_closed:
                assert connection.is_closed
                continue
            assert not peer.outgoing, f"peer {peer.number} is not read: {connection.held_by}"
            assert all(request.is_handled for request in peer.requests)
            assert peer.received == b"".join(request.answer for request in peer.requests)
            assert connection.is_idle
            assert connection.held_by is None
            connection.release_memory()
        self.promises_are_kept()
        assert self.server.budget.used == 0
        assert not len(self.server._memory_queue)
        self.peers = [self._new_peer() if peer.connection.is_closed else peer for peer in self.peers]

    def teardown(self) -> None:
        try:
            self._settle()
            self.server.close()
            for peer in self.all_peers:
                assert peer.connection.is_closed
                assert peer.connection._socket.fileno() == -1
            assert self.server.budget.used == 0
        finally:
            self.gate.set()
            self.server.close()
            self.stack.close()
