"""The thread that owns the tree: its file and the server's core.

One thread does all of SQLite's work, so the event loop never waits for a disk. What was asked while it was busy becomes
one commit: many callers share an fsync. Everything happens in the order in which it was asked, and nothing, not even
what was only read, is answered before it is safe.

Effects and answers reach the loop in the order in which the core made them: first the effects of a job, then its
answer.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from ottla.base.clock import Clock
from ottla.base.coordination import CoordinationError
from ottla.zookeeper.server.core import Effect, ServerCore, ServerSettings
from ottla.zookeeper.tree_file import TreeFile, TreeFileError

_logger = logging.getLogger(__name__)

T = TypeVar("T")

Work = Callable[[ServerCore], Any]
Deliver = Callable[[Any], None]
"""Given the answer, or the exception that was raised, on the loop."""
Job = tuple[Work, Deliver]
Outcome = tuple[list[Effect], Deliver, Any]

_IDLE_S: Final = 1.0
"""The reserve is filled when nothing was asked for so long."""
_NO_ROOM_S: Final = 10.0
"""The same, after there was no room for it."""


class TreeThread:
    """Use `open`, and `close` at the end. Belongs to the loop that opened it."""

    def __init__(self, path: Path, clock: Clock, settings: ServerSettings | None) -> None:
        self.path = path
        self.commit_count = 0
        self.perform: Callable[[Effect], None] = _ignore
        """Does an effect, on the loop. Whoever uses the thread sets it."""
        self._clock = clock
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._asked: SimpleQueue[Job | None] = SimpleQueue()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._is_closing = False
        self._is_expiring = False
        """Whether the loop was asked to have sessions expired."""
        self._thread = threading.Thread(target=self._run, name="ottla-tree", daemon=True)

    @classmethod
    async def open(cls, path: Path, clock: Clock, settings: ServerSettings | None = None) -> TreeThread:
        """The file is made if it is not there; `TreeFileError` if it cannot be used."""
        thread = cls(path, clock, settings)
        thread._thread.start()
        try:
            await asyncio.shield(thread._opened)
        except asyncio.CancelledError:
            await thread.close()
            raise
        return thread

    async def close(self) -> None:
        """Finishes what was asked before."""
        if not self._is_closing:
            self._is_closing = True
            self._asked.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()

    @property
    def is_closing(self) -> bool:
        return self._is_closing

    def submit(self, work: Work, deliver: Deliver) -> None:
        """Has work done on the core. What it raises is delivered like an answer."""
        if self._is_closing:
            raise self._closed()
        self._asked.put((work, deliver))
        if self._is_closing:  # the thread has just died, and may have looked for the last time
            self._refuse_left()

    def ask(self, work: Callable[[ServerCore], T]) -> asyncio.Future[T]:
        answer: asyncio.Future[T] = self._loop.create_future()
        self.submit(work, lambda outcome: settle(answer, outcome))
        return answer

    def _closed(self) -> RuntimeError:
        return RuntimeError(f"{self.path}: the tree is closed")

    # --- in the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Whatever ends it, nobody waits for an answer that will not come."""
        try:
            file = TreeFile.open(self.path)
            try:
                core = self._start(file)
            except BaseException:
                file.close()
                raise
        except BaseException as error:  # whatever it is, the one who opens must not wait for ever
            self._tell([([], self._deliver_to(self._opened), error), ([], self._deliver_to(self._ended), None)])
            return
        self._tell([([], self._deliver_to(self._opened), None)])
        try:
            self._work(file, core)
        finally:
            self._is_closing = True
            try:
                file.close()
            finally:
                self._refuse_left()
                self._tell([([], self._deliver_to(self._ended), None)])

    def _refuse_left(self) -> None:
        self._tell([([], job[1], self._closed()) for job in self._left() if job])

    def _start(self, file: TreeFile) -> ServerCore:
        core = ServerCore(file, self._clock, self._settings)
        with file.commit():
            core.start()
        core.settle()
        core.take_effects()
        return core

    def _work(self, file: TreeFile, core: ServerCore) -> None:
        fill_at_s = self._clock.monotonic_s() + _IDLE_S if _is_low(file) else None
        going = True
        while going:
            asked = self._wait(core, fill_at_s)
            jobs = [job for job in asked if job is not None]
            going = len(jobs) == len(asked)
            now_s = self._clock.monotonic_s()
            if self._is_time_to_expire(core, now_s):
                self._is_expiring = True
                with suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._loop.call_soon, self._expire)
            if jobs:
                self._tell(self._do(file, core, jobs))
                if fill_at_s is None and _is_low(file):
                    fill_at_s = now_s + _IDLE_S
            elif fill_at_s is not None and fill_at_s <= now_s:  # nobody waits for the reserve to be filled
                fill_at_s = None if _is_filled(file) else now_s + _NO_ROOM_S

    def _is_time_to_expire(self, core: ServerCore, now_s: float) -> bool:
        at_s = core.sessions.next_look_s
        return not self._is_expiring and at_s is not None and at_s <= now_s

    def _expire(self) -> None:
        """On the loop, one turn after the thread asked for it: what clients sent while the loop was busy is asked
        before, so a stall of the loop expires nobody."""
        if not self._is_closing:
            self.submit(self._expire_now, _log_failure)

    def _expire_now(self, core: ServerCore) -> None:
        """In the thread, which then looks at the next deadline again."""
        self._is_expiring = False
        core.expire()

    def _wait(self, core: ServerCore, fill_at_s: float | None) -> list[Job | None]:
        """What was asked by now, at least one thing unless there is something else to do."""
        look_s = None if self._is_expiring else core.sessions.next_look_s
        times = [at_s for at_s in (fill_at_s, look_s) if at_s is not None]
        timeout_s = max(0.0, min(times) - self._clock.monotonic_s()) if times else None
        try:
            return [self._asked.get(timeout=timeout_s), *self._left()]
        except Empty:
            return []

    def _left(self) -> list[Job | None]:
        asked = []
        with suppress(Empty):
            while True:
                asked.append(self._asked.get_nowait())
        return asked

    def _do(self, file: TreeFile, core: ServerCore, jobs: list[Job]) -> list[Outcome]:
        """What comes of each job. Where the common commit fails, each is done alone: one that cannot be done, or needs
        room that is not there, is not everybody's failure."""
        try:
            return self._do_together(file, core, jobs)
        except BaseException as error:
            is_full = isinstance(error, TreeFileError) and error.is_full
            if len(jobs) == 1 and not is_full:
                return [([], jobs[0][1], error)]
        outcomes: list[Outcome] = []
        for job in jobs:
            if is_full:
                file.make_room()
            try:
                outcomes += self._do_together(file, core, [job])
            except BaseException as error:
                outcomes.append(([], job[1], error))
        return outcomes

    def _do_together(self, file: TreeFile, core: ServerCore, jobs: list[Job]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        try:
            with file.commit():
                for work, deliver in jobs:
                    try:
                        answer = work(core)
                    except CoordinationError as error:
                        answer = error
                    outcomes.append((core.take_effects(), deliver, answer))
        except BaseException:
            core.roll_back()
            raise
        core.settle()
        self.commit_count += 1
        return outcomes

    def _tell(self, outcomes: list[Outcome]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._deliver_all, outcomes)

    def _deliver_all(self, outcomes: list[Outcome]) -> None:
        """On the loop. Nothing that goes wrong for one may keep another from its answer."""
        for effects, deliver, outcome in outcomes:
            for effect in effects:
                try:
                    self.perform(effect)
                except Exception:
                    _logger.exception("An effect of the tree could not be done: %r", effect)
            try:
                deliver(outcome)
            except Exception:
                _logger.exception("An answer of the tree could not be delivered")

    def _deliver_to(self, answer: asyncio.Future[Any]) -> Deliver:
        return lambda outcome: settle(answer, outcome)


def settle(answer: asyncio.Future[Any], outcome: Any) -> None:
    """An outcome that is an exception is raised where the answer is awaited."""
    if answer.done():
        return  # who asked was cancelled
    if not isinstance(outcome, BaseException):
        answer.set_result(outcome)
    elif isinstance(outcome, StopIteration):  # no future takes it
        answer.set_exception(RuntimeError(f"the tree was asked for something that raised {outcome!r}"))
    else:
        answer.set_exception(outcome)


def _is_low(file: TreeFile) -> bool:
    """A reserve that cannot be looked at counts as low: nothing that fails here may end the thread."""
    try:
        return file.is_reserve_low
    except Exception as error:
        _logger.warning("%s: the reserve for a full disk cannot be looked at: %s", file.path, error)
        return True


def _is_filled(file: TreeFile) -> bool:
    try:
        return file.fill_reserve()
    except Exception as error:
        _logger.warning("%s: the reserve for a full disk cannot be filled: %s", file.path, error)
        return False


def _ignore(effect: Effect) -> None:
    """Nobody is connected."""


def _log_failure(outcome: object) -> None:
    if isinstance(outcome, BaseException):
        _logger.warning("Sessions could not be expired: %s", outcome)
