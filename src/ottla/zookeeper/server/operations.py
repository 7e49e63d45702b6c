"""What a client can ask for within its session: one function for each operation, by its code in `OPERATIONS`.

A function reads its request, acts on the core, and answers the body of the reply. What it refuses it raises.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.base.coordination import (
    BadVersionError,
    CoordinationError,
    Create,
    Delete,
    EphemeralParentError,
    EventKind,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SetData,
    WatchEvent,
)
from ottla.zookeeper.protocol.jute import JuteError, JuteReader, JuteWriter, Record
from ottla.zookeeper.protocol.messages import (
    ALL_PERMISSIONS,
    EPHEMERAL_FLAG,
    OPEN_ACL,
    SEQUENTIAL_FLAG,
    AclEntry,
    AclList,
    AclResponse,
    AddWatchRequest,
    AuthRequest,
    ChildrenResponse,
    ChildrenStatResponse,
    ClientInfo,
    CountResponse,
    CreateRequest,
    DataResponse,
    ErrorResult,
    OpCode,
    PathRequest,
    PathResponse,
    PathStatResponse,
    SetAclRequest,
    SetDataRequest,
    SetWatches2Request,
    SetWatchesRequest,
    Stat,
    StatResponse,
    VersionedPathRequest,
    WatchedPathRequest,
    WatchMode,
    WatchType,
    WatchTypeRequest,
    WhoAmIResponse,
    ZooKeeperCode,
)
from ottla.zookeeper.server.sessions import Session
from ottla.zookeeper.server.watches import WatchKind
from ottla.zookeeper.transaction import StoredNode, Transaction, check_operation, check_path

if TYPE_CHECKING:
    from ottla.zookeeper.server.core import Connection, ServerCore

_logger = logging.getLogger(__name__)

Body = Record | bytes | None
"""Of a reply: a message, several that are serialized already, or nothing."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request within a session: the reader stands behind its header."""

    core: ServerCore
    connection: Connection
    session: Session
    reader: JuteReader


ServerOperation = Callable[[Asked], Body]

OPERATIONS: Final[dict[int, ServerOperation]] = {}

_CODES: Final = {
    NoNodeError: ZooKeeperCode.NO_NODE,
    NodeExistsError: ZooKeeperCode.NODE_EXISTS,
    BadVersionError: ZooKeeperCode.BAD_VERSION,
    NotEmptyError: ZooKeeperCode.NOT_EMPTY,
    EphemeralParentError: ZooKeeperCode.NO_CHILDREN_FOR_EPHEMERALS,
    JuteError: ZooKeeperCode.MARSHALLING_ERROR,
    ValueError: ZooKeeperCode.BAD_ARGUMENTS,
}


class RefusedError(Exception):
    """For what has no exception in `base.coordination`."""

    def __init__(self, code: ZooKeeperCode) -> None:
        super().__init__(code.name)
        self.code = code


def code_of(error: CoordinationError | ValueError | RefusedError) -> ZooKeeperCode:
    return error.code if isinstance(error, RefusedError) else _CODES[type(error)]


def operation(code: OpCode) -> Callable[[ServerOperation], ServerOperation]:
    def register(function: ServerOperation) -> ServerOperation:
        OPERATIONS[code] = function
        return function

    return register


def stat_of(node: StoredNode) -> Stat:
    return Stat(
        node.created_zxid,
        node.modified_zxid,
        node.created_ms,
        node.modified_ms,
        node.version,
        2 * node.children_made - node.child_count,
        node.acl_version,
        node.owner,
        len(node.data or b""),
        node.child_count,
        node.children_zxid,
    )


def _existing(core: ServerCore, path: str) -> StoredNode:
    check_path(path)
    node = core.file.read(path)
    if node is None:
        raise NoNodeError(path, "the node does not exist")
    return node


# --- reading --------------------------------------------------------------------------------------------------------


@operation(OpCode.EXISTS)
def exists(asked: Asked) -> Body:
    """The watch also waits for a node that does not exist."""
    request = WatchedPathRequest.read(asked.reader)
    check_path(request.path)
    if request.watch:
        asked.core.watches.add(WatchKind.DATA, request.path, asked.connection.connection_id)
    return StatResponse(stat_of(_existing(asked.core, request.path)))


@operation(OpCode.GET_DATA)
def get_data(asked: Asked) -> Body:
    request = WatchedPathRequest.read(asked.reader)
    node = _existing(asked.core, request.path)
    if request.watch:
        asked.core.watches.add(WatchKind.DATA, request.path, asked.connection.connection_id)
    return DataResponse(node.data, stat_of(node))


@operation(OpCode.GET_CHILDREN)
def get_children(asked: Asked) -> Body:
    return ChildrenResponse(_children(asked.core, asked.connection, WatchedPathRequest.read(asked.reader))[0])


@operation(OpCode.GET_CHILDREN2)
def get_children2(asked: Asked) -> Body:
    children, node = _children(asked.core, asked.connection, WatchedPathRequest.read(asked.reader))
    return ChildrenStatResponse(children, stat_of(node))


