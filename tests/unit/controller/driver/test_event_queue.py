"""The controller's queue of events: in order, each to its end, whatever becomes of one."""

from __future__ import annotations

import asyncio

import pytest

from ottla.controller.driver.event_queue import EventQueue
from support.waiting import WAIT_S


async def _cancelled() -> None:
    """As when something that an event waits for is cancelled by somebody else."""
    waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waited.cancel()
    await waited


async def _failing() -> None:
    raise RuntimeError("broken")


@pytest.mark.parametrize("event", [_cancelled, _failing])
def test_an_event_that_fails_does_not_end_the_queue(event: object) -> None:
    async def scenario() -> None:
        queue = EventQueue()
        queue.start()
        done: list[str] = []

        async def note() -> None:
            done.append("next")

        queue.put("broken", event)  # type: ignore[arg-type]
        with pytest.raises((asyncio.CancelledError, RuntimeError)):
            await queue.call("broken, and waited for", event)  # type: ignore[arg-type]
        await queue.call("next", note)
        assert done == ["next"]
        await queue.close()

    async def bounded() -> None:
        async with asyncio.timeout(WAIT_S):
            await scenario()

    asyncio.run(bounded())


def test_closing_processes_what_was_put_before() -> None:
    async def scenario() -> None:
        queue = EventQueue()
        queue.start()
        done: list[int] = []

        async def note(number: int) -> None:
            await asyncio.sleep(0)
            done.append(number)

        for number in range(3):
            queue.put(f"event {number}", lambda number=number: note(number))  # type: ignore[misc]
        await queue.close()
        queue.put("late", lambda: note(9))
        await asyncio.sleep(0)
        assert done == [0, 1, 2]
        assert queue.is_idle

    asyncio.run(scenario())
