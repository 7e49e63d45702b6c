"""How the processes that `ottla demo` starts are ended."""

from __future__ import annotations

import asyncio
from contextlib import suppress


async def end(process: asyncio.subprocess.Process, timeout_s: float) -> None:
    """Asks it to end, and makes it end if it takes longer than that."""
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(timeout_s):
            await process.communicate()
    except TimeoutError:
        process.kill()
        await process.communicate()
