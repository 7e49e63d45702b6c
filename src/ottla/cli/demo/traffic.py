"""The traffic of `ottla demo`: a broker, two producers, two consumers, and their counts."""

from __future__ import annotations

import asyncio
import math
import sys
import tempfile
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ottla.cli.demo.events import Event, Shop, event_of
from ottla.cli.demo.pipeline import REVENUE
from ottla.cli.demo.processes import end
from ottla.cli.meters import Meter
from ottla.cli.session import CommandError
from ottla.cli.start import READY
from ottla.client.administer import AsyncAdmin, NewTopic
from ottla.client.consume import AsyncConsumer
from ottla.client.produce import AsyncProducer

TOPICS: Final = {"orders": 3, "payments": 3, "page-views": 4}
"""With their numbers of partitions."""

_START_TIMEOUT_S: Final = 30.0
_STOP_TIMEOUT_S: Final = 15.0
_TICK_S: Final = 0.05
_LATEST_KEPT: Final = 4
_NAP_EVERY_S: Final = 4.0
_NAP_S: Final = 1.2
_COMMIT_EVERY_MS: Final = 500


@dataclass(slots=True)
class TopicCounts:
    """Counts of records sent to and received from a topic."""

    sent: Meter = field(default_factory=Meter)
    received: Meter = field(default_factory=Meter)
    bytes_sent: int = 0

    @property
    def lag(self) -> int:
        return max(0, self.sent.total - self.received.total)


@dataclass(slots=True)
class LatestRecord:
    """A record that a consumer has just received."""

    event: Event
    partition: int
    offset: int


class Traffic:
    """Counts by topic and the latest records; producers and consumers write, the screen reads."""

    def __init__(self) -> None:
        self.topics = {name: TopicCounts() for name in TOPICS}
        self.latest: deque[LatestRecord] = deque(maxlen=_LATEST_KEPT)

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
    """Runs a broker in its own process on a free port with a temporary directory, and cleans up; yields its address."""
    with tempfile.TemporaryDirectory(prefix="ottla-demo-") as place:
        output = Path(place) / "output.log"
        with output.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "ottla", "start", "--data-dir", str(Path(place) / "data")),
                *("--override", "listeners=PLAINTEXT://127.0.0.1:0", "--override", "ottla.log.level=warning"),
                *("--override", "group.initial.rebalance.delay.ms=0"),  # there are no other members
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C goes to the demo, which then stops it
            )
        try:
            yield await _address(process, output)
        finally:
            await end(process, _STOP_TIMEOUT_S)


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


async def create_topics(address: str) -> None:
    async with AsyncAdmin(bootstrap_servers=address) as admin:
        await admin.create_topics(NewTopic(name, partitions, 1) for name, partitions in {**TOPICS, REVENUE: 1}.items())


async def run_shop(address: str, traffic: Traffic, stop: asyncio.Event) -> None:
    """Produces orders and payments, some tens per second."""
    shop = Shop()
    async with AsyncProducer(bootstrap_servers=address) as producer:
        await _stream(
            producer, traffic, stop, lambda wave: [event for _ in range(1 + int(2 * wave)) for event in shop.order()]
        )


async def run_website(address: str, traffic: Traffic, stop: asyncio.Event) -> None:
    """Produces page views, compressed, up to some thousands per second."""
    shop = Shop()
    async with AsyncProducer(bootstrap_servers=address, compression_type="zstd") as producer:
        await _stream(producer, traffic, stop, lambda wave: [shop.page_view() for _ in range(20 + int(150 * wave))])


async def _stream(
    producer: AsyncProducer, traffic: Traffic, stop: asyncio.Event, make: Callable[[float], list[Event]]
) -> None:
    """Produces events in waves until it is time to stop; an event counts as sent when it is acknowledged."""
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
            await delivery
            counts = traffic.topics[event.topic]
            counts.sent.add(1)
            counts.bytes_sent += len(event.value)
        with suppress(TimeoutError):
            async with asyncio.timeout(_TICK_S):
                await stop.wait()


async def run_reader(address: str, traffic: Traffic, group: str, topics: list[str], *, naps: bool = False) -> None:
    """A group with one consumer of these topics. A consumer that pauses falls behind now and then, and catches up."""
    loop = asyncio.get_running_loop()
    async with AsyncConsumer(
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=_COMMIT_EVERY_MS,
    ) as consumer:
        consumer.subscribe(topics)
        napped_s = loop.time()
        while True:
            records = await consumer.poll(1.0)
            for name, count in Counter(record.topic for record in records).items():
                traffic.topics[name].received.add(count)
            if records:
                last = records[-1]
                event = event_of(last.topic, last.key, last.value)
                traffic.latest.append(LatestRecord(event, last.partition, last.offset))
            if naps and loop.time() - napped_s > _NAP_EVERY_S:
                await asyncio.sleep(_NAP_S)
                napped_s = loop.time()
