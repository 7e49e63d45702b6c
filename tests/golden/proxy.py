"""A loopback proxy that sits between Kafka clients (or brokers) and a broker and keeps the frames that pass.

It runs its own event loop in a thread, because the clients beside it block. Frames are passed on unchanged as soon as
they are whole; requests and responses are paired by correlation id, connection by connection.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

API_VERSIONS = 18
UNSUPPORTED_VERSION = 35
_ROUTE = struct.Struct(">hhi")
_CORRELATION = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its response, each without the size in front."""

    api_key: int
    version: int
    request: bytes
    response: bytes
    source: str


@dataclass(slots=True)
class Recording:
    """What all proxies of a capture have seen. `source` is what the exchanges seen from now on are labelled with."""

    source: str = ""
    exchanges: list[Exchange] = field(default_factory=list)


class Proxy:
    """Listens on a port of its own and passes everything on to the broker's port."""

    def __init__(self, recording: Recording, target_port: int) -> None:
        self.port = 0
        self._recording = recording
        self._target_port = target_port

    async def listen(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]

    async def _connected(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            broker, to_broker = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            to_client.close()
            return
        asked: dict[int, bytes] = {}
        await asyncio.gather(
            self._pass_requests(client, to_broker, asked), self._pass_responses(broker, to_client, asked)
        )

    async def _pass_requests(
        self, client: asyncio.StreamReader, to_broker: asyncio.StreamWriter, asked: dict[int, bytes]
    ) -> None:
        try:
            while True:
                frame = await _frame(client)
                asked[_ROUTE.unpack_from(frame)[2]] = frame
                to_broker.write(len(frame).to_bytes(4, "big") + frame)
                await to_broker.drain()
        except (OSError, asyncio.IncompleteReadError):
            to_broker.close()

    async def _pass_responses(
        self, broker: asyncio.StreamReader, to_client: asyncio.StreamWriter, asked: dict[int, bytes]
    ) -> None:
        try:
            while True:
                frame = await _frame(broker)
                request = asked.pop(_CORRELATION.unpack_from(frame)[0])
                api_key, version, _ = _ROUTE.unpack_from(request)
                # The answer to a version the broker lacks has the form of version 0: not a pair worth keeping.
                refused = api_key == API_VERSIONS and frame[4:6] == UNSUPPORTED_VERSION.to_bytes(2, "big")
                if not refused:
                    exchange = Exchange(api_key, version, request, frame, self._recording.source)
                    self._recording.exchanges.append(exchange)
                to_client.write(len(frame).to_bytes(4, "big") + frame)
                await to_client.drain()
        except (OSError, asyncio.IncompleteReadError):
            to_client.close()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return await reader.readexactly(size)


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread, for proxies."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="proxy", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def start_proxy(loop: asyncio.AbstractEventLoop, recording: Recording, target_port: int) -> Proxy:
    proxy = Proxy(recording, target_port)
    asyncio.run_coroutine_threadsafe(proxy.listen(), loop).result()
    return proxy
