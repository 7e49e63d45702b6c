"""Finds which member of a test cluster opened a TCP connection on this machine.

Brokers of Apache Kafka cannot be told a source address, so a proxy cannot see from a connection who made it. Linux
knows: `/proc/net/tcp` has the inode of the other end's socket, and `/proc/<pid>/fd` the process that holds it. Each
member carries its id in an environment variable. This needs no privileges, as all members belong to the same user.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

MEMBER_VARIABLE: Final = "OTTLA_TESTING_MEMBER"
"""Set for the process of each member: the name of its cluster, a colon, and its id."""

_PROC: Final = Path("/proc")
_TABLES: Final = (_PROC / "net" / "tcp", _PROC / "net" / "tcp6")


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
