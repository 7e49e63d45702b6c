"""The follower's side of a fetch session (KIP-227): which session id and epoch the next request has.

    state        event                            next state
    full         answered with a session id       incremental, epoch 1
    full         answered without                 full (the leader has no slot)
    incremental  answered with the session id     incremental, next epoch
    incremental  answered without                 full: the leader ended it
    any          lost, or an error                full; the leader ends the old session first, unless it is unknown

No I/O.
"""

from __future__ import annotations

from typing import Final

NO_SESSION: Final = 0
FULL_EPOCH: Final = 0
_MAX_EPOCH: Final = 2**31 - 1


class FollowerSession:
    """See the module."""

    __slots__ = ("epoch", "session_id")

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = FULL_EPOCH

    @property
    def is_full(self) -> bool:
        """Whether the next request names all partitions."""
        return self.epoch == FULL_EPOCH

    def answered(self, session_id: int) -> None:
        """The leader answered the last request without an error for the session."""
        if session_id == NO_SESSION:
            self.forget()
        elif session_id != self.session_id or self.is_full:
            self.session_id, self.epoch = session_id, FULL_EPOCH + 1
        else:
            self.epoch = FULL_EPOCH + 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

    def restart(self) -> None:
        """The next request begins a new session and ends the old one, if the leader still has it."""
        self.epoch = FULL_EPOCH

    def forget(self) -> None:
        """The leader does not know the session."""
        self.session_id, self.epoch = NO_SESSION, FULL_EPOCH
