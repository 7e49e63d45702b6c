"""The messages of ZooKeeper's client protocol, as version 3.9 of Apache ZooKeeper has them.

A connection begins with `ConnectRequest` and `ConnectResponse`. Then every request has a `RequestHeader`, every answer
a `ReplyHeader`, and watch events come between the answers: a `ReplyHeader` with `NOTIFICATION_XID`, then a
`WatcherEvent`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from ottla.zookeeper.protocol.jute import Record, boolean, buffer, int32, int64, record, records, string, strings

NOTIFICATION_XID: Final = -1
PING_XID: Final = -2
AUTH_XID: Final = -4
SET_WATCHES_XID: Final = -8

MAX_FRAME_BYTES: Final = 0xFFFFF
"""ZooKeeper's own default (`jute.maxbuffer`)."""


class OpCode(IntEnum):
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CLOSE_SESSION = -11
    ERROR = -1


class ZooKeeperCode(IntEnum):
    """What a reply says went wrong."""

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    CONNECTION_LOSS = -4
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    NO_WATCHER = -121


SYNC_CONNECTED: Final = 3
"""The only state that a server puts into a watch event."""

EPHEMERAL_FLAG: Final = 1
SEQUENTIAL_FLAG: Final = 2


class WatchMode(IntEnum):
    """Of `AddWatchRequest`."""

    PERSISTENT = 0
    PERSISTENT_RECURSIVE = 1


class WatchType(IntEnum):
    """Of `WatchTypeRequest`: which watches to look for, or to remove."""

    CHILDREN = 1
    DATA = 2
    ANY = 3


# --- sessions -------------------------------------------------------------------------------------------------------


class ConnectRequest(Record):
    """`session_id` is 0 for a new session. A byte that says "read-only" may follow."""

    protocol_version: int = int32()
    last_zxid_seen: int = int64()
    timeout_ms: int = int32()
    session_id: int = int64()
    password: bytes | None = buffer()


class ConnectResponse(Record):
    """`timeout_ms` 0: there is no such session (any more)."""

    protocol_version: int = int32()
    timeout_ms: int = int32()
    session_id: int = int64()
    password: bytes | None = buffer()
    is_read_only: bool = boolean()


class RequestHeader(Record):
    xid: int = int32()
    operation: int = int32()


class ReplyHeader(Record):
    xid: int = int32()
    zxid: int = int64()
    error: int = int32()


class AuthRequest(Record):
    kind: int = int32()
    scheme: str = string()
    credentials: bytes | None = buffer()


class ClientInfo(Record):
    scheme: str = string()
    user: str = string()


class WhoAmIResponse(Record):
    clients: tuple[ClientInfo, ...] = records(ClientInfo)


# --- nodes ----------------------------------------------------------------------------------------------------------


class Stat(Record):
    """What ZooKeeper tells about a node. `owner` is the session of an ephemeral one, else 0."""

    created_zxid: int = int64()
    modified_zxid: int = int64()
    created_ms: int = int64()
    modified_ms: int = int64()
    version: int = int32()
    child_version: int = int32()
    acl_version: int = int32()
    owner: int = int64()
    data_size: int = int32()
    child_count: int = int32()
    children_zxid: int = int64()


class AclEntry(Record):
    permissions: int = int32()
    scheme: str = string()
    user: str = string()


class AclList(Record):
    entries: tuple[AclEntry, ...] = records(AclEntry)


ALL_PERMISSIONS: Final = 31
OPEN_ACL: Final = (AclEntry(ALL_PERMISSIONS, "world", "anyone"),)


class CreateRequest(Record):
    path: str = string()
    data: bytes | None = buffer()
    acl: tuple[AclEntry, ...] = records(AclEntry)
    flags: int = int32()


class PathRequest(Record):
    """Sync, GetACL, GetEphemerals (a prefix), GetAllChildrenNumber."""

    path: str = string()


class WatchedPathRequest(Record):
    """Exists, GetData, GetChildren, GetChildren2."""

    path: str = string()
    watch: bool = boolean()


class VersionedPathRequest(Record):
    """Delete, Check."""

    path: str = string()
    version: int = int32()


class SetDataRequest(Record):
    path: str = string()
    data: bytes | None = buffer()
    version: int = int32()


class SetAclRequest(Record):
    path: str = string()
    acl: tuple[AclEntry, ...] = records(AclEntry)
    version: int = int32()


class PathResponse(Record):
    """Create, Sync."""

    path: str = string()


class PathStatResponse(Record):
    path: str = string()
    stat: Stat = record(Stat)


class StatResponse(Record):
    """Exists, SetData, SetACL."""

    stat: Stat = record(Stat)


class DataResponse(Record):
    data: bytes | None = buffer()
    stat: Stat = record(Stat)


class ChildrenResponse(Record):
    children: tuple[str, ...] = strings()


class ChildrenStatResponse(Record):
    children: tuple[str, ...] = strings()
    stat: Stat = record(Stat)


class AclResponse(Record):
    acl: tuple[AclEntry, ...] = records(AclEntry)
    stat: Stat = record(Stat)


class CountResponse(Record):
    count: int = int32()


class MultiHeader(Record):
    """Stands before each operation of a multi and before each of its results; the last has `is_done`."""

    operation: int = int32()
    is_done: bool = boolean()
    error: int = int32()


MULTI_END: Final = MultiHeader(OpCode.ERROR, True, -1)


class ErrorResult(Record):
    error: int = int32()


# --- watches --------------------------------------------------------------------------------------------------------


class WatcherEvent(Record):
    event: int = int32()
    state: int = int32()
    path: str = string()


class AddWatchRequest(Record):
    path: str = string()
    mode: int = int32()


class WatchTypeRequest(Record):
    """CheckWatches, RemoveWatches."""

    path: str = string()
    watch_type: int = int32()


class SetWatchesRequest(Record):
    """What a client had watched before its connection broke, and the last zxid that it has seen."""

    seen_zxid: int = int64()
    data: tuple[str, ...] = strings()
    exists: tuple[str, ...] = strings()
    children: tuple[str, ...] = strings()


class SetWatches2Request(Record):
    seen_zxid: int = int64()
    data: tuple[str, ...] = strings()
    exists: tuple[str, ...] = strings()
    children: tuple[str, ...] = strings()
    persistent: tuple[str, ...] = strings()
    recursive: tuple[str, ...] = strings()
