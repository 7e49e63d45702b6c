"""One run: a broker of ours, topics to read, and the Sparks, which stay up and are idle while others have a turn."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
import pyarrow as pa
from bench.broker.control import Control
from bench.broker.session import Session
from bench.broker.sides import Ottla, Running

import spark_artifacts
from ottla import Producer
from spark_program import SparkProgram, running

ROOT: Final = Path(__file__).resolve().parents[2]
PARTITIONS: Final = 4
KEY_BYTES: Final = 8
VALUE_BYTES: Final = 100
KEYS: Final = 1000
_TABLE_ROWS: Final = 100_000
_SPREAD_MS: Final = 10 * 60 * 1000
"""From the first record's time to the last one's: sixty windows of ten seconds."""
MEMORY: Final = "2g"


@dataclass(frozen=True, slots=True)
class Connector:
    """A connector in a Spark of a version, with so many cores."""

    name: str
    format: str
    cores: int = 2
    is_newest: bool = False
    """Whether the Spark is that of this environment, or the one that Spark's own connector is to be had for."""

    def settings(self) -> dict[str, str]:
        return {"spark.driver.memory": MEMORY} | ({} if self.is_newest else {"spark.jars": spark_artifacts.jars()})

    def environment(self) -> dict[str, str]:
        return {} if self.is_newest else spark_artifacts.environment()


class SparkSide:
    """A connector at work on the broker of the session."""

    def __init__(self, connector: Connector, program: SparkProgram, address: str) -> None:
        self.connector = connector
        self._program = program
        self._address = address

    def ask(self, request: str, options: Mapping[str, str], **arguments: Any) -> dict[str, float]:
        """What came out, and the CPU that all processes of this Spark used."""
        before_s = tree_cpu_s(self._program.pid)
        found: dict[str, float] = self._program.ask(
            request, connector=self.connector.format, options=self.addressed(options), **arguments
        )
        return {**found, "cpu_s": tree_cpu_s(self._program.pid) - before_s}

    def tell(self, request: str, **arguments: Any) -> None:
        self._program.ask(request, **arguments)

    def addressed(self, options: Mapping[str, str]) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._address, **options}


class SparkSession(Session):
    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._sparks: dict[Connector, SparkSide] = {}
        self._filled: set[str] = set()

    @property
    def running(self) -> Running:
        return self.broker(Ottla())

    def side(self, connector: Connector) -> SparkSide:
        if connector not in self._sparks:
            place = self.new_place()
            place.mkdir()
            program = self._exits.enter_context(
                running(
                    "bench.spark.program",
                    f"local[{connector.cores}]",
                    place,
                    path=ROOT,
                    settings=connector.settings(),
                    environment=connector.environment(),
                )
            )
            self._sparks[connector] = SparkSide(connector, program, self.running.address)
        return self._sparks[connector]

    def filled_topic(self, records: int) -> str:
        """With so many records."""
        return self.filled(f"filled-{records}", lambda topic: fill(self.running.address, topic, records))

    def filled(self, topic: str, fill: Callable[[str], None], configs: Mapping[str, str] | None = None) -> str:
        """A topic that is made and filled once, and read by all."""
        if topic not in self._filled:
            with Control(self.running.address) as control:
                control.create_topic(topic, PARTITIONS, configs or {})
            fill(topic)
            self._filled.add(topic)
        return topic

    def _warm_up(self, running: Running) -> None:
        """The broker has nothing to compile, and connectors get a turn that does not count."""


def fill(address: str, topic: str, records: int) -> None:
    """Keys that recur, values that say nothing, times that go on evenly; partitions are of one size."""
    chance, first_ms = random.Random(records), time.time_ns() // 10**6 - _SPREAD_MS
    keys = [b"%0*d" % (KEY_BYTES, number) for number in range(KEYS)]
    values = pa.array([chance.randbytes(VALUE_BYTES) for _ in range(min(records, _TABLE_ROWS))], pa.binary())
    with Producer({"bootstrap.servers": address, "acks": "all", "batch.size": 256 * 1024}) as producer:
        for first in range(0, records, _TABLE_ROWS):
            numbers = range(first, min(records, first + _TABLE_ROWS))
            table = {
                "key": pa.array([keys[number % KEYS] for number in numbers], pa.binary()),
                "value": values[: len(numbers)],
                "timestamp": pa.array([first_ms + number * _SPREAD_MS // records for number in numbers], pa.int64()),
                "partition": pa.array([number % PARTITIONS for number in numbers], pa.int32()),
            }
            producer.send_batch(topic, table)
        producer.flush()


def tree_cpu_s(pid: int) -> float:
    """Of a process and all below it: those that ended are counted by those that started them."""
    seconds = 0.0
    whole = psutil.Process(pid)
    for process in (whole, *whole.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        seconds += times.user + times.system + times.children_user + times.children_system
    return seconds
