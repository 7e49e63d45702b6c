"""Events of clients in files, a line each, and the transactions and readers that they tell of.

A client that is killed loses at most its last lines. So that this never hides something that happened, it writes down
what a transaction consists of before it asks to commit. What it never asked to commit was aborted, whatever it lost.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from support.cluster.checker import Place
from support.isolation.history import Outcome, Read, Reader, Restart, Transaction, Write

_NUMBER_SHIFT: Final = 32
_LINES_MAX: Final = 200


class Recorder:
    """Of one process; `instance` is its number, unique in the run."""

    def __init__(self, file: Path, instance: int, name: str) -> None:
        self._descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._lines: list[str] = []
        self._next = instance << _NUMBER_SHIFT
        self._put("name", name)
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()
        os.close(self._descriptor)

    def _put(self, *event: Any) -> None:
        self._lines.append(json.dumps(event, separators=(",", ":")))
        if len(self._lines) >= _LINES_MAX:
            self.flush()

    def flush(self) -> None:
        if self._lines:
            lines, self._lines = self._lines, []
            os.write(self._descriptor, ("\n".join(lines) + "\n").encode())

    def new_number(self) -> int:
        """Of a transaction or a value."""
        self._next += 1
        return self._next

    def begin(self) -> int:
        number = self.new_number()
        self._put("begin", number, time.monotonic_ns())
        return number

    def write(self, transaction: int, place: Place, source: int | None = None) -> int:
        """The value to write."""
        value = self.new_number()
        self._put("write", transaction, *place, value, source)
        return value

    def stored(self, value: int, offset: int) -> None:
        self._put("stored", value, offset)

    def consumed(self, transaction: int, place: Place, offset: int, value: int) -> None:
        self._put("consumed", transaction, *place, offset, value, time.monotonic_ns())

    def offset(self, transaction: int, place: Place, offset: int) -> None:
        """It commits this offset of the group."""
        self._put("offset", transaction, *place, offset)

    def ask(self, transaction: int) -> None:
        """The next thing that the client does is to ask for the commit."""
        self._put("ask", transaction, time.monotonic_ns())
        self.flush()

    def end(self, transaction: int, outcome: Outcome) -> None:
        self._put("end", transaction, outcome.value, time.monotonic_ns())
        self.flush()

    def read(self, place: Place, offset: int, value: int, at_ns: int) -> None:
        self._put("read", *place, offset, value, at_ns)

    def restart(self, place: Place, offset: int) -> None:
        self._put("restart", *place, offset)

    def complain(self, what: object) -> None:
        """An error, for people."""
        self._put("error", str(what)[:300])


class Recorded:
    """What the events of all processes tell."""

    def __init__(self) -> None:
        self.transactions: dict[int, Transaction] = {}
        self.readers: list[Reader] = []
        self.errors: list[str] = []

    @classmethod
    def of(cls, files: Iterable[Path]) -> Recorded:
        found = cls()
        for file in files:
            found.add(file.read_text(encoding="utf-8").splitlines(keepends=True))
        return found

    def add(self, lines: Iterable[str]) -> None:
        """The events of one process."""
        name, offsets, spots = "", {}, {}
        reader = Reader("")
        for line in _whole(lines):
            match json.loads(line):
                case ["name", str(name)]:
                    reader = Reader(name)
                case ["begin", number, at_ns]:
                    self.transactions[number] = Transaction(number, name, began_ns=at_ns)
                case ["write", number, topic, partition, value, source]:
                    writes = self.transactions[number].writes
                    spots[value] = (writes, len(writes))
                    writes.append(Write(Place(topic, partition), value, None, source))
                case ["stored", value, offset]:
                    offsets[value] = offset
                case ["consumed", number, topic, partition, offset, value, at_ns]:
                    self.transactions[number].reads.append(Read(Place(topic, partition), offset, value, at_ns))
                case ["offset", number, topic, partition, offset]:
                    self.transactions[number].offsets[Place(topic, partition)] = offset
                case ["ask", number, at_ns]:
                    self.transactions[number].asked_ns = at_ns
                    self.transactions[number].outcome = Outcome.UNKNOWN
                case ["end", number, outcome, at_ns]:
                    self._end(self.transactions[number], Outcome(outcome), at_ns)
                case ["read", topic, partition, offset, value, at_ns]:
                    reader.events.append(Read(Place(topic, partition), offset, value, at_ns))
                case ["restart", topic, partition, offset]:
                    reader.events.append(Restart(Place(topic, partition), offset))
                case ["error", what]:
                    self.errors.append(f"{name}: {what}")
                case unknown:
                    raise ValueError(f"{unknown!r} is not an event")
        for value, offset in offsets.items():
            writes, index = spots[value]
            writes[index] = writes[index]._replace(offset=offset)
        if reader.events:
            self.readers.append(reader)

    @staticmethod
    def _end(transaction: Transaction, outcome: Outcome, at_ns: int) -> None:
        transaction.outcome = outcome
        transaction.ended_ns = None if outcome is Outcome.UNKNOWN else at_ns


def _whole(lines: Iterable[str]) -> Iterator[str]:
    """Without a last line that was cut off."""
    return (line for line in lines if line.endswith("\n"))
