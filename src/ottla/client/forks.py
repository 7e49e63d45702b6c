"""Forks: what was made before one belongs to the parent, together with its threads and sockets.

A child that closed such a socket by its loop would take it out of the epoll that it shares with the parent, whose loop
would never hear of it again. So what is told of the fork is neither touched in the child nor taken apart.
"""

from __future__ import annotations

import os
import weakref
from typing import Final, Protocol


class BelongsToProcess(Protocol):
    """Something that the child of a fork cannot use."""

    def after_fork(self) -> None:
        """Called in the child: from now on all use is refused."""


_told: Final[weakref.WeakSet[BelongsToProcess]] = weakref.WeakSet()
_inherited: Final[list[BelongsToProcess]] = []
"""Kept for as long as the child lives."""


def tell_of_forks(one: BelongsToProcess) -> None:
    _told.add(one)


def _tell() -> None:
    _inherited.extend(_told)
    for one in _inherited:
        one.after_fork()


os.register_at_fork(after_in_child=_tell)
