"""Compaction beside Kafka's own cleaner: the same files, compacted by both.

    python bench/compaction.py [--mb 200] [--rounds 3] [--kafka] [--only WORD] [--markdown PATH]

A log is made for each row: keys that come ten times each at random, in batches of 16 KiB as a producer makes them, in
segments of 64 MiB, all of them dirty. We compact copies of it, and the best round counts; what was loaded once for all
compactions of a process, numba and the kernels, is not counted, as Kafka's classes are not.

With `--kafka` a real broker of 3.9.1 with its defaults finds as many copies of the same files, in topics of its own,
and compacts one after the other; its log says how long each took, and here too the best counts, so that its compiler
is warm. The rate of both is the bytes of the log by the time from the first byte read to the last segment swapped in.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.table import Table

from ottla.base.clock import SystemClock
from ottla.base.ids import TopicPartition
from ottla.log.compaction import Cleaner, CleanerOptions
from ottla.log.config import LogConfig
from ottla.log.loader import LoadOptions, load
from ottla.log.local_disk import LocalDisk
from ottla.records.batch import BatchView
from ottla.records.columns import encode_batches
from ottla.records.layout import Compression
from ottla.records.plain import BatchOptions

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

import kafka_artifacts

MB: Final = 10**6
SEGMENT_BYTES: Final = 64 * 2**20
TARGET: Final = 1.0
"""Of the rate of Kafka's cleaner."""
KAFKA: Final = "3.9.1"
_CLEANED = re.compile(
    r"cleaned log (\S+)-0 .*?\n\s*([\d.,]+) MB of log processed in [\d.,]+ seconds \(([\d.,]+) MB/sec\)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of records."""

    name: str
    value_bytes: int
    batch_bytes: int = 16 * 1024
    compression: Compression = Compression.NONE
    duplication: int = 10


CASES: Final = (
    Case("100-bytes", 100),
    Case("1-kib", 1024),
    Case("100-bytes-alone", 100, batch_bytes=1),
    Case("100-bytes-lz4", 100, compression=Compression.LZ4),
    Case("100-bytes-zstd", 100, compression=Compression.ZSTD),
    Case("1-kib-no-duplicates", 1024, duplication=1),
)


@dataclass(slots=True)
class Result:
    """What was measured of one case."""

    case: Case
    log_bytes: int
    left_bytes: int
    ours_s: float
    cpu_s: float
    kafka_s: float | None = None

    @property
    def ratio(self) -> float | None:
        return None if self.kafka_s is None else self.kafka_s / self.ours_s


def partition_of(case: Case) -> TopicPartition:
    return TopicPartition(case.name, 0)


def write_log(case: Case, directory: Path, log_bytes: int) -> None:
    """Every segment of it but the last is closed, and the last is empty."""
    config = LogConfig(compacts=True, deletes=False, segment_bytes=SEGMENT_BYTES)
    log = load(LocalDisk(), SystemClock(), directory, partition_of(case), config, LoadOptions())
    chance = random.Random(case.name)
    words = [chance.randbytes(chance.randrange(3, 9)).hex().encode() for _ in range(500)]
    text = b" ".join(chance.choices(words, k=40_000))
    values = [text[start : start + case.value_bytes] for start in range(0, len(text) - case.value_bytes, 131)]
    record_bytes = case.value_bytes + 16 + 8 + (61 if case.batch_bytes == 1 else 0)
    records = log_bytes // record_bytes
    keys = records // case.duplication
    now_ms = SystemClock().now_ms()
    numbers: Iterator[int] = (
        (chance.randrange(keys) for _ in range(records)) if case.duplication > 1 else iter(range(records))
    )
    for start in range(0, records, 20_000):
        count = min(20_000, records - start)
        batches = encode_batches(
            [values[chance.randrange(len(values))] for _ in range(count)],
            [b"key-%012d" % next(numbers) for _ in range(count)],
            timestamps_ms=now_ms,
            max_batch_bytes=case.batch_bytes,
            options=BatchOptions(compression=case.compression),
        )
        for batch in batches:
            BatchView(batch).assign_offset(0)
            log.append_as_leader(batch, 0)
    log.roll()
    log.flush()
    log.close()


def compact(case: Case, directory: Path) -> tuple[float, float, int]:
    """Seconds by the clock and of CPU, and the bytes that are left."""
    disk, clock = LocalDisk(), SystemClock()
    config = LogConfig(compacts=True, deletes=False, segment_bytes=SEGMENT_BYTES)
    log = load(disk, clock, directory, partition_of(case), config, LoadOptions(clean=True))
    log.set_high_watermark(log.next_offset)
    cleaner = Cleaner(disk, clock, CleanerOptions())
    compaction = cleaner.choose([log])
    if compaction is None:
        raise RuntimeError(f"{directory}: there is nothing to compact")
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    cleaner.run(compaction)
    elapsed_s, cpu_s = time.perf_counter() - started_s, time.process_time() - started_cpu_s
    left_bytes = log.size
    log.close()
    return elapsed_s, cpu_s, left_bytes


def measure(case: Case, source: Path, place: Path, rounds: int) -> Result:
    log_bytes = sum(path.stat().st_size for path in source.glob("*.log"))
    best: tuple[float, float, int] | None = None
    for turn in range(rounds):
        copy = place / f"round-{turn}" / source.name
        shutil.copytree(source, copy)
        os.sync()
        found = compact(case, copy)
        best = min(best, found) if best else found
        shutil.rmtree(copy.parent)
    if best is None:
        raise ValueError("at least one round is needed")
    return Result(case, log_bytes, best[2], best[0], best[1])


# Kafka's own.


def measure_kafka(sources: dict[str, Path], place: Path, rounds: int) -> dict[str, float]:
    """The seconds that a real broker's cleaner took for each log, the best of its rounds."""
    topics = {f"{name}.{turn}": name for turn in range(rounds) for name in sources}
    data = place / "data"
    zookeeper_port, broker_port = free_port(), free_port()
    zookeeper = properties(
        place / "zookeeper.properties",
        {
            "dataDir": str(place / "zookeeper"),
            "clientPort": str(zookeeper_port),
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
        },
    )
    broker = properties(
        place / "server.properties",
        {
            "broker.id": "1",
            "zookeeper.connect": f"127.0.0.1:{zookeeper_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{broker_port}",
            "log.dirs": str(data),
            "log.retention.ms": "-1",
        },
    )
    logging = properties(
        place / "log4j.properties",
        {
            "log4j.rootLogger": "WARN, out",
            "log4j.logger.kafka.log.LogCleaner": "INFO",
            "log4j.appender.out": "org.apache.log4j.ConsoleAppender",
            "log4j.appender.out.layout": "org.apache.log4j.PatternLayout",
            "log4j.appender.out.layout.ConversionPattern": "%p %c: %m%n",
        },
    )
    output = place / "broker.log"
    java = ["java", "-Xmx1g", f"-Dlog4j.configuration=file:{logging}", "-cp", kafka_artifacts.classpath(KAFKA)]
    with running(
        [*java, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(zookeeper)], place / "zk.log", zookeeper_port
    ):
        with running([*java, "kafka.Kafka", str(broker)], output, broker_port):
            create_topics(f"127.0.0.1:{broker_port}", list(topics))
        for topic, name in topics.items():
            folder = data / f"{topic}-0"
            for file in (*sources[name].glob("0*"), sources[name] / "leader-epoch-checkpoint"):
                shutil.copy(file, folder / file.name)
        os.sync()
        output.unlink()
        found: dict[str, float] = {}
        with running([*java, "kafka.Kafka", str(broker)], output, broker_port):
            deadline_s = time.monotonic() + 1200
            while len(found) < len(topics):
                if time.monotonic() > deadline_s:
                    raise RuntimeError(f"Kafka compacted only {sorted(found)}; see {output}")
                time.sleep(1)
                for topic, megabytes, rate in _CLEANED.findall(output.read_text(errors="replace")):
                    if topic in topics:
                        found.setdefault(topic, float(megabytes.replace(",", "")) / float(rate.replace(",", "")))
    return {name: min(found[topic] for topic in topics if topics[topic] == name) for name in sources}


def create_topics(address: str, topics: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.bytes": str(SEGMENT_BYTES),
        "segment.ms": str(2**62),
    }
    wanted = [NewTopic(topic, 1, 1, config=config) for topic in topics]
    for created in admin.create_topics(wanted, operation_timeout=60).values():
        created.result()


def properties(file: Path, settings: dict[str, str]) -> Path:
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    return file


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: list[str], output: Path, port: int) -> Iterator[None]:
    """A server, from when its port answers until the end of the block."""
    with output.open("ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
    try:
        deadline_s = time.monotonic() + 120
        while not answers(port):
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"the server did not start:\n{output.read_text(errors='replace')[-2000:]}")
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait(120)


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


