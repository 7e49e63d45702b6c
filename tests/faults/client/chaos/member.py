"""A group member in a process of its own: consumes in the way its orders say, and prints what happens as JSON lines.

SIGTERM makes it close its consumer and end. SIGUSR1 makes it print where its threads are. SIGINT interrupts whatever
the client is doing at that moment with a KeyboardInterrupt, after which the member goes on as if nothing had happened:
no record may be lost by it. The interrupt waits while the member itself runs, because nobody can save records that are
between a call and an assignment.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import ottla
from ottla import AsyncConsumer, Consumer, TopicPartition
from ottla.client.consume import RebalanceListener
from ottla.client.errors import OttlaError

_CLIENT = str(Path(ottla.__file__).parent)
_OWN = __file__


def tell(*what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


class Signals:
    """Whether the member is to end, and interrupts that have not been raised yet."""

    def __init__(self) -> None:
        self.is_ending = False
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGINT, self._interrupt)

    def _end(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.is_ending = True

    def _interrupt(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        while frame is not None:
            path = frame.f_code.co_filename
            if path == _OWN:
                return
            if path.startswith(_CLIENT):
                raise KeyboardInterrupt
            frame = frame.f_back


class Listener(RebalanceListener):
    def __init__(self, before_revocation: Callable[[], None] | None) -> None:
        self._before_revocation = before_revocation

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        tell("assigned", sorted(each.partition for each in partitions))

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        if self._before_revocation is not None:
            self._before_revocation()
        tell("revoked", sorted(each.partition for each in partitions))
        return None

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        tell("revoked", sorted(each.partition for each in partitions))
        return None


def tell_records(records: Iterable[tuple[int, int]]) -> None:
    by_partition: dict[int, list[int]] = {}
    for partition, offset in records:
        by_partition.setdefault(partition, []).append(offset)
    for partition, offsets in by_partition.items():
        tell("consumed", partition, offsets)


class BlockingMember:
    def __init__(self, orders: dict[str, Any], chance: random.Random, signals: Signals) -> None:
        self._chance, self._signals = chance, signals
        self._style: str = orders["style"]
        self._is_manual = not orders["settings"]["enable.auto.commit"]
        self._consumer = Consumer(orders["settings"])
        listener = Listener(self._commit if self._is_manual else None)
        self._consumer.subscribe([orders["topic"]], listener)
        tell("ready")

    def run(self) -> None:
        while not self._signals.is_ending:
            try:
                self._work()
            except KeyboardInterrupt:
                tell("interrupted")
        tell("closing")
        while True:
            try:
                self._consumer.close()
            except KeyboardInterrupt:
                tell("interrupted")
            else:
                break
        tell("closed")

    def _work(self) -> None:
        try:
            self._consume()
        except OttlaError as error:
            tell("refused", type(error).__name__, str(error))
        if self._is_manual and self._chance.random() < 0.5:
            self._commit()

    def _consume(self) -> None:
        consumer = self._consumer
        if self._style == "arrow":
            batch = consumer.poll_arrow(0.2, columns=["partition", "offset"])
            tell_records(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))
        elif self._style == "iteration":
            left = self._chance.randrange(1, 50)
            for record in consumer.poll(0.2, max_records=left):
                tell_records([(record.partition, record.offset)])
        else:
            tell_records((record.partition, record.offset) for record in consumer.poll(0.2))
        if self._chance.random() < 0.1:
            time.sleep(self._chance.random() * 0.05)

    def _commit(self) -> None:
        try:
            if self._chance.random() < 0.7:
                self._consumer.commit_async()
            else:
                self._consumer.commit()
        except OttlaError as error:
            tell("refused", type(error).__name__, str(error))


async def run_async(orders: dict[str, Any], chance: random.Random, signals: Signals) -> None:
    """Polls are cancelled at random moments: asyncio's kind of interruption."""
    consumer = AsyncConsumer(orders["settings"])
    consumer.subscribe([orders["topic"]], Listener(None))
    tell("ready")
    while not signals.is_ending:
        polling = asyncio.ensure_future(consumer.poll(0.2))
        if chance.random() < 0.3:
            asyncio.get_running_loop().call_later(chance.random() * 0.1, polling.cancel)
        try:
            tell_records((record.partition, record.offset) for record in await polling)
        except asyncio.CancelledError:
            tell("interrupted")
        except OttlaError as error:
            tell("refused", type(error).__name__, str(error))
        if not orders["settings"]["enable.auto.commit"] and chance.random() < 0.3:
            try:
                await consumer.commit()
            except OttlaError as error:
                tell("refused", type(error).__name__, str(error))
    tell("closing")
    await consumer.close()
    tell("closed")


def main() -> None:
    orders = json.loads(sys.argv[1])
    chance = random.Random(orders["seed"])
    signals = Signals()
    faulthandler.register(signal.SIGUSR1)
    if orders["style"] == "asyncio":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        asyncio.run(run_async(orders, chance, signals))
    else:
        BlockingMember(orders, chance, signals).run()


if __name__ == "__main__":
    main()
