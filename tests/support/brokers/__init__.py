"""A broker inside the test's own loop, asked through its dispatcher as a connection would: bytes in, bytes out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from ottla.base.clock import SystemClock
from ottla.base.file_slice import FileSlice
from ottla.broker.broker import Broker
from ottla.broker.configs.broker_config import BrokerConfig
from ottla.controller.wanted_topics import WantedTopic
from ottla.log.local_disk import LocalDisk
from ottla.net.core import Slot
from ottla.records import BatchOptions, Record, encode_batch
from ottla.wire.framing import api_of, read_response, request_frame
from ottla.wire.schema import Request, Response

WAIT_S = 30.0
R = TypeVar("R", bound=Response)


class AskingConnection:
    """Stands in for a socket: keeps what is answered."""

    def __init__(self) -> None:
        self.address, self.port, self.listener, self.connection_id = "127.0.0.1", 1, "PLAINTEXT", 1
        self.attachment: object = None
        self.is_closed = False
        self.answers: asyncio.Queue[list[Any]] = asyncio.Queue()
        self.slots: list[Slot] = []

    def answer(self, chunks: list[Any]) -> None:
        self.answers.put_nowait(chunks)

    @property
    def reserved(self) -> int:
        return len(self.slots)

    def reserve(self, slot: Slot) -> None:
        self.slots.append(slot)

    def fill(self, slot: Slot, chunks: list[Any]) -> None:
        slot.chunks = chunks
        self.answers.put_nowait(chunks)

    def close(self) -> None:
        self.is_closed = True
        for slot in self.slots:
            if slot.chunks is None:
                slot.connection_closed()


class Client:
    """Asks a broker, in any version."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.connection = AskingConnection()

    def send(self, request: Request, version: int) -> None:
        """Starts the request; what it changes at once is changed when this returns."""
        frame = bytearray(b"".join(request_frame(request, version, 7, "test"))[4:])
        self.broker.dispatcher.on_frame(self.connection, memoryview(frame))  # type: ignore[arg-type]

    async def answer(self, response: type[R], version: int) -> R:
        chunks = await asyncio.wait_for(self.connection.answers.get(), WAIT_S)
        frame = b"".join(chunk.read() if isinstance(chunk, FileSlice) else chunk for chunk in chunks)
        correlation_id, answer = read_response(api_of(response.api_key), version, frame[4:])
        assert correlation_id == 7
        assert isinstance(answer, response)
        return answer

    async def ask(self, request: Request, response: type[R], version: int) -> R:
        self.send(request, version)
        return await self.answer(response, version)

    @property
    def is_answered(self) -> bool:
        return not self.connection.answers.empty()

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        outcomes = await self.broker.controller.create_topics([WantedTopic(name, partitions, 1, configs=settings)])
        assert not any(isinstance(outcome, Exception) for outcome in outcomes), outcomes
        await self.broker.replicas.expected.settled()  # tests look at logs and folders


@asynccontextmanager
async def broker_in_loop(place: Path, **overrides: str) -> AsyncIterator[Broker]:
    """Overrides are keys with underscores for dots."""
    settings = {key.replace("_", "."): value for key, value in overrides.items()}
    config = BrokerConfig(
        {"broker.id": "1", "listeners": "PLAINTEXT://127.0.0.1:0", "ottla.data.dir": str(place / "data"), **settings}
    )
    broker = await Broker.start(config, LocalDisk(), SystemClock())
    try:
        yield broker
    finally:
        await broker.stop()


def with_client(place: Path, work: Callable[[Client], Coroutine[Any, Any, None]], **overrides: str) -> None:
    """Runs a test with a client of a fresh broker."""

    async def run() -> None:
        async with broker_in_loop(place, **overrides) as broker:
            await asyncio.wait_for(work(Client(broker)), 2 * WAIT_S)

    asyncio.run(run())


def batch_of(*values: bytes, **options: Any) -> bytes:
    """A batch of records without keys, as a producer sends it."""
    records = [Record(n, 1_700_000_000_000, None, value) for n, value in enumerate(values)]
    return bytes(encode_batch(records, BatchOptions(**options)))
