"""The log beside what it stands on: the same bytes written, read and checked by bare system calls, in one run.

Run: python bench/log.py [--rounds 7] [--large-gb 4] [--only PART] [--directory FOLDER] [--markdown PATH]

What runs in one thread over pages in memory is measured in CPU time, the kernel's part included, so that neither other
work on the machine nor the disk's writeback decides; what waits for the disk is measured by the clock. Ours and what is
beside it take turns, and the best round of each counts. Files are real, and removed afterwards: the large log needs
that much disk (`--large-gb 20` is the size that is promised). It is read where its pages are in memory, for it is the
way to a batch that must not grow with the log.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import random
import shutil
import tempfile
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from crc32c import crc32c
from rich.console import Console
from rich.table import Table

from ottla.base.clock import SystemClock
from ottla.base.ids import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.group_commit import GroupCommit
from ottla.log.loader import LoadOptions, load
from ottla.log.local_disk import LocalDisk
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import BatchView
from ottla.records.layout import ATTRIBUTES_AT
from ottla.records.plain import BatchOptions, encode_batch
from ottla.records.record import Record
from ottla.records.record_walk import walker

KIB, MIB, GB = 2**10, 2**20, 10**9
APPEND_TARGET: Final = 0.7
"""Of the rate of a bare write loop, at 64 KiB."""
FLAT_TARGET: Final = 0.8
"""Of the reads a second in a small log, in a large one."""
PARTITION: Final = TopicPartition("bench", 0)
NO_OFFSET: Final = bytes(8)

Sample = Callable[[], float]
"""Does one round's work and tells its seconds; what comes before and behind it is not counted."""


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    ours: str
    beside: str
    peer: str
    ratio: float
    target: float | None = None

    @property
    def target_met(self) -> bool:
        return self.target is None or self.ratio >= self.target

    def cells(self) -> list[str]:
        target = "" if self.target is None else f"≥ {self.target:g}x: {'met' if self.target_met else 'MISSED'}"
        return [self.title, self.ours, self.beside, self.peer, f"{self.ratio:.2f}x", target]


@dataclass(frozen=True, slots=True)
class Settings:
    directory: Path
    rounds: int
    large_gb: float


# --- what is measured with --------------------------------------------------------------------------------------------


def best_of(samples: list[Sample], rounds: int) -> list[float]:
    """The best seconds of each, all of them in turns."""
    best = [float("inf")] * len(samples)
    for _ in range(rounds):
        for index, sample in enumerate(samples):
            gc.collect()
            gc.disable()
            try:
                best[index] = min(best[index], sample())
            finally:
                gc.enable()
    return best


