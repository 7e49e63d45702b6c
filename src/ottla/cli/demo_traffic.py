"""The traffic of `ottla demo`: a broker of its own, two producers and two consumers on it, and what they counted."""

from __future__ import annotations

import asyncio
import math
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ottla.base.ids import TopicPartition
from ottla.cli.demo_events import Event, Shop, event_of
from ottla.cli.session import CommandError
from ottla.cli.start import READY
from ottla.client.admin import Admin, TopicSpec
from ottla.client.cluster import Cluster
from ottla.client.consumer import Consumer
from ottla.client.errors import RefusedError
from ottla.client.offsets import EARLIEST
from ottla.client.producer import Producer, ProducerOptions
from ottla.records.layout import Compression

TOPICS: Final = {"orders": 3, "payments": 3, "page-views": 4}
"""With their numbers of partitions."""

_START_TIMEOUT_S: Final = 30.0
_STOP_TIMEOUT_S: Final = 15.0
_RATE_WINDOW_S: Final = 2.0
_TICK_S: Final = 0.05
_LATEST_KEPT: Final = 8
_NAP_EVERY_S: Final = 4.0
_NAP_S: Final = 1.2


class Meter:
    """Counts, and says how many there were a second of late."""

    def __init__(self) -> None:
        self.total = 0
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, count: int) -> None:
        self.total += count

    def sample(self, now_s: float) -> None:
        """Notes how far the count is; to be called now and then."""
        self._samples.append((now_s, self.total))
        while now_s - self._samples[0][0] > _RATE_WINDOW_S:
            self._samples.popleft()

    @property
    def rate(self) -> float:
        if len(self._samples) < 2:
            return 0.0
        (first_s, first), (last_s, last) = self._samples[0], self._samples[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0


@dataclass(slots=True)
class TopicCounts:
    """What went into a topic and came out again."""

    sent: Meter = field(default_factory=Meter)
    received: Meter = field(default_factory=Meter)
    bytes_sent: int = 0

    @property
    def lag(self) -> int:
        return max(0, self.sent.total - self.received.total)


@dataclass(slots=True)
class Latest:
    """A record that a consumer has just seen."""

    event: Event
    partition: int
    offset: int


class Traffic:
    """Counts by topic, and the records that came last; producers and consumers write, a screen reads."""

    def __init__(self) -> None:
        self.topics = {name: TopicCounts() for name in TOPICS}
        self.latest: deque[Latest] = deque(maxlen=_LATEST_KEPT)

    @property
    def sent(self) -> int:
        return sum(counts.sent.total for counts in self.topics.values())

    @property
    def received(self) -> int:
        return sum(counts.received.total for counts in self.topics.values())

    def sample(self, now_s: float) -> None:
        for counts in self.topics.values():
            counts.sent.sample(now_s)
            counts.received.sample(now_s)


@asynccontextmanager
async def own_broker() -> AsyncIterator[str]:
    """A broker in a process of its own, on a free port, with a temporary folder; its address. All gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="ottla-demo-") as place:
        output = Path(place) / "output.log"
        with output.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "ottla", "start", "--data-dir", str(Path(place) / "data")),
                *("--override", "listeners=PLAINTEXT://127.0.0.1:0", "--override", "ottla.log.level=warning"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which then stops it
            )
        try:
            yield await _address(process, output)
        finally:
            await _stop(process)


async def _address(process: asyncio.subprocess.Process, output: Path) -> str:
    if process.stdout is None:
        raise RuntimeError("the broker was started without a pipe for its output")
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            first = (await process.stdout.readline()).decode()
    except TimeoutError:
        first = ""
    _, found, address = first.partition(READY)
    if not found:
        raise CommandError(f"the broker of the demo did not start: {output.read_text(errors='replace').strip()}")
    return address.strip()


async def _stop(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_STOP_TIMEOUT_S):
            await process.communicate()
    except TimeoutError:
        process.kill()
        await process.communicate()


async def create_topics(cluster: Cluster) -> None:
    specs = [TopicSpec(name, partitions, 1) for name, partitions in TOPICS.items()]
    for outcome in (await Admin(cluster).create_topics(specs)).values():
        if isinstance(outcome, RefusedError):
            raise outcome


async def run_shop(cluster: Cluster, traffic: Traffic, stop: asyncio.Event) -> None:
    """A producer of orders and payments, some tens a second."""
    shop = Shop()
    async with Producer(cluster) as producer:
        await _stream(
            producer, traffic, stop, lambda wave: [event for _ in range(1 + int(2 * wave)) for event in shop.order()]
        )


async def run_website(cluster: Cluster, traffic: Traffic, stop: asyncio.Event) -> None:
    """A producer of page views, up to some thousands a second, compressed."""
    shop = Shop()
    async with Producer(cluster, ProducerOptions(compression=Compression.ZSTD)) as producer:
        await _stream(producer, traffic, stop, lambda wave: [shop.page_view() for _ in range(20 + int(150 * wave))])


async def _stream(
    producer: Producer, traffic: Traffic, stop: asyncio.Event, make: Callable[[float], list[Event]]
) -> None:
    """Events in waves until it is time to stop; each counts as sent when the broker has it."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    while not stop.is_set():
        wave = (1 + math.sin((loop.time() - begun_s) / 3)) / 2
        events = make(wave)
        deliveries = [
            await producer.send(event.topic, event.value, key=event.key.encode(), headers=[("source", b"demo")])
            for event in events
        ]
        for event, delivery in zip(events, deliveries, strict=True):
            await delivery.acknowledged()
            counts = traffic.topics[event.topic]
            counts.sent.add(1)
            counts.bytes_sent += len(event.value)
        with suppress(TimeoutError):
            async with asyncio.timeout(_TICK_S):
                await stop.wait()


async def run_reader(cluster: Cluster, traffic: Traffic, topics: list[str], *, naps: bool = False) -> None:
    """A consumer of these topics. One that naps falls behind now and then, and catches up."""
    loop = asyncio.get_running_loop()
    async with Consumer(cluster) as consumer:
        await consumer.assign(
            {TopicPartition(name, index): EARLIEST for name in topics for index in range(TOPICS[name])}
        )
        napped_s = loop.time()
        async for fetched in consumer:
            name, index = fetched.partition
            if fetched.records:
                traffic.topics[name].received.add(len(fetched.records))
                last = fetched.records[-1]
                traffic.latest.append(Latest(event_of(name, last.key, last.value), index, last.offset))
            if naps and loop.time() - napped_s > _NAP_EVERY_S:
                await asyncio.sleep(_NAP_S)
                napped_s = loop.time()
