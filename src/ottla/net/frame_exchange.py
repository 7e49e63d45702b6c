"""Requests on a client's connection as encoded frames, one at a time, each sent as soon as the last one is answered.

For a caller that asks the same question again and again, such as a follower: `answered` gets the frame of a response in
the turn of the loop in which it arrives, and can send the next request before it returns. There is no future, no task
and no timer per request: one timer watches the whole exchange.

Belongs to the connection's loop. Made by `ClientConnection.exchange`.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable

Frame = bytes | memoryview
"""A response without its size, but with its header. It owns its bytes."""


class FrameExchange:
    """See the module. Stands in for the future of each of its requests: `done`, `set_result`, `set_exception`."""

    __slots__ = (
        "_answered",
        "_deadline_s",
        "_failed",
        "_is_open",
        "_is_waiting",
        "_loop",
        "_on_timeout",
        "_timeout_s",
        "_timer",
        "_write",
        "name",
    )

    def __init__(
        self,
        name: str,
        loop: AbstractEventLoop,
        write: Callable[[bytearray, FrameExchange], None],
        *,
        answered: Callable[[Frame], None],
        failed: Callable[[Exception], None],
        timeout_s: float,
        on_timeout: Callable[[], object],
    ) -> None:
        """`write` sends a frame with a correlation id of its own. `answered` and `failed` must not raise."""
        self.name = name
        self._loop = loop
        self._write = write
        self._timeout_s = timeout_s
        self._on_timeout = on_timeout
        self._answered = answered
        self._failed = failed
        self._is_open = True
        self._is_waiting = False
        self._deadline_s = 0.0
        self._timer: TimerHandle | None = None

    def send(self, frame: bytearray) -> None:
        """Sends a whole request frame; its correlation id is filled in. The last one must be answered. Raises what
        `ClientConnection.send` would raise."""
        self._write(frame, self)
        self._is_waiting = True
        self._deadline_s = self._loop.time() + self._timeout_s
        if self._timer is None:
            self._timer = self._loop.call_at(self._deadline_s, self._check_deadline)

    def close(self) -> None:
        """Nothing is called any more. An answer that is on its way is dropped, but a broker that hangs is noticed."""
        self._is_open = False
        if not self._is_waiting:
            self._stop_timer()

    def _check_deadline(self) -> None:
        self._timer = None
        if not self._is_waiting:
            if self._is_open:  # the caller does something else before it asks again
                self._timer = self._loop.call_later(self._timeout_s, self._check_deadline)
        elif self._loop.time() >= self._deadline_s:
            self._on_timeout()
        else:
            self._timer = self._loop.call_at(self._deadline_s, self._check_deadline)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- for the connection -----------------------------------------------------------------------------------------

    def done(self) -> bool:
        return False

    def set_result(self, frame: Frame) -> None:
        self._is_waiting = False
        if self._is_open:
            self._answered(frame)
        else:
            self._stop_timer()

    def set_exception(self, error: Exception) -> None:
        self._is_waiting = False
        self._stop_timer()
        if self._is_open:
            self._is_open = False
            self._failed(error)
