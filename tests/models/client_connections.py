"""A model of the client's connection: `ClientConnection` over a socket pair with tiny buffers, in a stepped loop.

Requests are sent, posted and cancelled, time runs out, answers come in any order and any pieces, the broker stops
reading, hangs up in the middle of a frame, or sends nonsense. After every step, a request that has ended has ended
once, with its own answer or with an error. In the end every request has, and no request, timer or task is left.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from models.step_loop import StepLoop
from ottla.net.client_connection import Address, BrokerConnectionError, ClientConnection, ConnectionOptions
from ottla.wire.framing import response_frame
from ottla.wire.messages.fetch import FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.schema import Response
from ottla.wire.versions import Versions

VERSION = 12
TIMEOUT_S = 5.0
MAX_RESPONSE_BYTES = 200_000
WRITE_BUFFER_BYTES = 2000
_WAIT_AT = 20
"""Where a Fetch request of this version has its number: behind the header with its client id, and the replica."""
NONSENSE = {
    "an unknown correlation id": b"\0\0\0\x08\x7f\xff\xff\xff\0\0\0\0",
    "a frame that is too large": b"\x7f\xff\xff\xff",
    "no correlation id": b"\0\0\0\0",
    "http": b"HTTP/1.1 400 Bad Request\r\n\r\n",
}


@dataclass
class Asked:
    number: int
    task: asyncio.Task[FetchResponse] | None = None
    """None if it was posted."""
    outcomes: list[object] | None = None
    is_cancelled: bool = False

    def ends(self) -> list[object]:
        if self.task is None:
            return self.outcomes or []
        if not self.task.done():
            return []
        if self.task.cancelled():
            return ["cancelled"]
        return [self.task.exception() or self.task.result()]


class ClientConnectionModel(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = StepLoop()
        ours, self.broker = socket.socketpair()
        for sock in (ours, self.broker):
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # as little as the system allows
        options = ConnectionOptions(request_timeout_s=TIMEOUT_S, max_response_bytes=MAX_RESPONSE_BYTES)

        async def connect() -> ClientConnection:
            connection = ClientConnection(Address("broker", 9092), options)
            await self.loop.create_connection(lambda: connection, sock=ours)
            connection.served = {
                request.api_key: Versions(VERSION if request is FetchRequest else 9, VERSION)
                for request in (FetchRequest, ProduceRequest)
            }
            connection._is_welcome = False
            assert connection._transport is not None
            connection._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
            return connection

        connecting = self.loop.create_task(connect())
        self.loop.turn(5)
        self.connection = connecting.result()
        self.asked: list[Asked] = []
        self.unanswered_tasks: list[asyncio.Task[None]] = []
        self.arrived = bytearray()
        self.open_requests: list[tuple[int, int]] = []
        """Correlation id and number of those that the broker has read and not answered."""
        self.outgoing = bytearray()
        self.moved_bytes = 0

    # --- what happens ---------------------------------------------------------------------------------------------

    @initialize()
    def start(self) -> None:
        pass

    def _request(self, size: int) -> FetchRequest:
        return FetchRequest(max_wait_ms=len(self.asked), rack_id="r" * size)

    @rule(size=st.sampled_from([0, 10, 9000]), timeout_s=st.sampled_from([None, 1.0, 60.0]))
    def send(self, size: int, timeout_s: float | None) -> None:
        sending = self.connection.send(self._request(size), FetchResponse, version=VERSION, timeout_s=timeout_s)
        self.asked.append(Asked(len(self.asked), self.loop.create_task(sending)))

    @rule(size=st.sampled_from([0, 9000]), timeout_s=st.sampled_from([1.0, 60.0]))
    def post(self, size: int, timeout_s: float) -> None:
        outcomes: list[Response | Exception] = []
        asked = Asked(len(self.asked), outcomes=outcomes)  # type: ignore[arg-type]
        try:
            self.connection.post(self._request(size), outcomes.append, version=VERSION, timeout_s=timeout_s)
        except BrokerConnectionError as error:
            outcomes.append(error)
        self.asked.append(asked)

    @rule(size=st.sampled_from([0, 10_000]))
    def send_unanswered(self, size: int) -> None:
        request = ProduceRequest(acks=0, timeout_ms=-1, transactional_id="t" * size)
        self.unanswered_tasks.append(self.loop.create_task(self.connection.send_unanswered(request, version=9)))

    @rule(index=st.integers(0, 20))
    def cancel(self, index: int) -> None:
        tasks = [asked for asked in self.asked if asked.task is not None and not asked.task.done()]
        if tasks:
            asked = tasks[index % len(tasks)]
            asked.is_cancelled = True
            assert asked.task is not None
            asked.task.cancel()

    @rule(most=st.sampled_from([1, 7, 1000, 1 << 20]))
    def broker_reads(self, most: int) -> None:
        with suppress(OSError):
            self.arrived += (data := self.broker.recv(most))
            self.moved_bytes += len(data)
        while len(self.arrived) >= 4 and len(self.arrived) >= 4 + int.from_bytes(self.arrived[:4], "big"):
            size = int.from_bytes(self.arrived[:4], "big")
            frame = bytes(self.arrived[4 : 4 + size])
            del self.arrived[: 4 + size]
            if int.from_bytes(frame[:2], "big") == FetchRequest.api_key:
                number = int.from_bytes(frame[_WAIT_AT : _WAIT_AT + 4], "big")
                self.open_requests.append((int.from_bytes(frame[4:8], "big"), number))

    @rule(index=st.integers(0, 20), size=st.sampled_from([0, 10, 5000, 70_000, 150_000]), is_torn=st.integers(0, 19))
    def broker_answers(self, index: int, size: int, is_torn: int) -> None:
        if self.open_requests:
            correlation_id, number = self.open_requests.pop(index % len(self.open_requests))
            partition = FetchPartitionResponse(records=bytes(size))
            topics = [FetchTopicResponse(topic="t", partitions=[partition])]
            response = FetchResponse(throttle_time_ms=number, responses=topics)
            frame = b"".join(map(bytes, response_frame(response, VERSION, correlation_id)))
            if not is_torn:  # a body that ends too early
                frame = (8).to_bytes(4, "big") + frame[4:12]
            self.outgoing += frame

    @rule(most=st.integers(1, 10) | st.sampled_from([100, 1 << 20]))
    def broker_sends(self, most: int) -> None:
        sent = 0
        with suppress(OSError):
            sent = self.broker.send(self.outgoing[:most])
            self.moved_bytes += sent
        del self.outgoing[:sent]

    @rule(count=st.integers(1, 4), seconds=st.sampled_from([0.0, 0.0, 0.0, 0.5, 2.0]))
    def loop_turns(self, count: int, seconds: float) -> None:
        self.loop.advance(seconds)
        self.loop.turn(count)

    @rule(what=st.sampled_from([*NONSENSE, "end", "close"]), is_meant=st.integers(0, 4))
    def connection_ends(self, what: str, is_meant: int) -> None:
        """Now and then: it is over then."""
        if is_meant:
            return
        if what == "close":
            self.unanswered_tasks.append(self.loop.create_task(self.connection.close()))
        elif what == "end":
            self.broker.close()
            self.outgoing.clear()
        else:
            self.outgoing += NONSENSE[what]

    @rule(broker_is_dead=st.booleans())
    def everything_ends(self, broker_is_dead: bool) -> None:
        self._settle(broker_is_dead=broker_is_dead)

    @rule(count=st.integers(1, 3), is_asked=st.booleans())
    def broker_takes_nothing(self, count: int, is_asked: bool) -> None:
        """Nothing has an answer, or a time-out for one, before the broker stops."""
        self._settle(broker_is_dead=False)
        for _ in range(count):
            self.send_unanswered(20_000)
            self.loop.turn(2)
        if is_asked:
            self.send(0, 1.0)
        self._settle(broker_is_dead=True)

    # --- what holds -----------------------------------------------------------------------------------------------

    @invariant()
    def promises_are_kept(self) -> None:
        assert not self.loop.failures, self.loop.failures
        for asked in self.asked:
            ends = asked.ends()
            assert len(ends) <= 1
            for end in ends:
                if isinstance(end, FetchResponse):
                    assert end.throttle_time_ms == asked.number
                elif end == "cancelled":
                    assert asked.is_cancelled
                else:
                    assert isinstance(end, BrokerConnectionError), repr(end)

    def _settle(self, *, broker_is_dead: bool) -> None:
        """The broker reads and answers all, or nothing; then whoever waits for what it will not do runs out of time."""
        quiet = 0
        while quiet < 10:
            moved = self.moved_bytes
            if self.broker.fileno() >= 0 and not broker_is_dead:
                self.broker_reads(1 << 20)
                while self.open_requests:
                    self.broker_answers(0, 10, 1)
                self.broker_sends(1 << 20)
            self.loop.turn(2)
            quiet = quiet + 1 if self.moved_bytes == moved else 0
        is_over = all(asked.ends() for asked in self.asked) and all(task.done() for task in self.unanswered_tasks)
        if not is_over or self.connection._waiting:
            self.loop.advance(61)
            self.loop.turn(5)
        self.promises_are_kept()
        for asked in self.asked:
            assert asked.ends(), f"request {asked.number} does not end"
        for task in self.unanswered_tasks:
            assert task.done()
            assert isinstance(task.exception(), BrokerConnectionError | None)
        waiting = self.connection._waiting.values()
        assert all(one.answer.done() for one in waiting), "a request is left"
        assert not [timer for timer in self.loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        if self.connection.is_open and not self.outgoing:
            assert not waiting
        self.asked.clear()
        self.unanswered_tasks.clear()

    def teardown(self) -> None:
        try:
            self._settle(broker_is_dead=False)
        finally:
            closing = self.loop.create_task(self.connection.close())
            self.loop.turn(5)
            assert closing.done()
            assert not self.connection.is_open
            assert not asyncio.all_tasks(self.loop)
            self.broker.close()
            self.loop.close()
