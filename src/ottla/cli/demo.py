"""`ottla demo`: everything at work, without any preparation."""

from __future__ import annotations

import asyncio
import signal
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ottla.cli.output import is_terminal, note
from ottla.cli.session import CommandError

if TYPE_CHECKING:
    from ottla.cli.demo_traffic import Traffic

_UNWATCHED_S: Final = 10.0
_REFRESH_S: Final = 0.25
_DRAIN_TIMEOUT_S: Final = 20.0


def demo(
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", "-s", min=0.1, help="How long; until Ctrl-C if not given (10 without a terminal)."),
    ] = None,
) -> None:
    """See a broker at work: made-up events of a shop, streamed through it live.

    Starts a broker of its own in a temporary folder, on a free port; creates topics, runs two producers and two
    consumers, and shows rates, lag and records. Ctrl-C ends it and cleans up.
    """
    if seconds is None and not is_terminal():
        seconds = _UNWATCHED_S
    asyncio.run(_demo(seconds))


async def _demo(seconds: float | None) -> None:
    from rich.console import Console

    from ottla.cli.demo_screen import summary
    from ottla.cli.demo_traffic import Traffic, create_topics, own_broker

    traffic = Traffic()
    loop = asyncio.get_running_loop()
    interrupted = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, interrupted.set)
    note("Starting a broker …")
    async with own_broker() as address:
        await create_topics(address)
        took_s = await _watch(traffic, address, interrupted, seconds)
    Console().print(summary(traffic, took_s))
    if traffic.received < traffic.sent:
        raise CommandError(f"{traffic.sent - traffic.received} records were sent and not received")
    note("Every record that was sent was received. `ottla start` gives you a broker of your own.")


async def _watch(traffic: Traffic, address: str, interrupted: asyncio.Event, seconds: float | None) -> float:
    """Lets the events flow until the time is over, and says how long that was; then waits for those still on their
    way."""
    from ottla.cli.demo_traffic import run_reader, run_shop, run_website

    stop = asyncio.Event()
    producers = [
        asyncio.create_task(run_shop(address, traffic, stop)),
        asyncio.create_task(run_website(address, traffic, stop)),
    ]
    readers = [
        asyncio.create_task(run_reader(address, traffic, "billing", ["orders", "payments"])),
        asyncio.create_task(run_reader(address, traffic, "analytics", ["page-views"], naps=True)),
    ]
    tasks = [*producers, *readers]
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    try:
        await _show(traffic, address, tasks, interrupted, seconds)
        stop.set()
        took_s = loop.time() - begun_s
        await asyncio.gather(*producers)
        async with asyncio.timeout(_DRAIN_TIMEOUT_S):
            while traffic.received < traffic.sent:
                _raise_failure(tasks)
                await asyncio.sleep(_REFRESH_S / 5)
    except TimeoutError:
        pass  # the summary tells what is missing
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return took_s


async def _show(
    traffic: Traffic,
    address: str,
    tasks: list[asyncio.Task[None]],
    interrupted: asyncio.Event,
    seconds: float | None,
) -> None:
    from rich.console import Console
    from rich.live import Live

    from ottla.cli.demo_screen import screen

    loop = asyncio.get_running_loop()
    end_s = None if seconds is None else loop.time() + seconds
    live = Live(screen(traffic, address), console=Console(), auto_refresh=False, screen=True) if is_terminal() else None
    with live or nullcontext():
        while not interrupted.is_set() and (end_s is None or loop.time() < end_s):
            _raise_failure(tasks)
            traffic.sample(loop.time())
            if live is not None:
                live.update(screen(traffic, address), refresh=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(_REFRESH_S):
                    await interrupted.wait()


def _raise_failure(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        if task.done() and not task.cancelled() and (failure := task.exception()):
            raise failure
