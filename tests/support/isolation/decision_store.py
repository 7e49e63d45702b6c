"""Where applications of prepared transactions keep their decisions: a database that outlives them.

It belongs to one transactional id. The process that came last owns it: a decision of an earlier one, which was paused
and does not know that it was replaced, is refused. So a transaction is committed if and only if its decision is here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

_PATIENCE_S: Final = 60.0
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS owner (instance INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS decisions (
  number INTEGER PRIMARY KEY, prepared TEXT NOT NULL, commits INTEGER NOT NULL, is_done INTEGER NOT NULL DEFAULT 0
);
"""


class Decision(NamedTuple):
    number: int
    prepared: str
    """What identifies the transaction for the coordinator."""
    commits: bool


class DecisionStore:
    """Each call opens the file anew: a process that is paused must not lock others out."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def own(self, instance: int) -> bool:
        """Whether this process is the last one. Earlier ones can decide nothing any more."""
        with self._writing() as database:
            database.execute("INSERT INTO owner VALUES (?)", (instance,))
            return self._owner(database) == instance

    def decide(self, instance: int, decision: Decision) -> bool:
        """Whether the decision counts."""
        with self._writing() as database:
            if self._owner(database) != instance:
                return False
            row = (decision.number, decision.prepared, decision.commits)
            database.execute("INSERT INTO decisions (number, prepared, commits) VALUES (?, ?, ?)", row)
            return True

    def done(self, number: int) -> None:
        with self._writing() as database:
            database.execute("UPDATE decisions SET is_done = 1 WHERE number = ?", (number,))

    def unfinished(self) -> list[Decision]:
        with self._writing() as database:
            rows = database.execute("SELECT number, prepared, commits FROM decisions WHERE is_done = 0").fetchall()
        return [Decision(number, prepared, bool(commits)) for number, prepared, commits in rows]

    def all(self) -> dict[int, bool]:
        with self._writing() as database:
            return {n: bool(commits) for n, commits in database.execute("SELECT number, commits FROM decisions")}

    @staticmethod
    def _owner(database: sqlite3.Connection) -> int:
        found: int = database.execute("SELECT max(instance) FROM owner").fetchone()[0]
        return found

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._file, timeout=_PATIENCE_S, isolation_level=None)) as database:
            database.executescript(f"PRAGMA synchronous = OFF; BEGIN IMMEDIATE; {_TABLES}")
            yield database
            database.execute("COMMIT")
