"""Children that open the log directory, work on its log, and say what they begin and what is done, until they die."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import NoReturn

from crash.children import let_die, say, serve
from crash.killing_disk import Fate, KillingDisk
from ottla.base.clock import SystemClock
from ottla.log.directories import DirectoryOptions, LogDirectories
from ottla.log.local_disk import LocalDisk
from support.logs.workload import FOREVER_MS, Event, Work, config_of

LONGEST_STEPS = 3000
LONGEST_DELAY_MS = 60
OPTIONS = DirectoryOptions(broker_id=1, producer_id_expiration_ms=FOREVER_MS)


def tell(event: Event) -> None:
    say(event)


def live(directory: Path, seed: int, fate: Fate | None) -> NoReturn:
    """The life of one process, if nobody ends it before."""
    random = Random(seed)
    disk = KillingDisk(fate) if fate is not None else LocalDisk()
    directories = LogDirectories(disk, SystemClock(), [directory], OPTIONS)
    directories.open(config_of)
    work = Work(directories, random, tell, name=f"{seed}")
    work.create()
    for _ in range(LONGEST_STEPS):
        work.step()
    os._exit(0)


def run_one(directory: Path, seed: int) -> None:
    random = Random(seed)
    fate = Fate.draw(random) if random.random() < 0.6 else None
    delay_ms = random.uniform(0, LONGEST_DELAY_MS) if fate is None else None
    how = f"{fate.kind} operation" if fate is not None else f"{delay_ms:.1f} ms"
    let_die(lambda: live(directory, seed, fate), how, after_ms=delay_ms)


if __name__ == "__main__":
    serve(run_one)