def _children(
    core: ServerCore, connection: Connection, request: WatchedPathRequest
) -> tuple[tuple[str, ...], StoredNode]:
    node = _existing(core, request.path)
    if request.watch:
        core.watches.add(WatchKind.CHILDREN, request.path, connection.connection_id)
    return tuple(core.file.children(request.path)), node


@operation(OpCode.GET_ALL_CHILDREN_NUMBER)
def count_children(asked: Asked) -> Body:
    """All nodes below."""
    path = PathRequest.read(asked.reader).path
    _existing(asked.core, path)
    return CountResponse(asked.core.file.count_below(path))


@operation(OpCode.GET_EPHEMERALS)
def get_ephemerals(asked: Asked) -> Body:
    """Those of this session below a prefix."""
    prefix = PathRequest.read(asked.reader).path
    owned = asked.core.file.owned_by(asked.session.session_id)
    return ChildrenResponse(tuple(path for path in owned if path.startswith(prefix)))


@operation(OpCode.SYNC)
def sync(asked: Asked) -> Body:
    """One server is always up to date."""
    return PathResponse(PathRequest.read(asked.reader).path)


@operation(OpCode.PING)
def ping(_asked: Asked) -> Body:
    return None


# --- writing --------------------------------------------------------------------------------------------------------


@operation(OpCode.CREATE)
def create(asked: Asked) -> Body:
    return PathResponse(_create(asked)[0])


@operation(OpCode.CREATE2)
def create2(asked: Asked) -> Body:
    path, node = _create(asked)
    return PathStatResponse(path, stat_of(node))


def _create(asked: Asked) -> tuple[str, StoredNode]:
    request = CreateRequest.read(asked.reader)
    act = prepared_create(request, asked.session, asked.connection)
    return asked.core.write([request.path], act, asked.session.session_id)


def prepared_create(
    request: CreateRequest, session: Session, connection: Connection
) -> Callable[[Transaction], tuple[str, StoredNode]]:
    """Checked as far as it can be without the tree. Containers and nodes with a time to live are not served."""
    if request.flags not in range(EPHEMERAL_FLAG + SEQUENTIAL_FLAG + 1):
        raise RefusedError(ZooKeeperCode.UNIMPLEMENTED)
    sequential = bool(request.flags & SEQUENTIAL_FLAG)
    ephemeral = bool(request.flags & EPHEMERAL_FLAG)
    check_operation(Create(request.path, request.data, sequential, ephemeral))
    acl = stored_acl(request.acl, session, connection)

    def act(transaction: Transaction) -> tuple[str, StoredNode]:
        path = transaction.create(request.path, request.data, sequential=sequential, ephemeral=ephemeral, acl=acl)
        return path, after(transaction, path)

    return act


def after(transaction: Transaction, path: str) -> StoredNode:
    """The node as the last operation left it."""
    node = transaction.find(path)
    if node is None:
        raise NoNodeError(path, "the node does not exist")
    return node


@operation(OpCode.DELETE)
def delete(asked: Asked) -> Body:
    request = VersionedPathRequest.read(asked.reader)
    check_operation(Delete(request.path))
    asked.core.write(
        [request.path], lambda transaction: transaction.delete(request.path, request.version), asked.session.session_id
    )
    return None


@operation(OpCode.SET_DATA)
def set_data(asked: Asked) -> Body:
    request = SetDataRequest.read(asked.reader)
    return StatResponse(stat_of(asked.core.write([request.path], prepared_set(request), asked.session.session_id)))


def prepared_set(request: SetDataRequest) -> Callable[[Transaction], StoredNode]:
    check_operation(SetData(request.path, request.data or b""))

    def act(transaction: Transaction) -> StoredNode:
        transaction.set(request.path, request.data, request.version)
        return after(transaction, request.path)

    return act


# --- ACLs: stored, not enforced -------------------------------------------------------------------------------------


@operation(OpCode.GET_ACL)
def get_acl(asked: Asked) -> Body:
    node = _existing(asked.core, PathRequest.read(asked.reader).path)
    acl = OPEN_ACL if node.acl is None else AclList.read(JuteReader(node.acl)).entries
    return AclResponse(acl, stat_of(node))


@operation(OpCode.SET_ACL)
def set_acl(asked: Asked) -> Body:
    request = SetAclRequest.read(asked.reader)
    check_path(request.path)
    acl = stored_acl(request.acl, asked.session, asked.connection)

    def act(transaction: Transaction) -> StoredNode:
        transaction.set_acl(request.path, acl, request.version)
        return after(transaction, request.path)

    return StatResponse(stat_of(asked.core.write([request.path], act, asked.session.session_id)))


def stored_acl(entries: tuple[AclEntry, ...], session: Session, connection: Connection) -> bytes | None:
    """As it is kept; None for one that lets everybody do everything. "auth" stands for whoever the client is."""
    named: list[AclEntry] = []
    for entry in entries:
        if entry.scheme == "auth":
            named += (AclEntry(entry.permissions, *identity) for identity in session.identities)
        else:
            named.append(entry)
    if not named or any(entry.permissions & ~ALL_PERMISSIONS for entry in named):
        raise RefusedError(ZooKeeperCode.INVALID_ACL)
    if tuple(named) == OPEN_ACL:
        return None
    _logger.warning(
        "The ZooKeeper client at %s restricts access by an ACL. The embedded ZooKeeper stores ACLs but does not"
        " enforce them.",
        connection.address,
    )
    writer = JuteWriter()
    AclList(tuple(named)).write(writer)
    return writer.body()


