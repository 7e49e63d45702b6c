"""An ensemble of Apache ZooKeeper 3.8 on 127.0.0.1: three servers that elect a leader and survive the loss of one."""

from __future__ import annotations

import re
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from ottla.testing.server_process import unused_port
from support.cluster.kafka_members import ApacheZooKeeper

_IDS: Final = (1, 2, 3)
_ASK_TIMEOUT_S: Final = 5.0


class _EnsembleServer(ApacheZooKeeper):
    """`peers` are the ports for followers and for elections, by id."""

    def __init__(self, directory: Path, server: int, peers: dict[int, tuple[int, int]]) -> None:
        super().__init__(directory)
        self._server = server
        self._peers = peers

    def _more(self) -> dict[str, str]:
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(str(self._server), encoding="utf-8")
        servers = {f"server.{each}": f"127.0.0.1:{ports[0]}:{ports[1]}" for each, ports in self._peers.items()}
        return {"initLimit": "20", "syncLimit": "10", **servers}

    @property
    def mode(self) -> str:
        """`leader` or `follower`; empty while it is neither."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=_ASK_TIMEOUT_S) as connection:
                connection.sendall(b"srvr")
                answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        except OSError:
            return ""
        found = re.search(r"^Mode: (\w+)$", answer, re.MULTILINE)
        return found[1] if found else ""


class ApacheEnsemble:
    """Used in a `with` block; `servers` are indexed by id."""

    def __init__(self, directory: Path) -> None:
        peers = {server: (unused_port(), unused_port()) for server in _IDS}
        self.servers = {server: _EnsembleServer(directory / str(server), server, peers) for server in _IDS}

    def __enter__(self) -> ApacheEnsemble:
        try:
            # None of them serves before most of them run.
            with ThreadPoolExecutor(len(_IDS)) as pool:
                list(pool.map(lambda server: server.start(), self.servers.values()))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers.values():
            server.kill()

    @property
    def connect(self) -> str:
        return ",".join(server.address for server in self.servers.values())

    @property
    def leader(self) -> int | None:
        """The id of the server that leads; None while there is none."""
        return next((each for each, server in self.servers.items() if server.mode == "leader"), None)
