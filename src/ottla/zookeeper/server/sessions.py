"""The sessions of a server: which connection serves each, and when each expires.

A session lives as long as something is heard from its client within its timeout, over any connection. Sessions are kept
in the tree's file, so a restarted server still knows them and gives each its full timeout.

A stall of the server itself is not held against clients: when a look at the deadlines comes much later than planned,
each session gets its full timeout again. Belongs to the thread that owns the tree.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ottla.zookeeper.server.undo import UndoLog
from ottla.zookeeper.server.watches import ConnectionId
from ottla.zookeeper.tree_file import StoredSession

PASSWORD_BYTES: Final = 16
_STALL_S: Final = 1.0


@dataclass(eq=False, slots=True)
class Session:
    session_id: int
    password: bytes
    timeout_ms: int
    expires_at_s: float
    """On the monotonic clock."""
    connection: ConnectionId | None = None
    identities: list[tuple[str, str]] = field(default_factory=list)
    """What the client authenticated as: scheme and user."""

    def stored(self) -> StoredSession:
        return StoredSession(self.session_id, self.password, self.timeout_ms)


class SessionTable:
    def __init__(self, undo_log: UndoLog, stored: Iterable[StoredSession], now_s: float) -> None:
        self._undo_log = undo_log
        self._sessions = {each.session_id: Session(*each, now_s + each.timeout_ms / 1000) for each in stored}
        self._last_id = max(self._sessions, default=0)
        self.next_look_s: float | None = None
        """When to ask for expired sessions, on the monotonic clock; None while there are no sessions. Deadlines only
        move away, so this look may find nothing."""
        self._plan(now_s)

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def find(self, session_id: int) -> Session | None:
        return self._sessions.get(session_id)

    def new_id(self, now_ms: int) -> int:
        """Larger than all before, also those of an earlier run, as long as clocks only move on."""
        self._last_id = max(self._last_id + 1, (now_ms << 20) & 0x7FFF_FFFF_FFFF_FFFF)
        return self._last_id

    def begin(self, session_id: int, timeout_ms: int, now_s: float) -> Session:
        session = Session(session_id, os.urandom(PASSWORD_BYTES), timeout_ms, now_s + timeout_ms / 1000)
        self._sessions[session_id] = session
        self._undo_log.note(partial(self._sessions.pop, session_id, None))
        self._look_by(session.expires_at_s)
        return session

    def attach(self, session: Session, connection: ConnectionId, timeout_ms: int, now_s: float) -> ConnectionId | None:
        """Serves the session by that connection from now on; answers the one that did before."""
        before, session.connection = session.connection, connection
        self._undo_log.note(partial(setattr, session, "connection", before))
        session.timeout_ms = timeout_ms
        self.touch(session, now_s)
        self._look_by(session.expires_at_s)
        return before

    def touch(self, session: Session, now_s: float) -> None:
        session.expires_at_s = now_s + session.timeout_ms / 1000

    def end(self, session: Session) -> None:
        del self._sessions[session.session_id]
        self._undo_log.note(partial(self._bring_back, session))

    def expired(self, now_s: float) -> list[Session]:
        """Those whose time is over, the oldest deadline first."""
        if self.next_look_s is not None and now_s - self.next_look_s > _STALL_S:
            for session in self._sessions.values():
                self.touch(session, now_s)
        over = [each for each in self._sessions.values() if each.expires_at_s <= now_s]
        self._plan(now_s)
        return sorted(over, key=lambda session: session.expires_at_s)

    def _plan(self, now_s: float) -> None:
        """Those that are over by now are about to end."""
        later = (each.expires_at_s for each in self._sessions.values() if each.expires_at_s > now_s)
        self.next_look_s = min(later, default=None)

    def _bring_back(self, session: Session) -> None:
        self._sessions[session.session_id] = session
        self._look_by(session.expires_at_s)

    def _look_by(self, at_s: float) -> None:
        if self.next_look_s is None or at_s < self.next_look_s:
            self.next_look_s = at_s
