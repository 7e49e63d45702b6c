"""The network between clients and the brokers of a test cluster, which knows requests and answers.

Each broker advertises a port of this network to clients. By chance or on demand, what passes is late, is held up, or is
lost: an answer that is lost leaves its client in doubt about what the broker has done, and a request that is held up
reaches the broker long after its client has given up and gone on, even if the client has closed its connection.

| fault | what happens until `heal` |
| --- | --- |
| `lose_answers` | connections end in place of an answer to these APIs, with that probability |
| `slow_down` | every request and every answer is late |
| `hold` | requests, answers or both wait; `heal` delivers them, or with `lose_held` ends their connections |
| `cut` | connections end, and so does every new one |

It runs in a thread of its own; the methods of `ClientNetwork` may be called from any other.
"""

from __future__ import annotations

import asyncio
import random
import struct
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Final

_HOST: Final = "127.0.0.1"
_WAIT_S: Final = 30.0
_ROUTE: Final = struct.Struct(">hhi")
_CORRELATION: Final = struct.Struct(">i")


class ClientNetwork:
    """See the module. `targets` are the ports of the brokers' own, by id; `ports` are those for clients."""

    def __init__(self, targets: Mapping[int, int], seed: int) -> None:
        self.ports: dict[int, int] = {}
        self._chance = random.Random(seed)
        self._links = {broker: _Link(port, self._chance) for broker, port in targets.items()}
        self._over = asyncio.Event()
        ready: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(
            target=asyncio.run, args=(self._serve(ready),), name="client network", daemon=True
        )
        self._thread.start()
        self._loop = ready.result(_WAIT_S)

    async def _serve(self, ready: Future[asyncio.AbstractEventLoop]) -> None:
        servers = []
        for broker, link in self._links.items():
            server = await asyncio.start_server(link.connected, _HOST, 0)
            self.ports[broker] = server.sockets[0].getsockname()[1]
            servers.append(server)
        ready.set_result(asyncio.get_running_loop())
        await self._over.wait()
        for server in servers:
            server.close()
        for link in self._links.values():
            link.heal(lose_held=True)
            link.end_all()
        await asyncio.gather(*(each for link in self._links.values() for each in link.tasks))

    def _each(self, brokers: Collection[int], work: Callable[[_Link], None]) -> None:
        async def run() -> None:
            for broker in brokers:
                work(self._links[broker])

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(_WAIT_S)

    def lose_answers(self, brokers: Collection[int], api_keys: Collection[int], probability: float) -> None:
        self._each(brokers, lambda link: link.lose(api_keys, probability))

    def slow_down(self, brokers: Collection[int], most_s: float) -> None:
        """By up to `most_s` each."""
        self._each(brokers, lambda link: link.slow_down(most_s))

    def hold(self, brokers: Collection[int], *, requests: bool, answers: bool) -> None:
        self._each(brokers, lambda link: link.hold(requests=requests, answers=answers))

    def cut(self, brokers: Collection[int]) -> None:
        self._each(brokers, _Link.cut)

    def heal(self, *, lose_held: bool = False) -> None:
        self._each(self._links, lambda link: link.heal(lose_held=lose_held))

    @property
    def lost(self) -> int:
        """How many answers were lost on purpose."""
        return sum(link.lost for link in self._links.values())

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(_WAIT_S)


class _Link:
    """The way to one broker. Owned by the loop."""

    def __init__(self, target_port: int, chance: random.Random) -> None:
        self.lost = 0
        self._target_port = target_port
        self._chance = chance
        self._passages: set[_Passage] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        """Connections that are not over."""
        self.requests_pass = _opened()
        self.answers_pass = _opened()
        self._is_cut = False
        self._losing: frozenset[int] = frozenset()
        self._probability = 0.0
        self._delay_most_s = 0.0

    # --- faults -------------------------------------------------------------------------------------------------------

    def lose(self, api_keys: Collection[int], probability: float) -> None:
        self._losing, self._probability = frozenset(api_keys), probability

    def slow_down(self, most_s: float) -> None:
        self._delay_most_s = most_s

    def hold(self, *, requests: bool, answers: bool) -> None:
        if requests:
            self.requests_pass.clear()
        if answers:
            self.answers_pass.clear()

    def cut(self) -> None:
        self._is_cut = True
        self.end_all()

    def heal(self, *, lose_held: bool) -> None:
        is_held = not (self.requests_pass.is_set() and self.answers_pass.is_set())
        if lose_held and is_held:
            self.end_all()
        self._is_cut = False
        self._losing, self._probability, self._delay_most_s = frozenset(), 0.0, 0.0
        self.requests_pass.set()
        self.answers_pass.set()

    def end_all(self) -> None:
        for passage in list(self._passages):
            passage.abort()

    # --- for passages -------------------------------------------------------------------------------------------------

    def loses(self, api_key: int | None) -> bool:
        if api_key not in self._losing or self._chance.random() >= self._probability:
            return False
        self.lost += 1
        return True

    async def delay(self) -> None:
        if self._delay_most_s:
            await asyncio.sleep(self._chance.uniform(0, self._delay_most_s))

    async def connected(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        await self._connect(from_client, to_client)

    async def _connect(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        if self._is_cut:
            to_client.transport.abort()
            return
        await self.requests_pass.wait()
        await self.answers_pass.wait()
        try:
            from_broker, to_broker = await asyncio.open_connection(_HOST, self._target_port)
        except OSError:
            to_client.transport.abort()
            return
        passage = _Passage(self, to_client, to_broker)
        self._passages.add(passage)
        await asyncio.gather(passage.pass_requests(from_client), passage.pass_answers(from_broker))
        self._passages.discard(passage)


class _Passage:
    """One connection of a client."""

    def __init__(self, link: _Link, to_client: asyncio.StreamWriter, to_broker: asyncio.StreamWriter) -> None:
        self._link = link
        self._to_client = to_client
        self._to_broker = to_broker
        self._asked: dict[int, int] = {}
        """The API of each request that is not answered yet, by correlation id."""

    async def pass_requests(self, from_client: asyncio.StreamReader) -> None:
        """What the client has sent reaches the broker, though the client may be gone by then."""
        try:
            while True:
                frame = await _frame(from_client)
                api_key, _, correlation_id = _ROUTE.unpack_from(frame)
                self._asked[correlation_id] = api_key
                await self._link.requests_pass.wait()
                await self._link.delay()
                await _pass_on(self._to_broker, frame)
        except (OSError, asyncio.IncompleteReadError):
            self._to_broker.close()

    async def pass_answers(self, from_broker: asyncio.StreamReader) -> None:
        try:
            while True:
                frame = await _frame(from_broker)
                api_key = self._asked.pop(_CORRELATION.unpack_from(frame)[0], None)
                await self._link.answers_pass.wait()
                await self._link.delay()
                if self._link.loses(api_key):
                    self.abort()
                    return
                await _pass_on(self._to_client, frame)
        except (OSError, asyncio.IncompleteReadError):
            self._to_client.close()

    def abort(self) -> None:
        self._to_client.transport.abort()
        self._to_broker.transport.abort()


def _opened() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return await reader.readexactly(size)


async def _pass_on(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(len(frame).to_bytes(4, "big"))
    writer.write(frame)
    await writer.drain()
