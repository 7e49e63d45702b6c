"""Changes of memory that can be taken back when the commit that they belong to fails."""

from __future__ import annotations

from collections.abc import Callable


class UndoLog:
    """Whoever changes something notes how to undo it. Belongs to the thread that owns the tree."""

    def __init__(self) -> None:
        self._undos: list[Callable[[], object]] = []

    def note(self, undo: Callable[[], object]) -> None:
        self._undos.append(undo)

    def settle(self) -> None:
        """The commit is done: nothing is taken back any more."""
        self._undos.clear()

    def roll_back(self) -> None:
        """Undoes everything since the last commit, the newest first."""
        while self._undos:
            self._undos.pop()()
