"""A response that is not known yet, such as that of a JoinGroup request which waits for other members.

Cores answer it without knowing an event loop; the runtime awaits it. Owned by the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

R = TypeVar("R")


class PendingAnswer(Generic[R]):
    """Answered at most once."""

    __slots__ = ("_answers", "_listener")

    def __init__(self) -> None:
        self._answers: list[R] = []
        self._listener: Callable[[R], None] | None = None

    @property
    def is_answered(self) -> bool:
        return bool(self._answers)

    @property
    def response(self) -> R:
        """The answer; `IndexError` if there is none yet."""
        return self._answers[0]

    def answer(self, response: R) -> None:
        """Raises `RuntimeError` if it is answered already."""
        if self._answers:
            raise RuntimeError("This request is already answered.")
        self._answers.append(response)
        if self._listener is not None:
            self._listener(response)

    def when_answered(self, listener: Callable[[R], None]) -> None:
        """Calls the listener with the response, now if it is known."""
        self._listener = listener
        if self._answers:
            listener(self._answers[0])
