"""Processes that are made to die, and what they say before they do.

A server forks one child a seed: that costs milliseconds, where a process that imports everything anew costs half a
second. Seeds come in, one a line; lines of JSON go out: what the child says, and at last how it ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn


def say(message: object) -> None:
    """In one write, shorter than a pipe takes at once: all of it arrives, or nothing."""
    os.write(1, json.dumps(message).encode() + b"\n")


def let_die(live: Callable[[], NoReturn], how: str, *, after_ms: float | None = None) -> None:
    """Runs `live` in a child, which is killed after that time or kills itself, and says how it ended."""
    child = os.fork()
    if child == 0:
        try:
            live()
        except BaseException as error:
            say({"error": repr(error)})
        finally:
            os._exit(1)
    if after_ms is not None:
        time.sleep(after_ms / 1000)
        os.kill(child, signal.SIGKILL)  # nobody has waited for it, so the number still means it
    _, status = os.waitpid(child, 0)
    say({"done": os.waitstatus_to_exitcode(status), "how": how})


def serve(run_one: Callable[[Path, int], None]) -> None:
    """The main program: a directory as argument, seeds on standard input."""
    directory = Path(sys.argv[1])
    for line in sys.stdin:
        run_one(directory, int(line))
