"""`ottla demo`: runs everything together, without any preparation."""

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
"""How long it runs without a terminal, counted from the first Spark results if there is a pipeline."""
_SPARK_PATIENCE_S: Final = 120.0
"""How long to wait for those results."""
_REFRESH_S: Final = 0.25
_DRAIN_TIMEOUT_S: Final = 20.0


def demo(
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            "-s",
            min=0.1,
            help="Stop after this many seconds (default: run until Ctrl-C; without a terminal, stop soon).",
        ),
    ] = None,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Run the Spark pipeline, or only the broker and its clients.")
    ] = True,
) -> None:
    """Run a broker, producers, consumers and a Spark pipeline together, and show what they do.

    Starts a broker on a free port with a temporary data directory, creates topics, and runs two producers and two
    consumers. If Java 17 is installed, a Spark pipeline parses orders, joins them with a catalogue, and sums revenue in
    windows of ten seconds. Shows rates, lag, records and revenue. Press Ctrl-C to stop; all data is deleted.
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
    state.missing = await asyncio.to_thread(lack_of_spark) if with_spark else "disabled with --no-spark"
    if with_spark:
        note("Starting a Spark pipeline …" if state.missing is None else f"No Spark pipeline: {state.missing}")
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(own_broker())
        await create_topics(address)
        if state.missing is None:
            await stack.enter_async_context(running_pipeline(address, state))
        took_s = await _watch(traffic, state, address, interrupted, seconds)
    Console().print(summary(traffic, state, took_s))
    _judge(traffic, state)


def _judge(traffic: Traffic, state: PipelineState) -> None:
    """Reports whether all records arrived."""
    if traffic.received < traffic.sent:
        raise CommandError(f"{traffic.sent - traffic.received} records were sent but not received")
    if state.failure is not None:
        raise CommandError(f"the Spark pipeline failed: {state.failure}")
    note("Every record that was sent was received. Start your own broker with `ottla start`.")
    if state.missing is None:
        ordered = traffic.topics["orders"].sent.total
        if state.orders == ordered:
            note("Every order is in Spark's sums. Create your own pipeline with `ottla pipeline new`.")
        else:
            note(f"Spark had processed {state.orders:,} of {ordered:,} orders when it was stopped.")


async def _watch(
    traffic: Traffic, state: PipelineState, address: str, interrupted: asyncio.Event, seconds: float | None
) -> float:
    """Produces events until the time is over and returns how long that was; then waits for outstanding records."""
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
        pass  # the summary reports what is missing
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return took_s


def _ending(seconds: float | None, state: PipelineState, begun_s: float) -> Callable[[float], bool]:
    """Whether the time is over."""
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
