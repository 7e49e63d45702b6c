"""ZooKeeper's commands of four letters: plain text over a connection, answered and closed.

`ruok`, `isro`, `srvr`, `envi`, `stat`, `cons` and `mntr`, with the fields that monitoring reads.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Final

from ottla.zookeeper.server.core import Connection, ServerCore

_Answer = Callable[[ServerCore], str]


_VERSION: Final = "3.9.0-ottla"
"""Clients read a version of Apache ZooKeeper here: the one whose protocol is spoken."""


def _ruok(_: ServerCore) -> str:
    return "imok"


def _isro(_: ServerCore) -> str:
    return "rw"


def _srvr(core: ServerCore) -> str:
    nodes, _, _ = core.file.count_nodes()
    lines = [
        f"Zookeeper version: {_VERSION}",
        f"Received: {core.received}",
        f"Sent: {core.sent}",
        f"Connections: {len(core.connections)}",
        f"Zxid: {core.file.last_zxid:#x}",
        "Mode: standalone",
        f"Node count: {nodes}",
    ]
    return "\n".join(lines) + "\n"


def _envi(_: ServerCore) -> str:
    values = {"zookeeper.version": _VERSION, "host.name": platform.node(), "os.name": platform.system()}
    return "Environment:\n" + "".join(f"{name}={value}\n" for name, value in values.items())


def _stat(core: ServerCore) -> str:
    version, rest = _srvr(core).split("\n", 1)
    clients = "".join(f" {_described(connection)}\n" for connection in core.connections.values())
    return f"{version}\nClients:\n{clients}\n{rest}"


def _cons(core: ServerCore) -> str:
    return "".join(f" {_described(connection)}\n" for connection in core.connections.values()) + "\n"


def _described(connection: Connection) -> str:
    session = connection.session
    suffix = "" if session is None else f",sid={session.session_id:#x},to={session.timeout_ms}"
    return f"/{connection.address}[1](recved={connection.received},sent={connection.sent}{suffix})"


def _mntr(core: ServerCore) -> str:
    nodes, ephemeral, size = core.file.count_nodes()
    values = {
        "version": _VERSION,
        "server_state": "standalone",
        "packets_received": core.received,
        "packets_sent": core.sent,
        "num_alive_connections": len(core.connections),
        "znode_count": nodes,
        "watch_count": len(core.watches),
        "ephemerals_count": ephemeral,
        "approximate_data_size": size,
        "global_sessions": len(core.sessions),
    }
    return "".join(f"zk_{name}\t{value}\n" for name, value in values.items())


FOUR_LETTERS: Final[dict[bytes, _Answer]] = {
    b"ruok": _ruok,
    b"isro": _isro,
    b"srvr": _srvr,
    b"envi": _envi,
    b"stat": _stat,
    b"cons": _cons,
    b"mntr": _mntr,
}
