"""What an operator is, and the state that it works on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from ottla.spark.streams.cores.changes import Change, Result


class State:
    """The state of the keys of a micro-batch: what was stored before it, and what has changed since.

    Keys are loaded together, before the operator asks for them.
    """

    def __init__(self) -> None:
        self._stored: dict[bytes, bytes | None] = {}
        self._changed: dict[bytes, bytes | None] = {}

    def load(self, keys: Iterable[bytes], read: Callable[[list[bytes]], Sequence[bytes | None]]) -> None:
        """Reads keys that are not there yet."""
        new = [key for key in dict.fromkeys(keys) if key not in self._stored]
        if new:
            self._stored.update(zip(new, read(new), strict=True))

    def get(self, key: bytes) -> bytes | None:
        return self._changed[key] if key in self._changed else self._stored[key]

    def put(self, key: bytes, data: bytes | None) -> None:
        """None removes the key."""
        self._changed[key] = data

    def changes(self) -> Mapping[bytes, bytes | None]:
        """What must be stored: keys whose state is not what it was."""
        return {key: data for key, data in self._changed.items() if data != self._stored.get(key)}


class Step(Protocol):
    """An operator on the rows of a key. Sent from the driver to the tasks. Rows without a key come with the key None,
    and have no state."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields of its results."""

    def state_keys(self, key: bytes | None, changes: Sequence[Change]) -> Iterable[bytes]:
        """The state that is always needed."""

    def more_state_keys(self, key: bytes | None, changes: Sequence[Change], state: State) -> Iterable[bytes]:
        """The state that is needed because of what `state_keys` has found."""

    def apply(self, key: bytes | None, changes: Sequence[Change], state: State) -> Iterator[Result]:
        """Processes all rows of a key in a micro-batch; they are in order."""


class KeyStep:
    """A step whose state is one entry for each key."""

    def state_keys(self, key: bytes | None, changes: Sequence[Change]) -> Iterable[bytes]:  # noqa: ARG002
        return () if key is None else (key,)

    def more_state_keys(self, key: bytes | None, changes: Sequence[Change], state: State) -> Iterable[bytes]:  # noqa: ARG002
        return ()
