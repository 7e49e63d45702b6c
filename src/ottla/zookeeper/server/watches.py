"""Who watches which node, and whom an event is told.

| watch | set by | told of | after that |
| --- | --- | --- | --- |
| data | exists, getData | CREATED, CHANGED, DELETED of the node | gone |
| children | getChildren | CHILDREN, DELETED of the node | gone |
| persistent | addWatch | all events of the node | stays |
| recursive | addWatch | CREATED, CHANGED, DELETED of the node and all below it | stays |

A connection is told of one event once, however many of its watches it meets. Belongs to the thread that owns the tree.
"""

from __future__ import annotations

from enum import Enum, auto
from functools import partial

from ottla.base.coordination import EventKind, WatchEvent
from ottla.zookeeper.server.undo import UndoLog
from ottla.zookeeper.transaction import ROOT, ancestors_of

ConnectionId = int


class WatchKind(Enum):
    DATA = auto()
    CHILDREN = auto()
    PERSISTENT = auto()
    RECURSIVE = auto()


_GONE_AFTER_EVENT = {
    EventKind.CREATED: (WatchKind.DATA,),
    EventKind.CHANGED: (WatchKind.DATA,),
    EventKind.DELETED: (WatchKind.DATA, WatchKind.CHILDREN),
    EventKind.CHILDREN: (WatchKind.CHILDREN,),
}


class WatchTable:
    def __init__(self, undo_log: UndoLog) -> None:
        self._undo_log = undo_log
        self._watchers: dict[tuple[WatchKind, str], dict[ConnectionId, None]] = {}
        self._watched: dict[ConnectionId, set[tuple[WatchKind, str]]] = {}
        self._recursive: set[str] = set()
        """The paths with recursive watches: most trees have none, and a write may have thousands of events."""

    def __len__(self) -> int:
        return sum(map(len, self._watchers.values()))

    def add(self, kind: WatchKind, path: str, connection: ConnectionId) -> None:
        if not self.has(kind, path, connection):
            self._put((kind, path), connection)
            self._undo_log.note(partial(self._take, (kind, path), connection))

    def has(self, kind: WatchKind, path: str, connection: ConnectionId) -> bool:
        return connection in self._watchers.get((kind, path), ())

    def remove(self, kind: WatchKind, path: str, connection: ConnectionId) -> bool:
        """Whether it was there."""
        if not self.has(kind, path, connection):
            return False
        self._take((kind, path), connection)
        self._undo_log.note(partial(self._put, (kind, path), connection))
        return True

    def forget(self, connection: ConnectionId) -> None:
        """It is closed. Not undone: what is closed stays closed."""
        for key in self._watched.pop(connection, ()):
            watchers = self._watchers[key]
            del watchers[connection]
            if not watchers:
                self._drop(key)

    def told(self, event: WatchEvent) -> list[ConnectionId]:
        """The connections to tell of an event, each once. Watches that serve only once are removed."""
        if not self._watchers:
            return []
        told: dict[ConnectionId, None] = {}
        for kind in _GONE_AFTER_EVENT[event.kind]:
            watchers = self._watchers.get((kind, event.path))
            for connection in list(watchers or ()):
                told[connection] = None
                self.remove(kind, event.path, connection)
        told.update(self._watchers.get((WatchKind.PERSISTENT, event.path), {}))
        if self._recursive and event.kind is not EventKind.CHILDREN:
            for path in (ROOT, *ancestors_of(event.path), event.path):
                told.update(self._watchers.get((WatchKind.RECURSIVE, path), {}))
        return list(told)

    def _put(self, key: tuple[WatchKind, str], connection: ConnectionId) -> None:
        self._watchers.setdefault(key, {})[connection] = None
        if key[0] is WatchKind.RECURSIVE:
            self._recursive.add(key[1])
        self._watched.setdefault(connection, set()).add(key)

    def _take(self, key: tuple[WatchKind, str], connection: ConnectionId) -> None:
        watchers = self._watchers.get(key, {})
        watchers.pop(connection, None)
        if not watchers:
            self._drop(key)
        self._watched.get(connection, set()).discard(key)

    def _drop(self, key: tuple[WatchKind, str]) -> None:
        """Nobody has such a watch any more."""
        self._watchers.pop(key, None)
        if key[0] is WatchKind.RECURSIVE:
            self._recursive.discard(key[1])
