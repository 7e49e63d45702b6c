"""Starts, monitors and stops queries: each with a checkpoint, and stopped between two batches if there is time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.query import StreamingQuery

from ottla.spark.pipelines.causes import root_cause
from ottla.spark.pipelines.errors import PipelineError, QueryFailedError
from ottla.spark.pipelines.progress import QueryProgress, reports_of

if TYPE_CHECKING:
    from ottla.spark.pipelines.python_files import Runnable

CHECKPOINTS: Final = "spark.sql.streaming.checkpointLocation"
"""The directory in which Spark keeps a checkpoint for each named query, unless the query sets its own."""

_POLL_S: Final = 0.05
_RUNTIME: Final = "org.apache.spark.sql.execution.streaming.runtime"


@dataclass(slots=True)
class RunningQuery:
    """A query and its progress."""

    query: StreamingQuery
    progress: QueryProgress

    def look(self) -> bool:
        """Whether a batch was finished since the last call."""
        return self.progress.take(reports_of(self.query))

    @property
    def is_active(self) -> bool:
        return self.query.isActive

    @property
    def status(self) -> str:
        """What it is doing, in Spark's words."""
        return str(self.query.status["message"])

    def failure(self) -> QueryFailedError | None:
        error = self.query.exception()
        if error is None:
            return None
        return QueryFailedError(f"{self.progress.name}: {root_cause(error)}", str(error))


def start(runnables: Mapping[str, Runnable], *, once: bool) -> list[RunningQuery]:
    """Starts the writers under their names. With `once`, each ends when all data available now is processed.

    Raises `PipelineError` if one cannot be started, and stops the others.
    """
    running: list[RunningQuery] = []
    try:
        for name, runnable in runnables.items():
            running.append(RunningQuery(_started(name, runnable, once), QueryProgress(name)))
    except BaseException:
        for one in running:
            one.query.stop()
        raise
    return running


def _started(name: str, runnable: Runnable, once: bool) -> StreamingQuery:
    if isinstance(runnable, StreamingQuery):
        if once:
            runnable.stop()
            raise PipelineError(
                f"{name}: the pipeline started this query itself, so --once has no effect: return the writer"
            )
        return runnable
    writer = runnable.queryName(name)
    if once:
        writer = writer.trigger(availableNow=True)
    try:
        return writer.start()
    except Exception as error:  # Java's and Python's exceptions have no common base class
        raise QueryFailedError(f"{name}: {root_cause(error)}", str(error)) from error


def watch(running: list[RunningQuery], on_look: Callable[[set[str]], None], wait: Callable[[], bool]) -> bool:
    """Polls the queries until all have ended, and returns True then; False if `wait` says to stop.

    `on_look` gets the names of those that finished a batch; `wait` sleeps. Raises `QueryFailedError` if a query fails.
    """
    while True:
        is_over = not any(one.is_active for one in running)  # before looking, so that the last batch is seen
        on_look({one.progress.name for one in running if one.look()})
        for one in running:
            if not one.is_active and (failure := one.failure()):
                raise failure
        if is_over:
            return True
        if wait():
            return False


def stop(running: list[RunningQuery], is_impatient: Callable[[], bool]) -> bool:
    """Stops all queries between two batches, or at once if `is_impatient`; returns whether all batches finished."""
    active = [one for one in running if one.is_active]
    asked = [one for one in active if _ask_to_end(one.query)]
    were_finished = len(asked) == len(active)
    for one in asked:
        while one.query.status["isTriggerActive"]:  # from now on `isActive` says that it has ended
            if is_impatient():
                were_finished = False
                break
            time.sleep(_POLL_S)
    for one in running:
        one.query.stop()
        one.look()
    return were_finished


def _ask_to_end(query: StreamingQuery) -> bool:
    """Tells a query not to begin another batch, without interrupting the current one; returns whether that worked.

    `stop` interrupts the current batch. Spark checks the state of a query before each batch, but has no public method
    to set it.
    """
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    try:
        ended = getattr(getattr(jvm, f"{_RUNTIME}.TERMINATED$"), "MODULE$")
        java: Any = query
        java._jsq.streamingQuery().state().set(ended)
    except Exception:  # another version of Spark: its bridge may raise anything for missing names
        return False
    return True
