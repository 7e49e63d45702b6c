"""One run of the bench: its directory, the two brokers that stay up through it, and their topics."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Final

from bench.broker import driver
from bench.broker.control import Control, first_acknowledged
from bench.broker.frames import batch_of
from bench.broker.sides import Running, Side

_REMOVAL_S: Final = 1.5


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure."""

    seconds: float = 3.0
    raw_mb: int = 1500
    """Less than what makes a kernel begin to write back dirty pages, so that no disk is measured."""
    client_records: int = 1_500_000
    client_mb: int = 400
    fetch_passes: int = 3
    latency_s: int = 4
    idle_s: float = 10.0
    many_partitions: int = 10_000
    many_connections: int = 2_000

    def client_total_mb(self, value_bytes: int) -> int:
        return min(self.client_mb, self.client_records * value_bytes // 10**6)

    def warming_up(self) -> Effort:
        """For a first turn that does not count: Kafka's compiler has seen the work by then."""
        return replace(
            self,
            seconds=self.seconds / 2,
            raw_mb=self.raw_mb // 3,
            client_mb=self.client_mb // 4,
            client_records=self.client_records // 4,
            fetch_passes=1,
            latency_s=max(2, self.latency_s // 2),
        )


QUICK = Effort(
    seconds=1.0,
    raw_mb=300,
    client_records=300_000,
    client_mb=100,
    fetch_passes=2,
    latency_s=2,
    idle_s=1.0,
    many_partitions=1_000,
    many_connections=200,
)


class Session:
    """Brokers start when a line first asks for them, and stay up: both are idle while the other has its turn."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._brokers: dict[str, Running] = {}
        self._numbers = count()
        self._exits = ExitStack()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def new_place(self) -> Path:
        return self._place / str(next(self._numbers))

    def broker(self, side: Side) -> Running:
        if side.name not in self._brokers:
            place = self.new_place()
            side.prepare(place)
            running, _ = self._exits.enter_context(started(side, place))
            self._brokers[side.name] = running
            self._warm_up(running)
        return self._brokers[side.name]

    def _warm_up(self, running: Running) -> None:
        """Some of all work, for Kafka's compiler: what comes first must not find it colder than what comes later."""
        which = {"address": running.address, "pid": running.pid}
        with self.topic(running, 2) as topic:
            driver.run("big_batches", **which, topic=topic, value_bytes=1024, connections=2, total_mb=500)
            passes = {"connections": 2, "in_flight": 4, "passes": 2}
            driver.run("catch_up", **which, topic=topic, value_bytes=1024, **passes)
        with self.topic(running) as topic:
            load = {"partitions": 1, "value_bytes": 100, "in_flight": 50, "seconds": 3}
            driver.run("one_record", **which, topic=topic, **load)

    @contextmanager
    def topic(
        self, running: Running, partitions: int = 1, configs: Mapping[str, str] = MappingProxyType({})
    ) -> Iterator[str]:
        """A new topic for one measurement. What was written before is on the disk by then, whoever wrote it."""
        name = f"bench-{next(self._numbers)}"
        with Control(running.address) as control:
            control.create_topic(name, partitions, configs)
            os.sync()
            yield name
            control.delete_topic(name)
        _await_removal(running.output.parent, name)


def _await_removal(place: Path, topic: str) -> None:
    """The folders of a deleted topic stay for a while, and with them its pages in memory. Kafka looks after them only
    every half a minute: nobody waits for that long."""
    give_up_s = time.monotonic() + _REMOVAL_S
    folders = [folder for folder in (place / "data", place / "data" / "logs") if folder.is_dir()]
    while time.monotonic() < give_up_s and any(
        _is_deleted(path.name, topic) for folder in folders for path in folder.iterdir()
    ):
        time.sleep(0.1)


def _is_deleted(folder_name: str, topic: str) -> bool:
    return folder_name.startswith(f"{topic}-") and folder_name.endswith("-delete")


@contextmanager
def started(side: Side, place: Path) -> Iterator[tuple[Running, float]]:
    """A broker that has acknowledged a record of a topic of its own making, and the seconds from its start to then."""
    batch = batch_of(100, 1)
    begun_s = time.perf_counter()
    running = side.start(place)
    try:
        first_acknowledged(running.address, "first", batch, alive=running.alive)
        yield running, time.perf_counter() - begun_s
    finally:
        running.stop()
