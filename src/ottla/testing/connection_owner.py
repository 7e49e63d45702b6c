"""Finds which member of a test cluster opened a TCP connection on this machine.

Brokers of Apache Kafka cannot be told a source address, so a proxy cannot see from a connection who made it. Linux
knows: it tells the inode of the other end's socket, and `/proc/<pid>/fd` the process that holds it. Each member carries
its id in an environment variable. This needs no privileges, as all members belong to the same user.

The inode comes from the socket's diagnosis (sock_diag(7)), which looks up one socket. `/proc/net/tcp` has it too, but
lists all sockets of the machine: with the thousands that a few clusters leave behind, a proxy would do nothing else.
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

MEMBER_VARIABLE: Final = "OTTLA_TESTING_MEMBER"
"""Set for the process of each member: the name of its cluster, a colon, and its id."""

_PROC: Final = Path("/proc")
_TABLES: Final = (_PROC / "net" / "tcp", _PROC / "net" / "tcp6")

_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_REQUEST: Final = 1
_ALL_STATES: Final = 0xFFFFFFFF
_ANY_COOKIE: Final = 0xFFFFFFFF
_LOOPBACK: Final = socket.inet_aton("127.0.0.1")
_QUESTION: Final = struct.Struct("=IHHII BBBBI")
"""Length, type, flags, sequence and port of the message; family, protocol, extensions, nothing, and states."""
_SOCKET_ID: Final = struct.Struct("!HH16s16s")
_SOCKET_ID_END: Final = struct.Struct("=III")
_TYPE_AT: Final = 4
_INODE_AT: Final = 16 + 4 + 48 + 16
"""After the header of the message, four bytes, the id of the socket, and four numbers."""


def member_mark(cluster: str, member: int) -> dict[str, str]:
    """The environment variable for a member's process."""
    return {MEMBER_VARIABLE: f"{cluster}:{member}"}


class ConnectionOwners:
    """Looks up members of one cluster. Used from one thread."""

    def __init__(self, cluster: str) -> None:
        self._prefix = f"{MEMBER_VARIABLE}={cluster}:".encode()
        self._members: dict[int, int] = {}
        """By process id; forgotten when the process is gone."""

    def member_of(self, client_port: int, server_port: int) -> int | None:
        """The member whose connection goes from `client_port` to `server_port`; None for any other program."""
        inode = socket_inode(client_port, server_port)
        if not inode:
            return None
        name = f"socket:[{inode}]"
        for process_id, member in list(self._members.items()):
            if self._mark_of(process_id) != member:
                del self._members[process_id]
            elif _holds(process_id, name):
                return member
        for process_id in _process_ids():
            if process_id not in self._members:
                found = self._mark_of(process_id)
                if found is not None:
                    self._members[process_id] = found
                    if _holds(process_id, name):
                        return found
        return None

    def _mark_of(self, process_id: int) -> int | None:
        with suppress(OSError):
            for line in (_PROC / str(process_id) / "environ").read_bytes().split(b"\0"):
                if line.startswith(self._prefix):
                    return int(line[len(self._prefix) :])
        return None


def socket_inode(local_port: int, remote_port: int) -> str:
    """The inode of the socket with these ports; empty if it is closed."""
    try:
        return _diagnosed_inode(local_port, remote_port)
    except OSError:  # a machine that forbids it
        return listed_inode(local_port, remote_port)


def _diagnosed_inode(local_port: int, remote_port: int) -> str:
    socket_id = _SOCKET_ID.pack(local_port, remote_port, _LOOPBACK, _LOOPBACK)
    size = _QUESTION.size + len(socket_id) + _SOCKET_ID_END.size
    question = _QUESTION.pack(size, _BY_FAMILY, _REQUEST, 0, 0, socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ALL_STATES)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.send(question + socket_id + _SOCKET_ID_END.pack(0, _ANY_COOKIE, _ANY_COOKIE))
        answer = kernel.recv(4096)
    (kind,) = struct.unpack_from("=H", answer, _TYPE_AT)
    if kind != _BY_FAMILY:  # an error: there is no such socket
        return ""
    (inode,) = struct.unpack_from("=I", answer, _INODE_AT)
    return str(inode) if inode else ""


def listed_inode(local_port: int, remote_port: int) -> str:
    """The same from the lists of all sockets."""
    ends = f":{local_port:04X}", f":{remote_port:04X}"
    for table in _TABLES:
        with suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                fields = line.split()
                if fields[1].endswith(ends[0]) and fields[2].endswith(ends[1]) and fields[9] != "0":
                    return fields[9]
    return ""


def _holds(process_id: int, socket_name: str) -> bool:
    with suppress(OSError):
        for descriptor in (_PROC / str(process_id) / "fd").iterdir():
            with suppress(OSError):
                if str(descriptor.readlink()) == socket_name:
                    return True
    return False


def _process_ids() -> list[int]:
    return [int(folder.name) for folder in _PROC.iterdir() if folder.name.isdecimal()]
