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
from typing import Any, Final, NamedTuple, Self

from support.cluster.checker import Place
from support.isolation.history import TOMBSTONE, Outcome, Read, Reader, Restart, Transaction, Write

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

    def write(
        self,
        transaction: int,
        place: Place,
        source: int | None = None,
        *,
        key: int | None = None,
        is_tombstone: bool = False,
    ) -> int:
        """The value to write."""
        value = self.new_number()
        self._put("write", transaction, *place, value, source, key, is_tombstone)
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

    def prepared(self, transaction: int) -> None:
        """It is not committed unless that is decided."""
        self._put("prepared", transaction)

    def end(self, transaction: int, outcome: Outcome) -> None:
        """Also of a transaction that another process prepared."""
        self._put("end", transaction, outcome.value, time.monotonic_ns())
        self.flush()

    def read(self, place: Place, offset: int, value: int, at_ns: int) -> None:
        self._put("read", *place, offset, value, at_ns)

    def restart(self, place: Place, offset: int) -> None:
        self._put("restart", *place, offset)

    def complain(self, what: object) -> None:
        """An error, for people."""
        self._put("error", str(what)[:300])


class _End(NamedTuple):
    number: int
    outcome: Outcome
    at_ns: int
    is_other: bool
    """Another process began the transaction."""


class Recorded:
    """What the events of all processes tell."""

    def __init__(self) -> None:
        self.transactions: dict[int, Transaction] = {}
        self.readers: list[Reader] = []
        self.errors: list[str] = []
        self._ends: list[_End] = []

    @classmethod
    def of(cls, files: Iterable[Path]) -> Recorded:
        found = cls()
        for file in files:
            found.add(file.read_text(encoding="utf-8").splitlines(keepends=True))
        found._end_all()
        found._name_tombstones()
        return found

    def add(self, lines: Iterable[str]) -> None:
        """The events of one process."""
        name, offsets, spots = "", {}, {}
        own: set[int] = set()
        reader = Reader("")
        for line in _whole(lines):
            match json.loads(line):
                case ["name", str(name)]:
                    reader = Reader(name)
                case ["begin", number, at_ns]:
                    self.transactions[number] = Transaction(number, name, began_ns=at_ns)
                    own.add(number)
                case ["write", number, topic, partition, value, source, key, is_tombstone]:
                    writes = self.transactions[number].writes
                    spots[value] = (writes, len(writes))
                    writes.append(Write(Place(topic, partition), value, None, source, key, is_tombstone))
                case ["stored", value, offset]:
                    offsets[value] = offset
                case ["consumed", number, topic, partition, offset, value, at_ns]:
                    self.transactions[number].reads.append(Read(Place(topic, partition), offset, value, at_ns))
                case ["offset", number, topic, partition, offset]:
                    self.transactions[number].offsets[Place(topic, partition)] = offset
                case ["ask", number, at_ns]:
                    self.transactions[number].asked_ns = at_ns
                    self.transactions[number].outcome = Outcome.UNKNOWN
                case ["prepared", number]:
                    self.transactions[number].is_prepared = True
                case ["end", number, outcome, at_ns]:
                    self._ends.append(_End(number, Outcome(outcome), at_ns, is_other=number not in own))
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

    def _end_all(self) -> None:
        """Last: the process that completes a transaction may come before the one that began it."""
        for end in sorted(self._ends, key=lambda end: end.at_ns, reverse=True):
            transaction = self.transactions[end.number]
            transaction.outcome = end.outcome
            transaction.ended_ns = None if end.outcome is Outcome.UNKNOWN else end.at_ns
            transaction.ended_by_other = end.is_other

    def _name_tombstones(self) -> None:
        names = self.tombstones
        for reader in self.readers:
            reader.events[:] = [
                event._replace(value=names.get((event.place, event.offset), TOMBSTONE))
                if isinstance(event, Read) and event.value == TOMBSTONE
                else event
                for event in reader.events
            ]

    @property
    def tombstones(self) -> dict[tuple[Place, int], int]:
        """Which value is the one at an offset that has none, as far as producers were told."""
        return {
            (write.place, write.offset): write.value
            for one in self.transactions.values()
            for write in one.writes
            if write.is_tombstone and write.offset is not None
        }


def _whole(lines: Iterable[str]) -> Iterator[str]:
    """Without a last line that was cut off."""
    return (line for line in lines if line.endswith("\n"))
