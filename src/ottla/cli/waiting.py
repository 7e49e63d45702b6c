"""Tells the user on standard error why a command is waiting, after a few seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from ottla.cli.output import note

_LOOK_EVERY_S: Final = 0.5


@dataclass(slots=True)
class Progress:
    """How far a command has got: `done` grows while it makes progress; `reason` says what it is waiting for, if
    anything."""

    done: int
    reason: str | None


@dataclass(slots=True)
class Patience:
    """When to print a message, without reading a clock: after `after_s` without progress, then every `again_s`."""

    after_s: float = 3.0
    again_s: float = 15.0
    _done: int = field(default=-1, init=False)
    _tell_at_s: float = field(default=0.0, init=False)

    def look(self, now_s: float, progress: Progress) -> str | None:
        """The message to print now, if any."""
        if progress.reason is None or progress.done != self._done:
            self._done, self._tell_at_s = progress.done, now_s + self.after_s
            return None
        if now_s < self._tell_at_s:
            return None
        self._tell_at_s = now_s + self.again_s
        return progress.reason


@asynccontextmanager
async def telling_why(progress: Callable[[], Progress]) -> AsyncIterator[None]:
    """Says why the block is waiting, while it runs."""

    async def watch() -> None:
        patience = Patience()
        while True:
            told = patience.look(time.monotonic(), progress())
            if told is not None:
                note(f"Waiting: {told.rstrip('.')}.")
            await asyncio.sleep(_LOOK_EVERY_S)

    task = asyncio.get_running_loop().create_task(watch(), name="report why the command is waiting")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
