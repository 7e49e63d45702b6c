"""Waiting for what another process, thread or task brings about: one for threads, one for coroutines.

Both fail the test with `what` if it does not come. The limit is there for what never comes, and is generous: a machine
under load is slow, and nothing that works waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

WAIT_S = 120.0
_LOOK_AGAIN_S = 0.01


def wait_until(condition: Callable[[], object], what: str, limit_s: float = WAIT_S) -> None:
    """Returns once `condition` holds. `what` is awaited, or what is wrong if it never does."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline_s, f"Waited {limit_s:.0f} s in vain: {what}"
        time.sleep(_LOOK_AGAIN_S)


async def until(condition: Callable[[], object], what: str = "", limit_s: float = WAIT_S) -> None:
    """The same on a loop. First looks in every turn of it, as most of what is awaited is a few turns away."""
    deadline_s = time.monotonic() + limit_s
    turns = 0
    while not condition():
        assert time.monotonic() < deadline_s, f"Waited {limit_s:.0f} s in vain: {what or condition}"
        turns += 1
        await asyncio.sleep(0 if turns < 10 else 0.001)
