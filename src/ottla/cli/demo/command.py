"""`ottla demo`: everything at work, without any preparation."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack, nullcontext, suppress
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ottla.cli.output import is_terminal, note
from ottla.cli.session import CommandError

if TYPE_CHECKING:
    from ottla.cli.demo.spark import PipelineState
    from ottla.cli.demo.traffic import Traffic

_UNWATCHED_S: Final = 10.0
"""How long it runs when nobody looks; after the first results of Spark, if there are to be any."""
_SPARK_PATIENCE_S: Final = 120.0
"""How long those are waited for."""
_REFRESH_S: Final = 0.25
_DRAIN_TIMEOUT_S: Final = 20.0


def demo(
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            "-s",
            min=0.1,
            help="How long; until Ctrl-C if not given. Without a terminal it ends by itself, soon after Spark's first "
            "results.",
        ),
    ] = None,
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="With the pipeline on Spark, or without.")] = True,
) -> None:
    """See it all at work: events of a shop go to topics, Spark sums them up, its results go to a topic.

    Starts a broker of its own in a temporary folder, on a free port; creates topics, runs two producers and two
    consumers; and, where there is Java 17, a pipeline on Spark: orders are parsed, joined with the catalogue, and
    summed up in windows of ten seconds. Shows rates, lag, records and revenue. Ctrl-C ends it and cleans up.
    """
    asyncio.run(_demo(seconds, spark))


async def _demo(seconds: float | None, with_spark: bool) -> None:
    from rich.console import Console

    from ottla.cli.demo.screen import summary
    from ottla.cli.demo.spark import PipelineState, lack_of_spark, running_pipeline
    from ottla.cli.demo.traffic import Traffic, create_topics, own_broker

    traffic, state = Traffic(), PipelineState()
    loop = asyncio.get_running_loop()
    interrupted = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, interrupted.set)
    note("Starting a broker …")
    state.missing = await asyncio.to_thread(lack_of_spark) if with_spark else "it was not asked for"
    if with_spark:
        note("Starting a pipeline on Spark …" if state.missing is None else f"No Spark here: {state.missing}")
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(own_broker())
        await create_topics(address)
        if state.missing is None:
            await stack.enter_async_context(running_pipeline(address, state))
        took_s = await _watch(traffic, state, address, interrupted, seconds)
    Console().print(summary(traffic, state, took_s))
    _judge(traffic, state)


def _judge(traffic: Traffic, state: PipelineState) -> None:
    """The last word: whether everything arrived."""
    if traffic.received < traffic.sent:
        raise CommandError(f"{traffic.sent - traffic.received} records were sent and not received")
    if state.failure is not None:
        raise CommandError(f"the pipeline on Spark failed: {state.failure}")
    note("Every record that was sent was received. `ottla start` gives you a broker of your own.")
    if state.missing is None:
        ordered = traffic.topics["orders"].sent.total
        if state.orders == ordered:
            note("Every order is in Spark's sums. `ottla pipeline new` gives you a pipeline of your own.")
        else:
            note(f"Spark had {state.orders:,} of {ordered:,} orders in its sums when it was stopped.")


async def _watch(
    traffic: Traffic, state: PipelineState, address: str, interrupted: asyncio.Event, seconds: float | None
) -> float:
    """Lets the events flow until the time is over, and says how long that was; then waits for those still on their
    way."""
    from ottla.cli.demo.spark import run_dashboard
    from ottla.cli.demo.traffic import run_reader, run_shop, run_website

    stop = asyncio.Event()
    producers = [
        asyncio.create_task(run_shop(address, traffic, stop)),
        asyncio.create_task(run_website(address, traffic, stop)),
    ]
    readers = [
        asyncio.create_task(run_reader(address, traffic, "billing", ["orders", "payments"])),
        asyncio.create_task(run_reader(address, traffic, "analytics", ["page-views"], naps=True)),
    ]
    if state.missing is None:
        readers.append(asyncio.create_task(run_dashboard(address, state)))
    tasks = [*producers, *readers]
    loop = asyncio.get_running_loop()
    begun_s = loop.time()

    def are_all_there() -> bool:
        are_summed = not state.windows or state.failure or state.orders >= traffic.topics["orders"].sent.total
        return traffic.received >= traffic.sent and bool(are_summed)

    try:
        await _show(traffic, state, address, tasks, interrupted, _ending(seconds, state, begun_s))
        stop.set()
        took_s = loop.time() - begun_s
        await asyncio.gather(*producers)
        async with asyncio.timeout(_DRAIN_TIMEOUT_S):
            while not are_all_there():
                _raise_failure(tasks)
                await asyncio.sleep(_REFRESH_S / 5)
    except TimeoutError:
        pass  # the summary tells what is missing
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return took_s


def _ending(seconds: float | None, state: PipelineState, begun_s: float) -> Callable[[float], bool]:
    """Whether the time is over, at a moment."""
    if seconds is not None:
        return lambda now_s: now_s - begun_s >= seconds
    if is_terminal():
        return lambda _: False
    first_s: list[float] = []

    def is_over(now_s: float) -> bool:
        if state.missing is None and state.failure is None and not state.windows:
            return now_s - begun_s >= _SPARK_PATIENCE_S
        if not first_s:
            first_s.append(now_s if state.missing is None else begun_s)
        return now_s - first_s[0] >= _UNWATCHED_S

    return is_over


async def _show(
    traffic: Traffic,
    state: PipelineState,
    address: str,
    tasks: list[asyncio.Task[None]],
    interrupted: asyncio.Event,
    is_over: Callable[[float], bool],
) -> None:
    from rich.console import Console
    from rich.live import Live

    from ottla.cli.demo.screen import screen

    loop = asyncio.get_running_loop()
    first = screen(traffic, state, address)
    live = Live(first, console=Console(), auto_refresh=False, screen=True) if is_terminal() else None
    with live or nullcontext():
        while not interrupted.is_set() and not is_over(loop.time()):
            _raise_failure(tasks)
            traffic.sample(loop.time())
            if live is not None:
                live.update(screen(traffic, state, address), refresh=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(_REFRESH_S):
                    await interrupted.wait()


def _raise_failure(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        if task.done() and not task.cancelled() and (failure := task.exception()):
            raise failure
