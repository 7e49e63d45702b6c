"""A process that makes others and lets them die. Each opens the log directory, works on its log, and says on standard
output what it begins and what is done, until it is killed.

One line of JSON in, a seed: lines of JSON out, the events, and at last how it ended. A process that is forked costs
milliseconds where one that imports everything anew costs half a second.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from random import Random
from typing import NoReturn

from crash.killing_disk import Fate, KillingDisk
from logs.workload import FOREVER_MS, Event, Work, config_of
from ottla.base.clock import SystemClock
from ottla.log.directories import DirectoryOptions, LogDirectories
from ottla.log.local_disk import LocalDisk

LONGEST_STEPS = 3000
LONGEST_DELAY_MS = 60
OPTIONS = DirectoryOptions(broker_id=1, producer_id_expiration_ms=FOREVER_MS)


def say(message: object) -> None:
    """In one write, shorter than a pipe takes at once: all of it arrives, or nothing."""
    os.write(1, json.dumps(message).encode() + b"\n")


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
    child = os.fork()
    if child == 0:
        try:
            live(directory, seed, fate)
        except BaseException as error:
            say({"error": repr(error)})
        finally:
            os._exit(1)
    if delay_ms is not None:
        time.sleep(delay_ms / 1000)
        os.kill(child, signal.SIGKILL)  # nobody has waited for it, so the number still means it
    _, status = os.waitpid(child, 0)
    how = f"{fate.kind} operation" if fate is not None else f"{delay_ms:.1f} ms"
    say({"done": os.waitstatus_to_exitcode(status), "how": how})


def main() -> None:
    directory = Path(sys.argv[1])
    for line in sys.stdin:
        run_one(directory, int(line))


if __name__ == "__main__":
    main()
