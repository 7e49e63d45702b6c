"""ZooKeeper's rules for writes, without a place to keep anything: what is found comes in, what has changed goes out.

Several operations on one `Transaction` see each other's effects and share one id. If one raises, nothing of it may be
kept. The numbers are those of ZooKeeper's own stat, so that a server can show them one day.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.base.coordination import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    EphemeralParentError,
    EventKind,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SetData,
    WatchEvent,
    Znode,
)

ROOT: Final = "/"

_PATH = re.compile(
    r"(?:/(?!\.{1,2}(?:/|\Z))[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+)+"  # what ZooKeeper allows in a path
)


class StoredNode(NamedTuple):
    """A node as it is kept. `children_made` counts the children that ever were: it numbers sequential names, and with
    `child_count` it gives the child version that ZooKeeper shows (twice the first, less the second)."""

    version: int
    created_zxid: int
    modified_zxid: int
    children_zxid: int
    created_ms: int
    modified_ms: int
    children_made: int
    child_count: int
    owner: int
    acl_version: int
    acl: bytes | None
    """As ZooKeeper's protocol has it; None lets everybody do everything."""
    data: bytes | None

    def as_node(self) -> Znode:
        return Znode(
            self.data or b"",
            self.version,
            self.created_zxid,
            self.modified_zxid,
            self.created_ms,
            self.modified_ms,
            self.owner,
        )


def check_path(path: str) -> None:
    """`ValueError` for what ZooKeeper would not take as the path of a node."""
    if path != ROOT and not _PATH.fullmatch(path):
        reason = "a path begins with a slash, and has no empty, '.' or '..' names nor control characters in it"
        raise ValueError(f"{path!r} is no path of a node: {reason}")


def check_operation(operation: Operation) -> None:
    """The same for what is to be written; the digits of a sequential node may be its whole name."""
    path = f"{operation.path}0" if isinstance(operation, Create) and operation.sequential else operation.path
    check_path(path)
    if path == ROOT and isinstance(operation, Create | Delete):
        raise ValueError("the root is always there: it can be neither made nor deleted")


def parent_of(path: str) -> str:
    return path[: path.rindex("/")] or ROOT


def ancestors_of(path: str) -> list[str]:
    """From the first below the root down to the parent."""
    return [path[:end] for end, character in enumerate(path) if character == "/" and end > 0]


class Transaction:
    """`found` answers for every path that may be asked, with None for a node that is not there. Paths were checked.
    `session_id` owns the ephemeral nodes that are made."""

    def __init__(self, found: Mapping[str, StoredNode | None], zxid: int, now_ms: int, session_id: int = 0) -> None:
        self._found = found
        self._zxid = zxid
        self._now_ms = now_ms
        self._session_id = session_id
        self.events: list[WatchEvent] = []
        """What watches are told, in order."""
        self.changed: dict[str, StoredNode | None] = {}
        """What to keep, by path; None is a node to remove."""

    def do(self, operation: Operation) -> None:
        match operation:
            case Create():
                self.create(
                    operation.path, operation.data, sequential=operation.sequential, ephemeral=operation.ephemeral
                )
            case SetData():
                self.set(operation.path, operation.data, operation.version)
            case Delete():
                self.delete(operation.path, operation.version)
            case Check():
                self.expect(operation.path, operation.version)

    def create(
        self,
        path: str,
        data: bytes | None,
        *,
        sequential: bool = False,
        ephemeral: bool = False,
        acl: bytes | None = None,
    ) -> str:
        """The path that was made."""
        parent_path = parent_of(path)
        parent = self.find(parent_path)
        if parent is None:
            raise NoNodeError(path, f"its parent {parent_path} does not exist")
        if sequential:
            path = f"{path}{parent.children_made:010d}"
        if self.find(path) is not None:
            raise NodeExistsError(path, "the node exists")
        if parent.owner:
            raise EphemeralParentError(path, f"its parent {parent_path} is ephemeral and cannot have children")
        zxid, now_ms = self._zxid, self._now_ms
        owner = self._session_id if ephemeral else 0
        self.changed[path] = StoredNode(0, zxid, zxid, zxid, now_ms, now_ms, 0, 0, owner, 0, acl, data)
        made, count = parent.children_made + 1, parent.child_count + 1
        # Without `_replace`, which takes longer than all the rest: a request may create thousands of nodes.
        self.changed[parent_path] = StoredNode._make((*parent[:3], zxid, *parent[4:6], made, count, *parent[8:]))
        self.events += (WatchEvent(EventKind.CREATED, path), WatchEvent(EventKind.CHILDREN, parent_path))
        return path

    def create_parents(self, path: str) -> None:
        """Makes those that are missing above a path, empty."""
        for ancestor in ancestors_of(path):
            if self.find(ancestor) is None:
                self.create(ancestor, None)

    def set(self, path: str, data: bytes | None, version: int) -> int:
        """The node's new version."""
        node = self.expect(path, version)
        changed = node._replace(version=node.version + 1, modified_zxid=self._zxid, modified_ms=self._now_ms, data=data)
        self.changed[path] = changed
        self.events.append(WatchEvent(EventKind.CHANGED, path))
        return changed.version

    def set_acl(self, path: str, acl: bytes | None, acl_version: int) -> None:
        """No watch is told, as in ZooKeeper."""
        node = self.expect(path, ANY_VERSION)
        if acl_version not in (ANY_VERSION, node.acl_version):
            reason = f"the ACL is in version {node.acl_version}, version {acl_version} was expected"
            raise BadVersionError(path, reason)
        self.changed[path] = node._replace(acl=acl, acl_version=node.acl_version + 1)

    def delete(self, path: str, version: int) -> None:
        node = self.expect(path, version)
        if node.child_count:
            raise NotEmptyError(path, f"the node has {node.child_count} children")
        self.detach(path)

    def detach(self, path: str) -> None:
        """Takes a node that exists from its parent, whatever is below it."""
        parent_path = parent_of(path)
        parent = self.find(parent_path)
        if parent is None:
            raise NoNodeError(path, f"its parent {parent_path} does not exist")
        self.changed[path] = None
        self.changed[parent_path] = parent._replace(children_zxid=self._zxid, child_count=parent.child_count - 1)
        self.events += (WatchEvent(EventKind.DELETED, path), WatchEvent(EventKind.CHILDREN, parent_path))

    def find(self, path: str) -> StoredNode | None:
        """As the operations before it left it."""
        return self.changed[path] if path in self.changed else self._found[path]

    def expect(self, path: str, version: int) -> StoredNode:
        """Raises unless the node exists in that version."""
        node = self.find(path)
        if node is None:
            raise NoNodeError(path, "the node does not exist")
        if version not in (ANY_VERSION, node.version):
            raise BadVersionError(path, f"the node is in version {node.version}, version {version} was expected")
        return node
