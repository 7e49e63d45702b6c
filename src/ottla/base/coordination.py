"""What a cluster agrees on, as a seam: a tree of small nodes, with ZooKeeper's semantics.

Paths, data and versions are ZooKeeper's: a node's version counts the writes to it, a write can ask for the version it
expects, and several writes can be done together or not at all. So a broker on its own, an embedded server and an
ensemble of Apache ZooKeeper hold the same tree.

`ottla.zookeeper` knows which nodes there are and what they hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Znode:
    """A node as it was read. Ids of transactions (`zxid`) order all writes to the tree."""

    data: bytes
    version: int
    created_zxid: int
    modified_zxid: int
    created_ms: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Create:
    """Makes a node; with `sequential`, ten digits are added to its name. The parent must exist."""

    path: str
    data: bytes = b""
    sequential: bool = False


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

    async def get(self, path: str) -> Znode | None:
        """None if there is no such node."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        """One answer a path, in order. For starts: a cluster has ten thousands of nodes."""
        ...

    async def children(self, path: str) -> list[str]:
        """Names, sorted; empty if there is no such node."""
        ...

    async def create(self, path: str, data: bytes = b"", *, sequential: bool = False, parents: bool = False) -> str:
        """The path that was made; with `parents`, those above it too, where they are missing."""
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

    async def close(self) -> None: ...
