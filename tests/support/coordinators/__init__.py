"""Coordinators without a broker: a log in memory, and time that a test turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import ParamSpec

P = ParamSpec("P")


def in_loop(test: Callable[P, Coroutine[None, None, None]]) -> Callable[P, None]:
    """Runs a test in a loop of its own."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run
