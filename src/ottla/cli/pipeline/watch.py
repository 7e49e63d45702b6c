"""Running queries in front of people: shown while they run, stopped in good order, with a word on where they stand."""

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
_HINT: Final = "Ctrl-C ends it after the running batch."
_HINT_STOPPING: Final = "Finishing the running batch … Ctrl-C again ends it at once."


class Signals:
    """Ctrl-C and its kin, counted instead of obeyed."""

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
        """Lets time go by, or less of it when a signal comes; whether one has."""
        end_s = time.monotonic() + seconds
        while not self.count and (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(left_s, _SLICE_S))
        return self.count > 0

    def _take(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - Python gives it
        self.count += 1


class Display:
    """A table that is kept up to date at a terminal; elsewhere a line for a batch, not too many of them."""

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
    """Watches the queries to their end, or until a signal comes. Raises `QueryFailedError` when one fails, after the
    others were stopped."""
    with Signals() as signals:
        try:
            with Display(heading, running) as display:
                is_over = queries.watch(running, display.show, lambda: signals.wait(_LOOK_EVERY_S))
                were_finished = is_over or _stop(running, signals, display)
        except QueryFailedError:
            queries.stop(running, lambda: signals.count > 1)
            raise
        except (Py4JError, ConnectionError, EOFError) as error:
            raise CommandError(f"Spark's Java has gone, and the pipeline with it ({type(error).__name__})") from error
    Console().print(stand(one.progress for one in running))
    if is_over:
        note("Done: all that was there is read.")
    elif were_finished:
        when = "after a whole batch" if any(one.progress.batches for one in running) else "before the first batch"
        note(f"Stopped {when}. The same command goes on from there.")
    else:
        note("Stopped within a batch. The same command runs that batch again: some of its rows may be written twice.")


def _stop(running: list[RunningQuery], signals: Signals, display: Display) -> bool:
    display.hint = _HINT_STOPPING
    if not is_terminal():
        note(_HINT_STOPPING)
    display.show(set())

    def is_impatient() -> bool:
        display.show({one.progress.name for one in running if one.look()})
        return signals.count > 1

    return queries.stop(running, is_impatient)