def batch_of(size: int) -> bytearray:
    """A batch of that many bytes, as a client sends it: records of about 1 KiB, not compressed."""
    now_ms = SystemClock().now_ms()
    values = [bytes([65 + index % 26]) * 1000 for index in range(max(1, size // KIB))]
    values[-1] = b""
    while True:
        batch = encode_batch([Record(i, now_ms, None, value) for i, value in enumerate(values)], BatchOptions())
        if len(batch) >= size:
            return bytearray(batch)
        values[-1] += b"v" * max(1, size - len(batch) - 4)


def copies_of(batch: bytearray, count: int) -> list[bytearray]:
    return [bytearray(batch) for _ in range(count)]


def copies_with_sequences(batch: bytearray, count: int) -> list[bytearray]:
    """What an idempotent producer sends, one after the other."""
    batches = copies_of(batch, count)
    for sequence, data in enumerate(batches):
        BatchView(data).assign_producer(7, 0, sequence)
    return batches


def open_log(folder: Path, config: LogConfig | None = None, *, clean: bool = True) -> PartitionLog:
    options = LoadOptions(clean=clean)
    return load(LocalDisk(), SystemClock(), folder, PARTITION, config or LogConfig(), options)


def fill(log: PartitionLog, size: int, batch: bytearray) -> None:
    for _ in range(size // len(batch)):
        batch[:8] = NO_OFFSET
        log.append_as_leader(batch, 0)
    log.set_high_watermark(log.next_offset)


def leave(log: PartitionLog) -> None:
    """What closing does, without waiting for the disk: everything is written, nothing synced."""
    log.producers.take_snapshot(log.next_offset)
    log.active.become_inactive()
    for segment in log.segments:
        segment.abandon()


def our_append(folder: Path, batches: list[bytearray]) -> Sample:
    """As a broker does it: each batch is a view of the buffer that its request was received into."""
    first = batch_of(170)
    views = [memoryview(batch) for batch in batches]

    def sample() -> float:
        for batch in batches:
            batch[:8] = NO_OFFSET
        log = open_log(folder)
        append = log.append_as_leader
        append(bytearray(first), 0)  # writes the leader's epoch down
        start = time.thread_time()
        for view in views:
            append(view, 0)
        taken_s = time.thread_time() - start
        leave(log)
        shutil.rmtree(folder)
        return taken_s

    return sample


def replica_append(folder: Path, batches: list[bytearray]) -> Sample:
    """The batches as a leader's fetch response brings them, with their offsets."""

    def sample() -> float:
        log = open_log(folder)
        offset = log.append_as_leader(batch_of(170), 0).last_offset + 1
        for batch in batches:
            view = BatchView(batch)
            view.assign_offset(offset)
            offset = view.next_offset
        append = log.append_as_follower
        start = time.thread_time()
        for batch in batches:
            append(batch)
        taken_s = time.thread_time() - start
        leave(log)
        shutil.rmtree(folder)
        return taken_s

    return sample


def bare_append(path: Path, batches: list[bytearray]) -> Sample:
    first = batch_of(170)

    def sample() -> float:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        write = os.write
        write(descriptor, first)  # lets batches begin anywhere in a page, as ours do
        start = time.thread_time()
        for batch in batches:
            crc32c(memoryview(batch)[ATTRIBUTES_AT:])
            write(descriptor, batch)
        taken_s = time.thread_time() - start
        os.close(descriptor)
        path.unlink()
        return taken_s

    return sample


# --- the rows ---------------------------------------------------------------------------------------------------------


def append_rows(settings: Settings) -> Iterator[Row]:
    walker.load()  # as a busy broker has done
    rounds = 3 * settings.rounds  # they are short
    folder, bare = settings.directory / "append-0", settings.directory / "append.bare"
    for size, title in ((KIB, "1 KiB"), (16 * KIB, "16 KiB"), (64 * KIB, "64 KiB"), (MIB, "1 MiB")):
        batches = copies_of(batch_of(size), max(32, min(4000, 16 * MIB // size)))
        total_mb = sum(map(len, batches)) / 1e6
        ours_s, bare_s = best_of([our_append(folder, batches), bare_append(bare, batches)], rounds)
        yield Row(
            f"append as leader, batches of {title}",
            f"{total_mb / ours_s:,.0f} MB/s",
            f"{total_mb / bare_s:,.0f} MB/s",
            "bare write and CRC",
            bare_s / ours_s,
            APPEND_TARGET if size == 64 * KIB else None,
        )
    batches = copies_of(batch_of(64 * KIB), 256)
    total_mb = sum(map(len, batches)) / 1e6
    ours_s, bare_s = best_of([replica_append(folder, batches), bare_append(bare, batches)], rounds)
    yield Row(
        "append as follower, batches of 64 KiB",
        f"{total_mb / ours_s:,.0f} MB/s",
        f"{total_mb / bare_s:,.0f} MB/s",
        "bare write and CRC",
        bare_s / ours_s,
    )
    one = batch_of(170)
    for title, batches in (
        ("append of one record of 100 B", copies_of(one, 4000)),
        ("the same, of an idempotent producer", copies_with_sequences(one, 4000)),
    ):
        ours_s, bare_s = best_of([our_append(folder, batches), bare_append(bare, batches)], rounds)
        each = 1e6 / len(batches)
        yield Row(title, f"{ours_s * each:.1f} µs", f"{bare_s * each:.1f} µs", "bare write and CRC", bare_s / ours_s)


def reads(log: PartitionLog, offsets: list[int]) -> Sample:
    def sample() -> float:
        read, bound = log.read, log.high_watermark
        start = time.thread_time()
        for offset in offsets:
            read(offset, 64 * KIB, bound=bound)
        return time.thread_time() - start

    return sample


def read_rows(settings: Settings) -> Iterator[Row]:
    choice = random.Random(7)
    for size, title in ((16 * KIB, "16 KiB"), (KIB, "1 KiB")):
        small_gb, large_gb = (1.0, settings.large_gb) if size > KIB else (0.1, 0.4)
        logs = [open_log(settings.directory / f"read-{index}") for index in range(2)]
        samples: list[Sample] = []
        for log, gigabytes in zip(logs, (small_gb, large_gb), strict=True):
            fill(log, int(gigabytes * GB), batch_of(size))
            samples.append(reads(log, [choice.randrange(log.next_offset) for _ in range(3000)]))
        for sample in samples:
            sample()
        small_s, large_s = best_of(samples, 2 * settings.rounds)
        for log in logs:
            leave(log)
            shutil.rmtree(log.directory)
        yield Row(
            f"read at random offsets, {large_gb:g} GB of {title} batches",
            f"{3000 / large_s:,.0f} slices/s",
            f"{3000 / small_s:,.0f} slices/s",
            f"the same in {small_gb:g} GB",
            small_s / large_s,
            FLAT_TARGET if size > KIB else None,
        )


def reopening(folder: Path, config: LogConfig) -> Sample:
    def sample() -> float:
        start = time.thread_time()
        log = open_log(folder, config)
        taken_s = time.thread_time() - start
        leave(log)
        return taken_s

    return sample


def listing(folder: Path) -> Sample:
    def sample() -> float:
        start = time.thread_time()
        for entry in os.scandir(folder):
            if entry.name.endswith(".log"):
                entry.stat()
        return time.thread_time() - start

    return sample


def memory_of_open_log(folder: Path, config: LogConfig) -> int:
    leave(open_log(folder, config))  # what is made once is not the log's
    tracemalloc.start()
    log = open_log(folder, config)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    leave(log)
    return held


def reopen_rows(settings: Settings) -> Iterator[Row]:
    config = LogConfig(segment_bytes=64 * KIB)
    folders = {}
    for segments in (10, 1000):
        folder = folders[segments] = settings.directory / f"reopen-{segments}"
        log = open_log(folder, config)
        fill(log, segments * 64 * KIB, batch_of(16 * KIB))
        leave(log)
    few, many = folders[10], folders[1000]
    few_s, many_s, bare_s = best_of([reopening(few, config), reopening(many, config), listing(many)], settings.rounds)
    title = "reopen a clean log of 1,000 segments"
    yield Row(title, f"{many_s * 1e3:,.1f} ms", f"{few_s * 1e3:,.1f} ms", "one of 10 segments", few_s / many_s)
    yield Row("the same", f"{many_s * 1e3:,.1f} ms", f"{bare_s * 1e3:,.1f} ms", "list and stat", bare_s / many_s)
    many_bytes, few_bytes = (memory_of_open_log(folder, config) for folder in (many, few))
    yield Row(
        "memory of it, opened",
        f"{many_bytes / KIB:,.0f} KiB",
        f"{few_bytes / KIB:,.0f} KiB",
        "one of 10 segments",
        few_bytes / many_bytes,
    )
    for folder in (few, many):
        shutil.rmtree(folder)


def recovery(folder: Path) -> Sample:
    def sample() -> float:
        start = time.thread_time()
        log = open_log(folder, clean=False)
        taken_s = time.thread_time() - start
        leave(log)
        return taken_s

    return sample


def checked_reading(path: Path, batch_size: int) -> Sample:
    """What any recovery must do: read all bytes, and the CRC over each batch."""

    def sample() -> float:
        descriptor = os.open(path, os.O_RDONLY)
        chunk_bytes = max(MIB // batch_size, 1) * batch_size
        start = time.thread_time()
        while data := os.read(descriptor, chunk_bytes):
            view = memoryview(data)
            for at in range(0, len(data), batch_size):
                crc32c(view[at + ATTRIBUTES_AT : at + batch_size])
        taken_s = time.thread_time() - start
        os.close(descriptor)
        return taken_s

    return sample


def recovery_rows(settings: Settings) -> Iterator[Row]:
    folder = settings.directory / "recover-0"
    for size, total, title in ((64 * KIB, 256 * MIB, "64 KiB"), (KIB, 32 * MIB, "1 KiB")):
        log, batch = open_log(folder), batch_of(size)
        fill(log, total, batch)
        path = log.active.path
        leave(log)
        total_mb = path.stat().st_size / 1e6
        ours_s, bare_s = best_of([recovery(folder), checked_reading(path, len(batch))], settings.rounds)
        shutil.rmtree(folder)
        yield Row(
            f"recovery, batches of {title}",
            f"{total_mb / ours_s:,.0f} MB/s",
            f"{total_mb / bare_s:,.0f} MB/s",
            "bare read and CRC",
            bare_s / ours_s,
        )


def committing(log: PartitionLog, commit: GroupCommit, batches: list[bytearray], waiters: int) -> Sample:
    """So many producers, each of which sends its next batch when the last one is safe."""

    def sample() -> float:
        for batch in batches:
            batch[:8] = NO_OFFSET
        waiting: deque[Future[None]] = deque()
        start = time.perf_counter()
        for batch in batches:
            if len(waiting) == waiters:
                waiting.popleft().result()
            waiting.append(commit.wait_for(log, log.append_as_leader(batch, 0).last_offset + 1))
        for answer in waiting:
            answer.result()
        return time.perf_counter() - start

    return sample


def flushing(log: PartitionLog, batches: list[bytearray]) -> Sample:
    def sample() -> float:
        for batch in batches:
            batch[:8] = NO_OFFSET
        start = time.perf_counter()
        for batch in batches:
            log.append_as_leader(batch, 0)
            log.flush()
        return time.perf_counter() - start

    return sample


def bare_syncing(path: Path, batches: list[bytearray]) -> Sample:
    def sample() -> float:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        start = time.perf_counter()
        for batch in batches:
            os.write(descriptor, batch)
            os.fdatasync(descriptor)
        taken_s = time.perf_counter() - start
        os.close(descriptor)
        path.unlink()
        return taken_s

    return sample


def paired(one: Sample, other: Sample, rounds: int) -> tuple[float, float, float]:
    """Medians of the seconds of both and of how many times those of the other the one took, round by round: a disk has
    moods, and the best moment of one beside that of the other would say nothing."""
    pairs = [(one(), other()) for _ in range(rounds)]
    return (
        median(first for first, _ in pairs),
        median(second for _, second in pairs),
        median(first / second for first, second in pairs),
    )


def commit_rows(settings: Settings) -> Iterator[Row]:
    log, commit = open_log(settings.directory / "commit-0"), GroupCommit()
    batches = copies_of(batch_of(KIB), 50)
    flushed, bare = flushing(log, batches), bare_syncing(settings.directory / "commit.bare", batches)
    bare_s, flush_s, ratio = paired(bare, flushed, 2 * settings.rounds)
    yield Row(
        "append of 1 KiB and flush, each",
        f"{len(batches) / flush_s:,.0f} appends/s",
        f"{len(batches) / bare_s:,.0f} appends/s",
        "bare write and fdatasync",
        ratio,
    )
    for waiters, count in ((1, 50), (10, 250), (100, 1500)):
        many, rounds = copies_of(batch_of(KIB), count), 2 * settings.rounds
        committed = committing(log, commit, many, waiters)
        syncs = commit.sync_count
        flush_s, commit_s, ratio = paired(flushed, committed, rounds)
        shared = rounds * count / (commit.sync_count - syncs)
        yield Row(
            f"group commit, {waiters} waiting: {shared:.0f} share a sync",
            f"{count / commit_s:,.0f} appends/s",
            f"{len(batches) / flush_s:,.0f} appends/s",
            "a flush for each append",
            ratio * count / len(batches),
        )
    commit.close()
    leave(log)
    shutil.rmtree(log.directory)


SECTIONS: Final = {
    "append": append_rows,
    "read": read_rows,
    "reopen": reopen_rows,
    "recovery": recovery_rows,
    "commit": commit_rows,
}

# --- what is told -----------------------------------------------------------------------------------------------------

HEADINGS: Final = ["", "ottla", "beside it", "which is", "ratio", "target"]


def facts(settings: Settings) -> list[str]:
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    return [
        f"Python {platform.python_version()} on {machine}.",
        f"The best of {settings.rounds} rounds (appends: {3 * settings.rounds}) in turns, garbage collection off. CPU "
        "time of the thread and the kernel's work for it; where a disk is waited for (flush, group commit) the "
        f"clock's, and medians of {2 * settings.rounds} pairs. Every file is new, as a segment is, so writing includes "
        "making the pages it is kept in.",
        "Ratio: ours to what is beside it, more is better. Reads answer slices of up to 64 KiB, which are not copied: "
        "the way to them is measured, at 3,000 places whose pages are in memory.",
    ]


def markdown(rows: list[Row], lines: list[str], command: str) -> str:
    def line(cells: list[str]) -> str:
        return f"| {' | '.join(cells)} |"

    table = [line(HEADINGS), line(["---", "---:", "---:", "---", "---:", "---"]), *(line(row.cells()) for row in rows)]
    return "\n".join(["# The log", "", f"    {command}", "", *table, "", "\n\n".join(lines), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--large-gb", type=float, default=4, help="size of the log that is read beside one of 1 GB")
    parser.add_argument("--only", default="", help=f"only one part: {', '.join(SECTIONS)}")
    parser.add_argument("--directory", type=Path, help="where files are made and removed; a real disk, not memory")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-bench-", dir=options.directory) as directory:
        settings = Settings(Path(directory), options.rounds, options.large_gb)
        rows = [row for name, make in SECTIONS.items() if options.only in name for row in make(settings)]
    table = Table(title="The log", title_justify="left")
    for index, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="right" if index in (1, 2, 4) else "left")
    for row in rows:
        table.add_row(*row.cells(), style="" if row.target_met else "red")
    lines = facts(settings)
    console = Console(width=max(Console().width, 140))
    console.print(table)
    for line in lines:
        console.print(line, highlight=False, markup=False)
    if options.markdown:
        command = f"python bench/log.py --rounds {options.rounds} --large-gb {options.large_gb:g}"
        options.markdown.write_text(markdown(rows, lines, command))


if __name__ == "__main__":
    main()
