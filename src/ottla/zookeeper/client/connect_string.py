"""`zookeeper.connect`: the servers of an ensemble, and the path below which a cluster keeps its nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from ottla.zookeeper.transaction import ROOT, check_path

DEFAULT_PORT: Final = 2181


@dataclass(frozen=True, slots=True)
class ConnectString:
    """`HOST:PORT,HOST:PORT/CHROOT`; the port and the chroot may be left out."""

    servers: tuple[tuple[str, int], ...]
    chroot: str = ""
    """Empty, or a path that stands before every path of this cluster."""

    @classmethod
    def parse(cls, text: str) -> Self:
        hosts, slash, below = text.strip().partition("/")
        chroot = (slash + below).rstrip("/")
        if chroot:
            check_path(chroot)
        servers = tuple(_server(each.strip(), text) for each in hosts.split(",") if each.strip())
        if not servers:
            raise ValueError(f"{text!r} names no ZooKeeper server; write HOST:PORT,HOST:PORT/CHROOT")
        return cls(servers, chroot)

    def absolute(self, path: str) -> str:
        """As the servers know it."""
        return f"{self.chroot}{path}" if path != ROOT else self.chroot or ROOT

    def relative(self, path: str) -> str:
        """As this cluster knows it."""
        return path.removeprefix(self.chroot) or ROOT

    def __str__(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.servers) + self.chroot


def _server(text: str, whole: str) -> tuple[str, int]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    else:
        host, _, port = text.partition(":")
    if not host or (port and not (port.isdecimal() and int(port) < 2**16)):
        raise ValueError(f"{whole!r}: {text!r} is not the address of a ZooKeeper server; write HOST:PORT")
    return host, int(port or DEFAULT_PORT)