@operation(OpCode.AUTH)
def authenticate(asked: Asked) -> Body:
    """By user and password, whichever they are: nothing is enforced."""
    request = AuthRequest.read(asked.reader)
    if request.scheme != "digest":
        raise RefusedError(ZooKeeperCode.AUTH_FAILED)
    user = (request.credentials or b"").decode(errors="replace").split(":", 1)[0]
    asked.session.identities.append((request.scheme, user))
    return None


@operation(OpCode.WHO_AM_I)
def who_am_i(asked: Asked) -> Body:
    address = ClientInfo("ip", asked.connection.address.rpartition(":")[0])
    return WhoAmIResponse((address, *(ClientInfo(*identity) for identity in asked.session.identities)))


# --- watches --------------------------------------------------------------------------------------------------------


@operation(OpCode.ADD_WATCH)
def add_watch(asked: Asked) -> Body:
    request = AddWatchRequest.read(asked.reader)
    check_path(request.path)
    match request.mode:
        case WatchMode.PERSISTENT:
            asked.core.watches.add(WatchKind.PERSISTENT, request.path, asked.connection.connection_id)
        case WatchMode.PERSISTENT_RECURSIVE:
            asked.core.watches.add(WatchKind.RECURSIVE, request.path, asked.connection.connection_id)
        case _:
            raise RefusedError(ZooKeeperCode.BAD_ARGUMENTS)
    return ErrorResult(ZooKeeperCode.OK)


_KINDS: Final = {
    WatchType.CHILDREN: (WatchKind.CHILDREN,),
    WatchType.DATA: (WatchKind.DATA,),
    WatchType.ANY: (WatchKind.DATA, WatchKind.CHILDREN, WatchKind.PERSISTENT, WatchKind.RECURSIVE),
}


def _asked_kinds(request: WatchTypeRequest) -> tuple[WatchKind, ...]:
    if request.watch_type not in _KINDS:
        raise RefusedError(ZooKeeperCode.BAD_ARGUMENTS)
    return _KINDS[WatchType(request.watch_type)]


@operation(OpCode.CHECK_WATCHES)
def check_watches(asked: Asked) -> Body:
    request = WatchTypeRequest.read(asked.reader)
    if not any(
        asked.core.watches.has(kind, request.path, asked.connection.connection_id) for kind in _asked_kinds(request)
    ):
        raise RefusedError(ZooKeeperCode.NO_WATCHER)
    return None


@operation(OpCode.REMOVE_WATCHES)
def remove_watches(asked: Asked) -> Body:
    request = WatchTypeRequest.read(asked.reader)
    watches, connection_id = asked.core.watches, asked.connection.connection_id
    removed = [kind for kind in _asked_kinds(request) if watches.remove(kind, request.path, connection_id)]
    if not removed:
        raise RefusedError(ZooKeeperCode.NO_WATCHER)
    return None


@operation(OpCode.SET_WATCHES)
def set_watches(asked: Asked) -> Body:
    _restore(asked.core, asked.connection, SetWatchesRequest.read(asked.reader))
    return None


@operation(OpCode.SET_WATCHES2)
def set_watches2(asked: Asked) -> Body:
    request = SetWatches2Request.read(asked.reader)
    _restore(asked.core, asked.connection, request)
    for path in request.persistent:
        asked.core.watches.add(WatchKind.PERSISTENT, path, asked.connection.connection_id)
    for path in request.recursive:
        asked.core.watches.add(WatchKind.RECURSIVE, path, asked.connection.connection_id)
    return None


def _restore(core: ServerCore, connection: Connection, request: SetWatchesRequest | SetWatches2Request) -> None:
    """Sets the watches of a client that was away; where something happened meanwhile, it is told at once instead."""
    nodes = core.file.read_many({*request.data, *request.exists, *request.children})
    watched: list[tuple[WatchKind, str, EventKind | None]] = []
    for path in request.data:
        node = nodes.get(path)
        is_changed = node is not None and node.modified_zxid > request.seen_zxid
        watched.append((WatchKind.DATA, path, _news(node, EventKind.CHANGED if is_changed else None)))
    watched += [(WatchKind.DATA, path, EventKind.CREATED if path in nodes else None) for path in request.exists]
    for path in request.children:
        node = nodes.get(path)
        is_changed = node is not None and node.children_zxid > request.seen_zxid
        watched.append((WatchKind.CHILDREN, path, _news(node, EventKind.CHILDREN if is_changed else None)))
    for kind, path, event in watched:
        if event is None:
            core.watches.add(kind, path, connection.connection_id)
        else:
            core.tell_one(connection, WatchEvent(event, path))


def _news(node: StoredNode | None, change: EventKind | None) -> EventKind | None:
    return EventKind.DELETED if node is None else change
