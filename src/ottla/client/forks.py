"""Forks: objects created before a fork belong to the parent, together with their threads and sockets.

If a child closed such a socket through its loop, it would remove it from the epoll instance that it shares with the
parent, and the parent's loop would never hear of it again. So registered objects are neither used nor destroyed in the
child.
"""

from __future__ import annotations

import os
import weakref
from typing import Final, Protocol


class BelongsToProcess(Protocol):
    """An object that cannot be used in the child of a fork."""

    def after_fork(self) -> None:
        """Called in the child: from now on every use raises an error."""


_told: Final[weakref.WeakSet[BelongsToProcess]] = weakref.WeakSet()
_inherited: Final[list[BelongsToProcess]] = []
"""Kept for the lifetime of the child."""


def tell_of_forks(one: BelongsToProcess) -> None:
    _told.add(one)


def _tell() -> None:
    _inherited.extend(_told)
    for one in _inherited:
        one.after_fork()


os.register_at_fork(after_in_child=_tell)
