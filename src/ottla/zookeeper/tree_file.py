"""The tree in a SQLite file: opening, reading and writing it. Belongs to one thread, and to one process at a time.

What was committed survives a power cut. Reads and writes of many nodes are few statements: Python's lock is released
and taken again at each step of one, and a busy event loop does not give it back at once.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from ottla.base.coordination import EventKind, WatchEvent
from ottla.zookeeper.transaction import ROOT, StoredNode, Transaction, parent_of
from ottla.zookeeper.tree_reserve import TreeReserve

T = TypeVar("T")

APPLICATION_ID: Final = int.from_bytes(b"Otzk", "big")
"""Tells SQLite files of ours from those of other programs."""
FORMAT: Final = 2

_NODES: Final = """
CREATE TABLE node (
    path TEXT PRIMARY KEY,
    parent TEXT NOT NULL,
    version INTEGER NOT NULL,
    created_zxid INTEGER NOT NULL,
    modified_zxid INTEGER NOT NULL,
    children_zxid INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    modified_ms INTEGER NOT NULL,
    children_made INTEGER NOT NULL,
    child_count INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    acl_version INTEGER NOT NULL,
    acl BLOB,
    data BLOB
) WITHOUT ROWID;
CREATE INDEX node_by_parent ON node (parent);
CREATE INDEX node_by_owner ON node (owner) WHERE owner != 0;
CREATE TABLE session (
    id INTEGER PRIMARY KEY,
    password BLOB NOT NULL,
    timeout_ms INTEGER NOT NULL
);
"""
_SCHEMA: Final = f"""{_NODES}
CREATE TABLE tree (last_zxid INTEGER NOT NULL);
INSERT INTO tree VALUES (0);
INSERT INTO node VALUES ('/', '', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL);
"""
_FROM_FORMAT_1: Final = f"""
ALTER TABLE node RENAME TO node_1;
DROP INDEX node_by_parent;
{_NODES}
INSERT INTO node SELECT path, parent, version, created_zxid, modified_zxid, children_zxid, created_ms, modified_ms,
    children_made, child_count, 0, 0, NULL, nullif(data, x'') FROM node_1;
