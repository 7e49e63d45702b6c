"""Reads lines from a file or standard input in chunks, without blocking the event loop.

A thread reads whatever is available: a typed line arrives at once, a large file in large chunks. It is a daemon thread,
so an interrupted command does not wait for one more line.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from typing import Final

_CHUNK_BYTES: Final = 256 * 1024
_CHUNKS_AHEAD: Final = 4


async def read_chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Everything that can be read from the file descriptor, in chunks."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(_CHUNKS_AHEAD)

    def read() -> None:
        while True:
            room.acquire()
            chunk: bytes | OSError
            try:
                chunk = os.read(descriptor, _CHUNK_BYTES)
            except OSError as error:
                chunk = error
            try:
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)
            except RuntimeError:  # the loop is closed: nobody is listening
                return
            if not chunk or isinstance(chunk, OSError):
                return

    threading.Thread(target=read, name="ottla-input", daemon=True).start()
    while True:
        chunk = await chunks.get()
        room.release()
        if isinstance(chunk, OSError):
            raise chunk
        if not chunk:
            return
        yield chunk


async def read_lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """The lines received so far, without line endings; the last one may be incomplete."""
    begun = b""
    async for chunk in read_chunks(descriptor):
        head, newline, rest = (begun + chunk).rpartition(b"\n")
        begun = rest
        if newline:
            yield [line.removesuffix(b"\r") for line in head.split(b"\n")]
    if begun:
        yield [begun]
