"""Watches running queries: shows their progress, stops them gracefully, and reports where they stopped."""

from __future__ import annotations

import signal
import time
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import typer
from py4j.protocol import Py4JError
from rich.console import Console
from rich.live import Live

from ottla.cli.output import is_terminal, note
from ottla.cli.pipeline.screen import Heading, QueryRates, line, screen, stand
from ottla.cli.session import CommandError
from ottla.spark.pipelines import running as queries
from ottla.spark.pipelines.errors import QueryFailedError

if TYPE_CHECKING:
    from ottla.spark.pipelines.running import RunningQuery

_LOOK_EVERY_S: Final = 0.5
_SLICE_S: Final = 0.1
_LINE_EVERY_S: Final = 2.0
_HINT: Final = "Press Ctrl-C to stop after the running micro-batch."
_HINT_STOPPING: Final = "Finishing the running micro-batch … Press Ctrl-C again to stop immediately."


class Signals:
    """Counts SIGINT and SIGTERM instead of obeying them."""

    _NUMBERS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in self._NUMBERS:
            self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def wait(self, seconds: float) -> bool:
        """Waits, but stops waiting when a signal arrives; returns whether one has."""
        end_s = time.monotonic() + seconds
        while not self.count and (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(left_s, _SLICE_S))
        return self.count > 0

    def _take(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - part of the signature of a signal handler
        self.count += 1


class Display:
    """A live table on a terminal; otherwise a line per micro-batch, but not too many."""

    def __init__(self, heading: Heading, running: list[RunningQuery]) -> None:
        self._heading = heading
        self._running = running
        self._rates = QueryRates()
        self._live = Live(console=Console(), auto_refresh=False) if is_terminal() else None
        self._told_s: dict[str, float] = {}
        self.hint = _HINT

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, did_a_batch: set[str]) -> None:
        now_s = time.monotonic()
        all_of_it = [one.progress for one in self._running]
        self._rates.sample(all_of_it, now_s)
        if self._live is not None:
            statuses = {one.progress.name: one.status for one in self._running}
            self._live.update(screen(self._heading, all_of_it, self._rates, statuses, self.hint), refresh=True)
            return
        for progress in all_of_it:
            name = progress.name
            if name in did_a_batch and now_s - self._told_s.get(name, -_LINE_EVERY_S) >= _LINE_EVERY_S:
                typer.echo(line(progress, self._rates[name]))
                self._told_s[name] = now_s


def run_queries(running: list[RunningQuery], heading: Heading) -> None:
    """Watches the queries until they end or a signal arrives. If one fails, stops the others and raises
    `QueryFailedError`."""
    with Signals() as signals:
        try:
            with Display(heading, running) as display:
                is_over = queries.watch(running, display.show, lambda: signals.wait(_LOOK_EVERY_S))
                were_finished = is_over or _stop(running, signals, display)
        except QueryFailedError:
            queries.stop(running, lambda: signals.count > 1)
            raise
        except (Py4JError, ConnectionError, EOFError) as error:
            raise CommandError(f"the JVM of Spark has exited ({type(error).__name__})") from error
    Console().print(stand(one.progress for one in running))
    if is_over:
        note("Done: all available records are processed.")
    elif were_finished:
        when = (
            "after a complete micro-batch" if any(one.progress.batches for one in running) else "before the first one"
        )
        note(f"Stopped {when}. Run the same command to continue.")
    else:
        note("Stopped within a micro-batch. Run the same command to repeat it; some of its rows may be written twice.")


def _stop(running: list[RunningQuery], signals: Signals, display: Display) -> bool:
    display.hint = _HINT_STOPPING
    if not is_terminal():
        note(_HINT_STOPPING)
    display.show(set())

    def is_impatient() -> bool:
        display.show({one.progress.name for one in running if one.look()})
        return signals.count > 1

    return queries.stop(running, is_impatient)
