"""Sends answers that are ready for many connections at the same time, in a thread: see `sending_kernel`.

    loop ── a batch of answers ──▶ thread ── bytes sent of each ──▶ loop

If there are few answers, or numba is not installed or not loaded yet, the connections send by themselves. A connection
whose answer is with the thread is *away*: it sends nothing itself, and its descriptor stays open, until it is back.
That is soon: the thread calls `send` once for each answer, and never waits for a client. Owned by the loop.
"""

from __future__ import annotations

import logging
import os
import threading
from asyncio import AbstractEventLoop
from collections import deque
from typing import TYPE_CHECKING, Final

from ottla.base.background_load import BackgroundLoad
from ottla.net.sending_layout import ANSWERS_MAX, BYTES_MAX, COUNT, DESCRIPTORS, SENT, SIZES, SLOTS

if TYPE_CHECKING:
    from ottla.net.sending_kernel import BatchTable
    from ottla.net.socket_connection import SocketConnection

_logger = logging.getLogger(__name__)

MANY: Final = 8
"""From this many answers on it pays to wake the thread."""
_LOAD_AT: Final = 100
"""How often in a second there must be many answers before numba is loaded, which takes 100 MB."""


class AnswerSender:
    """See the module docstring."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._table: BatchTable | None = None
        self._thread: threading.Thread | None = None
        self._wake = self._done = -1
        self._next = 0
        self._away: deque[tuple[int, list[SocketConnection], list[bytes]]] = deque()
        """Batches that are with the thread, in order, each with its slot."""
        self.loading = BackgroundLoad(_load_kernel, ("numba",))
        self.load_at = _LOAD_AT
        self.handed_over = 0
        """The number of answers given to the thread."""
        self._many_count = 0
        self._counted_from_s = 0.0
        self._is_closed = False

    @property
    def is_running(self) -> bool:
        """Whether the thread is running."""
        return self._table is not None

    @property
    def is_busy(self) -> bool:
        """Whether an answer is with the thread."""
        return bool(self._away)

    def send_all(self, connections: list[SocketConnection]) -> None:
        """Sends what each of the connections has ready."""
        if len(connections) < MANY or not self._is_ready():
            for connection in connections:
                connection.flush()
            return
        has_place = len(self._away) < SLOTS - 1  # one slot is reserved to end the thread
        room = BYTES_MAX
        taken: list[SocketConnection] = []
        answers: list[bytes] = []
        for connection in connections:
            answer = connection.take_only_answer(room) if has_place and len(taken) < ANSWERS_MAX else None
            if answer is None:
                connection.flush()
            else:
                taken.append(connection)
                answers.append(answer)
                room -= len(answer)
        if taken:
            self._hand_over(taken, answers)

    def _hand_over(self, connections: list[SocketConnection], answers: list[bytes]) -> None:
        table = self._table
        assert table is not None
        place, count = self._next, len(answers)
        try:
            numbers = table.numbers[place]
            numbers[COUNT] = count
            numbers[DESCRIPTORS : DESCRIPTORS + count] = [connection.descriptor for connection in connections]
            numbers[SIZES : SIZES + count] = list(map(len, answers))
            joined = b"".join(answers)
            table.data[place][: len(joined)] = joined
            os.eventfd_write(self._wake, 1)
        except Exception:  # the thread was not woken
            _logger.exception("Could not pass answers to the sender thread.")
            for connection, answer in zip(connections, answers, strict=True):
                connection.take_back(answer, 0)
            return
        self._next = (place + 1) % SLOTS
        self._away.append((place, connections, answers))
        self.handed_over += count

    def _take_back(self) -> None:
        table = self._table
        assert table is not None
        try:
            done = os.eventfd_read(self._done)
        except BlockingIOError:
            return
        for _ in range(done):
            place, connections, answers = self._away.popleft()
            sent = table.numbers[place, SENT : SENT + len(answers)].tolist()
            for connection, answer, size in zip(connections, answers, sent, strict=True):
                connection.take_back(answer, size)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _is_ready(self) -> bool:
        if self._table is not None:
            return True
        if self._is_closed:
            return False
        if not self.loading.is_begun:
            now_s = self._loop.time()
            if now_s - self._counted_from_s > 1:
                self._counted_from_s, self._many_count = now_s, 0
            self._many_count += 1
            if self._many_count < self.load_at or not hasattr(os, "eventfd"):
                return False
            self.loading.begin()
        return not self.loading.is_going_on and self._start()

    def _start(self) -> bool:
        """Starts the thread; returns whether it runs. If it cannot be started, there is no second attempt."""
        wake = done = -1
        try:
            from ottla.net.sending_kernel import BatchTable

            table = BatchTable()
            wake, done = os.eventfd(0), os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            thread = threading.Thread(
                target=table.send_until_the_end, args=(wake, done), name="ottla-sender", daemon=True
            )
            thread.start()
        except Exception as error:  # numba raises RuntimeError if it has no directory for its cache
            self._is_closed = True
            for descriptor in (wake, done):
                if descriptor >= 0:
                    os.close(descriptor)
            if not isinstance(error, ImportError):
                _logger.warning("Could not start the sender thread; answers are sent without it: %s", error)
            return False
        self._table, self._thread, self._wake, self._done = table, thread, wake, done
        self._loop.add_reader(done, self._take_back)
        return True

    def close(self) -> None:
        """Ends the thread after it has sent its answers. Idempotent."""
        self._is_closed = True
        table, thread = self._table, self._thread
        if table is None or thread is None:
            return
        table.numbers[self._next, COUNT] = -1
        os.eventfd_write(self._wake, 1)
        thread.join()
        try:
            self._loop.remove_reader(self._done)
            self._take_back()
        finally:
            self._table = self._thread = None
            os.close(self._wake)
            os.close(self._done)


def _load_kernel() -> None:
    from ottla.net import sending_kernel  # noqa: F401
