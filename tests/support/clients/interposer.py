"""Something between clients and a broker that loses, tears and delays answers and cuts connections as a test wants it.

It runs in a thread of its own, because the clients beside it block. Frames pass unchanged.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from support.clients.dialect import WAIT_S
from support.waiting import wait_until

PRODUCE = 0
FETCH = 1
_ROUTE = struct.Struct(">hhi")
_CORRELATION = struct.Struct(">i")
_T = TypeVar("_T")


@dataclass(eq=False, slots=True)
class _Passage:
    """One connection: its two ends, and the API of each request that is not answered yet, by correlation id."""

    to_client: asyncio.StreamWriter
    to_broker: asyncio.StreamWriter
    asked: dict[int, int] = field(default_factory=dict)

    def end(self) -> None:
        self.to_client.transport.abort()
        self.to_broker.transport.abort()


class Interposer:
    """Listens on a port of its own and passes what it gets on to a broker's."""

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self._target_port = target_port
        self._passages: set[_Passage] = set()
        self._losing: int | None = None
        self._tears = False
        self._pause_s: Callable[[], float] = lambda: 0.0
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()

    def lose_answer(self, api_key: int) -> None:
        """The next answer to a request of this API does not arrive, and its connection ends."""
        self._tears = False
        self._losing = api_key

    def tear_answer(self, api_key: int) -> None:
        """Of the next answer to a request of this API a half arrives, and its connection ends."""
        self._tears = True
        self._losing = api_key

    def slow_down(self, pause_s: Callable[[], float]) -> None:
        """Every answer from now on is kept that long, and those behind it on its connection with it."""
        self._pause_s = pause_s

    @property
    def lost_it(self) -> bool:
        """Whether the answer that was to be lost has been lost."""
        return self._losing is None

    def cut(self) -> None:
        """Ends all connections."""

        async def cut() -> None:
            for passage in self._passages:
                passage.end()

        self._run(cut())

    def wait_for_request(self, api_key: int) -> None:
        """Returns when the broker holds a request of this API that it has not answered."""

        async def held() -> bool:
            return any(api_key in passage.asked.values() for passage in self._passages)

        wait_until(lambda: self._run(held()), f"no request of API {api_key} waits at the broker")

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)

    async def serve(self, ready: Future[Interposer]) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        async with server:
            self.port = server.sockets[0].getsockname()[1]
            ready.set_result(self)
            await self._end.wait()
            for passage in self._passages:
                passage.end()

    async def _connected(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            from_broker, to_broker = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            to_client.close()
            return
        passage = _Passage(to_client, to_broker)
        self._passages.add(passage)
        await asyncio.gather(self._pass_requests(from_client, passage), self._pass_answers(from_broker, passage))
        self._passages.discard(passage)

    async def _pass_requests(self, from_client: asyncio.StreamReader, passage: _Passage) -> None:
        try:
            while True:
                frame = await _frame(from_client)
                api_key, _, correlation_id = _ROUTE.unpack_from(frame)
                passage.asked[correlation_id] = api_key
                await _pass_on(passage.to_broker, frame)
        except (OSError, asyncio.IncompleteReadError):
            passage.end()

    async def _pass_answers(self, from_broker: asyncio.StreamReader, passage: _Passage) -> None:
        try:
            while True:
                frame = await _frame(from_broker)
                api_key = passage.asked.pop(_CORRELATION.unpack_from(frame)[0])
                if pause_s := self._pause_s():
                    await asyncio.sleep(pause_s)
                if api_key == self._losing:
                    self._losing = None
                    if self._tears:
                        await _pass_on(passage.to_client, frame, len(frame) // 2)
                        await _sent(passage.to_client)
                    passage.end()
                    return
                await _pass_on(passage.to_client, frame)
        except (OSError, asyncio.IncompleteReadError):
            passage.end()

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)


@contextmanager
def running_interposer(target_port: int) -> Iterator[Interposer]:
    ready: Future[Interposer] = Future()

    async def serve() -> None:
        await Interposer(target_port).serve(ready)

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="interposer", daemon=True)
    thread.start()
    interposer = ready.result(WAIT_S)
    try:
        yield interposer
    finally:
        interposer.end()
        thread.join(WAIT_S)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return await reader.readexactly(size)


async def _pass_on(writer: asyncio.StreamWriter, frame: bytes, limit: int | None = None) -> None:
    """The frame, or that many bytes of it."""
    writer.write(len(frame).to_bytes(4, "big"))
    writer.write(frame[:limit])
    await writer.drain()


async def _sent(writer: asyncio.StreamWriter) -> None:
    """Until everything is with the kernel."""
    while writer.transport.get_write_buffer_size():
        await asyncio.sleep(0.001)
