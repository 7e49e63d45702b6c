"""Whether a broker's process is gone, judged by what happens to connections to it. A state machine without I/O.

    state      event                                                  next state   told
    trusted    refused at least 3 times, without a break, over 300 ms  silent       on_silent
    silent     a connection is made and answered                       trusted      on_answer

The host itself answers for a process that is gone: it ends the connections and refuses new ones at once. A process that
is paused, or a network that is cut, answers nothing at all: a timeout proves nothing, and ends a series of refusals.

A broker that was never reached may still be starting: Apache Kafka registers before it listens. It gets more time,
unless it registered long ago.
"""

from __future__ import annotations

from typing import Final

REFUSALS: Final = 3
REFUSED_FOR_S: Final = 0.3
STARTING_S: Final = 1.0


class Suspicion:
    """See the module. Times are monotonic seconds."""

    __slots__ = ("_count", "_since_s", "_was_reached", "is_silent")

    def __init__(self, *, may_be_starting: bool = True) -> None:
        self.is_silent = False
        self._was_reached = not may_be_starting
        self._count = 0
        self._since_s = 0.0

    def answered(self) -> bool:
        """The broker answered on a new connection. Whether it was silent before."""
        was_silent, self.is_silent = self.is_silent, False
        self._was_reached = True
        self._count = 0
        return was_silent

    def refused(self, now_s: float) -> bool:
        """A connection was refused. Whether the broker is silent from now on."""
        if self._count == 0:
            self._since_s = now_s
        self._count += 1
        enough_s = REFUSED_FOR_S if self._was_reached else STARTING_S
        if self.is_silent or self._count < REFUSALS or now_s - self._since_s < enough_s:
            return False
        self.is_silent = True
        return True

    def unclear(self) -> None:
        """A connection failed in a way that does not tell whether the process is there."""
        self._count = 0