# The report.

HEADINGS: Final = ("log", "MB", "left MB", "ottla MB/s", "ottla MB/s of CPU", "Kafka MB/s", "ours ÷ Kafka's", "target")


def cells(result: Result) -> list[str]:
    megabytes = result.log_bytes / MB
    kafka = "" if result.kafka_s is None else f"{megabytes / result.kafka_s:,.0f}"
    ratio = "" if result.ratio is None else f"{result.ratio:.1f}x"
    verdict = "" if result.ratio is None else "met" if result.ratio >= TARGET else "missed"
    return [
        result.case.name,
        f"{megabytes:,.0f}",
        f"{result.left_bytes / MB:,.0f}",
        f"{megabytes / result.ours_s:,.0f}",
        f"{megabytes / result.cpu_s:,.0f}",
        kafka,
        ratio,
        verdict,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--mb", type=int, default=200, help="size of each log before it is compressed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kafka", action="store_true", help="measure Kafka's cleaner as well (needs Java)")
    parser.add_argument("--only", default="", help="only logs with this in their name")
    parser.add_argument("--directory", type=Path, help="where files are made and removed")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    cases = [case for case in CASES if options.only in case.name]
    with tempfile.TemporaryDirectory(prefix="ottla-bench-", dir=options.directory) as directory:
        place = Path(directory)
        warm = Case("warm-up", 100)
        write_log(warm, place / "warm-up-0", MB)
        compact(warm, place / "warm-up-0")
        sources = {case.name: place / "sources" / f"{case.name}-0" for case in cases}
        for case in cases:
            write_log(case, sources[case.name], options.mb * MB)
        results = [measure(case, sources[case.name], place / "ours", options.rounds) for case in cases]
        if options.kafka:
            (place / "kafka").mkdir()
            taken_s = measure_kafka(sources, place / "kafka", options.rounds)
            for result in results:
                result.kafka_s = taken_s[result.case.name]
    rows = [cells(result) for result in results]
    table = Table(title="Compaction", title_justify="left")
    for index, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="right" if 0 < index < 7 else "left")
    for row in rows:
        table.add_row(*row, style="red" if row[-1] == "missed" else "")
    Console(width=max(Console().width, 140)).print(table)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    facts = f"Python {platform.python_version()} on {machine}"
    print(facts)
    if options.markdown:
        flags = f" --mb {options.mb} --rounds {options.rounds}" + (" --kafka" if options.kafka else "")
        lines = ["# Compaction", "", f"    python bench/compaction.py{flags}", ""]
        lines += [f"| {' | '.join(HEADINGS)} |", "| --- |" + " ---: |" * 6 + " --- |"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
        lines += ["", f"{facts}; Kafka {KAFKA} with its defaults and 1 GB of heap.", "", NOTES, ""]
        options.markdown.write_text("\n".join(lines), encoding="utf-8")


NOTES: Final = (
    "The best of the rounds of each. MB/s: bytes of the log before, by the time from the first byte read to the last"
    " segment swapped in. MB/s of CPU: by the CPU time of our process, in which one thread works. Ours is measured"
    " first and Kafka's behind it, so that on a machine with other work the ratio is as uncertain as that work."
)


if __name__ == "__main__":
    main()
