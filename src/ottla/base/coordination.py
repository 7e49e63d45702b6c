"""What a cluster agrees on, as a seam: a tree of small nodes, with ZooKeeper's semantics.

Paths, data and versions are ZooKeeper's: a node's version counts the writes to it, a write can ask for the version it
expects, and several writes can be done together or not at all. So a broker on its own, an embedded server and an
ensemble of Apache ZooKeeper hold the same tree.

`ottla.zookeeper` knows which nodes there are and what they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from typing import Final, Protocol

ANY_VERSION: Final = -1


class CoordinationError(Exception):
    """A node is not as it was expected to be; `path` tells which."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class NoNodeError(CoordinationError):
    """The node, or the parent of one to be made, does not exist."""


class NodeExistsError(CoordinationError):
    """The node that was to be made is there."""


class BadVersionError(CoordinationError):
    """Somebody else wrote the node meanwhile."""


class NotEmptyError(CoordinationError):
    """The node has children."""


class EphemeralParentError(CoordinationError):
    """The parent of the node that was to be made is ephemeral: it cannot have children."""


class ConnectionLossError(CoordinationError):
    """The connection broke before the answer came: a write may have been done or not. Read before you judge."""


class SessionExpiredError(CoordinationError):
    """The session is over, and its ephemeral nodes are gone. Nothing works until a new session begins."""


class EventKind(IntEnum):
    """What happened to a watched node, by ZooKeeper's numbers."""

    CREATED = 1
    DELETED = 2
    CHANGED = 3
    CHILDREN = 4
    """A child was made or removed."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    kind: EventKind
    path: str


Watch = Callable[[WatchEvent], None]
"""Called once, on the loop, by the first event after it was set, and before any later answer; then it is gone. Not
called at all if the session expires."""


class SessionState(Enum):
    """How the session with the tree stands."""

    CONNECTED = auto()
    """Everything works. Watches that were set before a disconnection still hold."""
    DISCONNECTED = auto()
    """The server cannot be reached at present; the session and its ephemeral nodes may still be there."""
    EXPIRED = auto()
    """The session is over: its ephemeral nodes and watches are gone. A new session follows by itself."""


@dataclass(frozen=True, slots=True)
class Znode:
    """A node as it was read. Ids of transactions (`zxid`) order all writes to the tree."""

    data: bytes
    version: int
    created_zxid: int
    modified_zxid: int
    created_ms: int
    modified_ms: int
    owner: int = 0
    """The session of an ephemeral node, else 0."""


@dataclass(frozen=True, slots=True)
class Create:
    """Makes a node; with `sequential`, ten digits are added to its name. The parent must exist. An `ephemeral` node is
    removed when the session that made it ends."""

    path: str
    data: bytes | None = None
    sequential: bool = False
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Writes a node that exists."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Removes a node without children."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Only asks that a node exists, in that version."""

    path: str
    version: int = ANY_VERSION


Operation = Create | SetData | Delete | Check


class Coordination(Protocol):
    """The tree. Used from one event loop; whatever was answered survives a crash."""

    @property
    def session_id(self) -> int:
        """The owner of ephemeral nodes made now; another one after the session expired."""
        ...

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        """Calls the listener on the loop whenever the state of the session changes."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> Znode | None:
        """None if there is no such node. The watch waits for its creation, change or deletion."""
        ...

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Znode | None]:
        """One answer a path, in order. For starts: a cluster has ten thousands of nodes."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names, sorted; empty if there is no such node. The watch waits for a child that is made or removed, or for
        the deletion of the node; if there is no such node, nothing is watched."""
        ...

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        sequential: bool = False,
        ephemeral: bool = False,
        parents: bool = False,
    ) -> str:
        """The path that was made; with `parents`, those above it too, where they are missing. Kafka tells
        no data from empty data; both read as empty here."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """The node's new version."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None: ...

    async def delete_trees(self, paths: Sequence[str]) -> None:
        """Nodes and everything below them, children first, as far as they are there; none may be below another. A
        failure may leave some of them."""
        ...

    async def transact(self, operations: Sequence[Operation]) -> None:
        """All of them in order, or none: the first that cannot be done raises."""
        ...

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes are removed at once."""
        ...
