"""Room that the tree keeps for itself, so that a full disk can be cleared: topics deleted, settings changed.

The tree usually shares its disk with the logs. When those have filled it, a file that was merely set aside would help
once: producers take whatever is freed. So the room is kept inside SQLite's own files, where nobody else can take it.

- The database has free pages, so that new nodes do not make it grow.
- The write-ahead log has its size already. SQLite overwrites it from the beginning once all of it was copied to the
  database; `make_room` does that when a commit finds no room.
- SQLite removes the write-ahead log when the database is closed. Until it is opened again, a file beside it takes up as
  much.

On file systems that never overwrite in place (btrfs, ZFS) there may be no room all the same. Belongs to the thread that
owns the tree's file.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final

RESERVE_BYTES: Final = 2**20
_TABLE: Final = "reserve"


class TreeReserve:
    """See the module."""

    def __init__(self, path: Path) -> None:
        """`path` is that of the database."""
        self._log = path.with_name(path.name + "-wal")
        self._holder = path.with_name(path.name + "-reserve")
        self.is_filled = False

    def release(self) -> bool:
        """Before the database is opened. Whether the last run kept a reserve."""
        try:
            self._holder.unlink()
        except OSError:
            return False
        return True

    def close(self, connection: sqlite3.Connection) -> None:
        """Closes the database and takes the place of its write-ahead log, unless that was small."""
        try:
            size = min(self._log.stat().st_size, 2 * RESERVE_BYTES)
        except OSError:
            size = 0
        connection.close()
        if size >= RESERVE_BYTES // 2:
            try:
                self._holder.write_bytes(os.urandom(size))  # zeros may take no room
            except OSError:
                self.release()

    def fill(self, connection: sqlite3.Connection) -> bool:
        """Makes both files as large as they shall be. False if there is no room for that now; the write-ahead log has
        taken what there was."""
        try:
            connection.execute("BEGIN")
            connection.execute(f"DROP TABLE IF EXISTS {_TABLE}")  # the last run was killed at it
            connection.execute(f"CREATE TABLE {_TABLE} (data BLOB)")
            connection.execute(f"INSERT INTO {_TABLE} VALUES (zeroblob({RESERVE_BYTES}))")
            connection.execute("COMMIT")
            self.make_room(connection)  # pages that are freed before they were written take no room in the database
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            return False
        finally:
            with suppress(sqlite3.Error):
                connection.execute(f"DROP TABLE IF EXISTS {_TABLE}")
        self.is_filled = True
        return True

    def is_low(self, connection: sqlite3.Connection) -> bool:
        """Whether it is to be filled: it never was, or half of it was used."""
        if not self.is_filled:
            return True
        (free_pages,) = connection.execute("PRAGMA freelist_count").fetchone()
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
        return bool(free_pages * page_bytes < RESERVE_BYTES // 2)

    def make_room(self, connection: sqlite3.Connection) -> None:
        """The next commit begins the write-ahead log anew."""
        with suppress(sqlite3.Error):
            connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
