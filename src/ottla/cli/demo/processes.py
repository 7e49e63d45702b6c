"""Stops the processes that `ottla demo` started."""

from __future__ import annotations

import asyncio
from contextlib import suppress


async def end(process: asyncio.subprocess.Process, timeout_s: float) -> None:
    """Asks the process to stop, and kills it after the timeout."""
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(timeout_s):
            await process.communicate()
    except TimeoutError:
        process.kill()
        await process.communicate()