DROP TABLE node_1;
"""
"""Format 1 knew neither sessions nor ACLs, and kept no data as empty data."""
_COLUMNS: Final = ", ".join(StoredNode._fields)
_ROW: Final = f"({', '.join('?' * (len(StoredNode._fields) + 2))})"
_ROWS_AT_ONCE: Final = 256
_PUT_ONE: Final = f"INSERT OR REPLACE INTO node VALUES {_ROW}"
_PUT_MANY: Final = f"INSERT OR REPLACE INTO node VALUES {', '.join([_ROW] * _ROWS_AT_ONCE)}"


class StoredSession(NamedTuple):
    """A client that may come back to its session, also after the server was restarted."""

    session_id: int
    password: bytes
    timeout_ms: int


class TreeFileError(Exception):
    """The file cannot be used, or a write to it failed; the message names it and says what to do."""

    def __init__(self, path: Path, reason: str, *, is_full: bool = False) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason
        self.is_full = is_full
        """Whether the disk has no room; the tree is as it was."""


class TreeFile:
    """Use `open`. Everything happens within `commit`."""

    def __init__(self, path: Path, connection: sqlite3.Connection, reserve: TreeReserve) -> None:
        self.path = path
        self.connection = connection
        self._reserve = reserve
        self._last_zxid: int = connection.execute("SELECT last_zxid FROM tree").fetchone()[0]

    @classmethod
    def open(cls, path: Path) -> TreeFile:
        """Made if it is not there. Held for this process until `close`."""
        reserve = TreeReserve(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            was_kept = reserve.release()
            connection = sqlite3.connect(path, timeout=0, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise _refusal(path, error) from error
        try:
            _claim(path, connection)
            if was_kept:
                reserve.fill(connection)  # at once: others may take the room
            return cls(path, connection, reserve)
        except sqlite3.Error as error:
            connection.close()
            raise _refusal(path, error) from error
        except BaseException:
            connection.close()
            raise

    @property
    def last_zxid(self) -> int:
        """Of the newest write; it is taken back if its commit fails."""
        return self._last_zxid

    def close(self) -> None:
        self._reserve.close(self.connection)

    def make_room(self) -> None:
        """Lets the next commit use the reserve, after one that found the disk full."""
        self._reserve.make_room(self.connection)

    @property
    def is_reserve_low(self) -> bool:
        return self._reserve.is_low(self.connection)

    def fill_reserve(self) -> bool:
        """Takes tens of milliseconds. False if there is no room for it now."""
        return self._reserve.fill(self.connection)

    @contextmanager
    def commit(self) -> Iterator[None]:
        """Around everything that is to be kept, or lost, together."""
        last_zxid = self._last_zxid
        try:
            self.connection.execute("BEGIN")
            yield
            self.connection.execute("COMMIT")
        except BaseException as error:
            self._last_zxid = last_zxid
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise _refusal(self.path, error) from error
            raise

    # --- reading ----------------------------------------------------------------------------------------------------

    def read(self, path: str) -> StoredNode | None:
        row = self.connection.execute(f"SELECT {_COLUMNS} FROM node WHERE path = ?", (path,)).fetchone()
        return None if row is None else StoredNode._make(row)

    def read_many(self, paths: Collection[str]) -> dict[str, StoredNode]:
        """Those that exist."""
        rows = self.connection.execute(
            f"SELECT node.path, {_COLUMNS} FROM json_each(?) JOIN node ON node.path = json_each.value",
            (json.dumps(list(paths)),),
        )
        return {row[0]: StoredNode._make(row[1:]) for row in rows}

    def children(self, path: str) -> list[str]:
        prefix_size = len(path) if path == ROOT else len(path) + 1
        (names,) = self.connection.execute(
            "SELECT group_concat(substr(path, ?), '/') FROM node WHERE parent = ?", (prefix_size + 1, path)
        ).fetchone()
        return [] if names is None else sorted(names.split("/"))

    def owners(self) -> list[int]:
        """The sessions that have ephemeral nodes."""
        return [owner for (owner,) in self.connection.execute("SELECT DISTINCT owner FROM node WHERE owner != 0")]

    def owned_by(self, session_id: int) -> list[str]:
        """The ephemeral nodes of a session, sorted."""
        rows = self.connection.execute("SELECT path FROM node WHERE owner = ? AND owner != 0", (session_id,))
        return sorted(path for (path,) in rows)

    def count_below(self, path: str) -> int:
        (count,) = self.connection.execute(
            "SELECT count(*) FROM node WHERE path > ? AND path < ?", _below(path)
        ).fetchone()
        return int(count)

    def count_nodes(self) -> tuple[int, int, int]:
        """Of all nodes, of ephemeral ones, and the bytes of paths and data."""
        nodes, ephemeral, size = self.connection.execute(
            "SELECT count(*), count(nullif(owner, 0)), sum(length(path) + ifnull(length(data), 0)) FROM node"
        ).fetchone()
        return nodes, ephemeral, size

    # --- sessions ---------------------------------------------------------------------------------------------------

    def sessions(self) -> list[StoredSession]:
        return [
            StoredSession._make(row) for row in self.connection.execute("SELECT id, password, timeout_ms FROM session")
        ]

    def keep_session(self, session: StoredSession) -> None:
        self.connection.execute("INSERT OR REPLACE INTO session VALUES (?, ?, ?)", session)

    def forget_session(self, session_id: int) -> None:
        self.connection.execute("DELETE FROM session WHERE id = ?", (session_id,))

    # --- writing ----------------------------------------------------------------------------------------------------

    def write(
        self, paths: Collection[str], act: Callable[[Transaction], T], now_ms: int, session_id: int = 0
    ) -> tuple[T, list[WatchEvent]]:
        """Lets a transaction act, writes what it changed, and answers what watches are told of it. It mostly looks at
        those paths and their parents."""
        found = _Found(self)
        wanted = {*paths, *(parent_of(path) for path in paths if path != ROOT)}
        found.update(dict.fromkeys(wanted))
        found.update(self.read_many(wanted))
        zxid = self._last_zxid + 1
        transaction = Transaction(found, zxid, now_ms, session_id)
        answer = act(transaction)
        if transaction.changed:
            self._store(transaction, zxid)
        return answer, transaction.events

    def delete_trees(self, paths: Collection[str], now_ms: int) -> list[WatchEvent]:
        """Nodes and all below them, as far as they are there."""
        found = self.read_many(paths)
        events: list[WatchEvent] = []
        for below in [_below(path) for path, node in found.items() if node.child_count]:
            rows = self.connection.execute(
                "SELECT path, parent FROM node WHERE path > ? AND path < ?", below
            ).fetchall()
            self.connection.execute("DELETE FROM node WHERE path > ? AND path < ?", below)
            for path, parent in sorted(rows, reverse=True):
                events += [WatchEvent(EventKind.DELETED, path), WatchEvent(EventKind.CHILDREN, parent)]

        def detach_all(transaction: Transaction) -> None:
            for path in found:
                transaction.detach(path)

        if found:
            events += self.write(found, detach_all, now_ms)[1]
        return events

    def _store(self, transaction: Transaction, zxid: int) -> None:
        rows = []
        gone = []
        for path, node in transaction.changed.items():
            if node is None:
                gone.append((path,))
            else:
                rows.append((path, "" if path == ROOT else parent_of(path), *node))
        whole = len(rows) // _ROWS_AT_ONCE * _ROWS_AT_ONCE
        for start in range(0, whole, _ROWS_AT_ONCE):
            self.connection.execute(_PUT_MANY, list(chain.from_iterable(rows[start : start + _ROWS_AT_ONCE])))
        self.connection.executemany(_PUT_ONE, rows[whole:])
        self.connection.executemany("DELETE FROM node WHERE path = ?", gone)
        self.connection.execute("UPDATE tree SET last_zxid = ?", (zxid,))
        self._last_zxid = zxid


def _below(path: str) -> tuple[str, str]:
    """ "0" follows "/": the path of every node below is between the two."""
    return ("/", "0") if path == ROOT else (f"{path}/", f"{path}0")


class _Found(dict[str, StoredNode | None]):
    """What was read in advance; what was not is read when it is asked for."""

    def __init__(self, file: TreeFile) -> None:
        super().__init__()
        self._file = file

    def __missing__(self, path: str) -> StoredNode | None:
        node = self[path] = self._file.read(path)
        return node


def _claim(path: Path, connection: sqlite3.Connection) -> None:
    """Makes sure that the file is ours and whole before anything is written to it, and keeps other processes out."""
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (file_format,) = connection.execute("PRAGMA user_version").fetchone()
    (table_count,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    is_new = application_id == 0 and file_format == 0 and table_count == 0
    if not is_new and application_id != APPLICATION_ID:
        raise TreeFileError(path, "this is the database of another program; choose another place for the tree")
    if not is_new and file_format not in (1, FORMAT):
        reason = f"the tree is kept in format {file_format}, this Ottla knows formats 1 to {FORMAT}"
        raise TreeFileError(path, f"{reason}; use the version of Ottla that wrote it")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")
    connection.execute("BEGIN IMMEDIATE")  # the lock is taken now, and kept
    if is_new:
        _run_script(connection, _SCHEMA)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    else:
        faults: Sequence[tuple[str]] = connection.execute("PRAGMA quick_check(1)").fetchall()
        if faults != [("ok",)]:
            raise _corrupt(path, faults[0][0])
        if file_format == 1:
            _run_script(connection, _FROM_FORMAT_1)
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute("COMMIT")


def _run_script(connection: sqlite3.Connection, script: str) -> None:
    """Within the transaction that is open, which `executescript` would end."""
    for statement in filter(str.strip, script.split(";")):
        connection.execute(statement)


def _refusal(path: Path, error: Exception) -> TreeFileError:
    """SQLite's error, in words that help."""
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        reason = "another process uses this tree, probably a broker or server that is still running"
        return TreeFileError(path, f"{reason}; stop it, or choose another directory")
    if name.startswith("SQLITE_NOTADB"):
        return TreeFileError(path, "this is no SQLite database; choose another place for the tree, or restore the file")
    if name.startswith("SQLITE_CORRUPT"):
        return _corrupt(path, str(error))
    if name.startswith("SQLITE_FULL"):
        return TreeFileError(path, "the disk is full: nothing was written; make room, then try again", is_full=True)
    if name.startswith("SQLITE_READONLY"):
        return TreeFileError(path, "the file cannot be written to; check its permissions and those of its folder")
    if name.startswith("SQLITE_CANTOPEN"):
        return TreeFileError(path, "the file cannot be opened; check that it is no folder, and its permissions")
    return TreeFileError(path, f"the tree cannot be used: {error}; check the disk and the permissions")


def _corrupt(path: Path, reason: str) -> TreeFileError:
    return TreeFileError(path, f"the file is damaged ({reason}); restore it from a copy")
