"""Lines that arrive in pieces."""

from __future__ import annotations

import asyncio
import os

import pytest

from ottla.cli.input_lines import read_lines


def test_lines_arrive_when_they_are_whole_and_not_later() -> None:
    async def scenario() -> None:
        reading, writing = os.pipe()
        lines = aiter(read_lines(reading))
        os.write(writing, b"one\ntw")
        assert await anext(lines) == [b"one"]
        os.write(writing, b"o\r\nthree\nthe rest")
        assert await anext(lines) == [b"two", b"three"]
        os.close(writing)
        assert await anext(lines) == [b"the rest"]
        with pytest.raises(StopAsyncIteration):
            await anext(lines)
        os.close(reading)

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_empty_lines_are_lines_too() -> None:
    async def scenario() -> list[bytes]:
        reading, writing = os.pipe()
        os.write(writing, b"\n\na\n\n")
        os.close(writing)
        found = [line async for some in read_lines(reading) for line in some]
        os.close(reading)
        return found

    assert asyncio.run(asyncio.wait_for(scenario(), 30)) == [b"", b"", b"a", b""]


def test_unreadable_input_is_reported() -> None:
    async def scenario() -> None:
        reading, writing = os.pipe()
        os.close(reading)
        os.close(writing)
        with pytest.raises(OSError, match="Bad file descriptor"):
            await anext(aiter(read_lines(reading)))

    asyncio.run(asyncio.wait_for(scenario(), 30))
