"""Children that append records by key, flush, say so, and compact, until the disk kills them at an operation."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import NoReturn

from crash.appender import OPTIONS
from crash.children import let_die, say, serve
from crash.killing_disk import Fate, KillingDisk
from ottla.base.clock import SystemClock
from ottla.base.ids import TopicPartition
from ottla.log.compaction import Cleaner, CleanerOptions
from ottla.log.compaction import kernels as _kernels
from ottla.log.config import LogConfig
from ottla.log.directories import LogDirectories
from ottla.records import Record, encode_batch

PARTITION = TopicPartition("by-key", 0)
CONFIG = LogConfig(
    compacts=True, deletes=False, segment_bytes=1500, min_cleanable_dirty_ratio=0.0, file_delete_delay_ms=0
)
KEYS = 12
ROUNDS = 40
LOADED_BEFORE_FORKING = _kernels
"""What every child needs: imported once."""


def live(directory: Path, seed: int, fate: Fate) -> NoReturn:
    """The life of one process, if nothing ends it before."""
    random = Random(seed)
    disk, clock = KillingDisk(fate), SystemClock()
    directories = LogDirectories(disk, clock, [directory], OPTIONS)
    directories.open(lambda _: CONFIG)
    log = directories.create(PARTITION, CONFIG)
    cleaner = Cleaner(disk, clock, CleanerOptions())
    for turn in range(ROUNDS):
        written = {}
        for number in range(8):
            key, value = f"key {random.randrange(KEYS)}", f"{seed}.{turn}.{number}"
            say({"begun": [key, value]})
            record = Record(0, clock.now_ms(), key.encode(), value.encode())
            log.append_as_leader(encode_batch([record]), 0)
            written[key] = value
        log.flush()
        say({"kept": written})
        log.set_high_watermark(log.next_offset)
        log.roll()
        compaction = cleaner.choose([log])
        if compaction is not None:
            while (group := compaction.clean_next()) is not None:
                compaction.apply(group)
            cleaner.finish(compaction)
            say({"compacted": log.next_offset})
        log.remove_due()
        directories.checkpoint()
    os._exit(0)


def draw_fate(random: Random) -> Fate:
    """The renames of a swap more often than anything else."""
    if random.random() < 0.6:
        return Fate("replace", random.randint(6, 36), random.random())
    kind = random.choice(("any", "append", "sync", "remove", "sync_directory"))
    return Fate(kind, random.randint(1, 300 if kind in ("any", "append") else 60), random.random())


def run_one(directory: Path, seed: int) -> None:
    fate = draw_fate(Random(seed))
    let_die(lambda: live(directory, seed, fate), fate.kind)


if __name__ == "__main__":
    serve(run_one)
