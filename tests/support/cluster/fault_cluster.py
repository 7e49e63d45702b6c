"""A cluster for fault tests: audited, cut at will, quick to notice a broker's death, one broker on a small disk."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from ottla.testing.broker import Setting
from ottla.testing.zookeeper_server import ZooKeeperServer
from ottla.zookeeper.server.run import TREE_NAME
from support.cluster import tree_audit
from support.cluster.checker import Place, Replica
from support.cluster.client_network import ClientNetwork
from support.cluster.kafka_members import OTTLA, MixedCluster
from support.cluster.replica_files import read_replica

SESSION_S: Final = 5.0
OFFSETS_PARTITIONS: Final = 4
_SETTINGS: Final[Mapping[str, Setting]] = {
    "zookeeper.session.timeout.ms": int(SESSION_S * 1000),
    "replica.lag.time.max.ms": 3000,
    "controller.socket.timeout.ms": 10_000,
    "auto.create.topics.enable": False,
    "offsets.topic.num.partitions": OFFSETS_PARTITIONS,
    "leader.imbalance.check.interval.seconds": 15,
    "num.replica.fetchers": 2,
    "log.segment.bytes": 300_000,
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "transaction.state.log.num.partitions": 2,
}


class AuditedZooKeeper(ZooKeeperServer):
    """The embedded ZooKeeper with a journal of the writes that matter."""

    @property
    def tree(self) -> Path:
        return self.directory / "data" / TREE_NAME

    def start(self) -> None:
        if not self.tree.exists():
            tree_audit.install(self.tree)
        super().start()


class FaultCluster(MixedCluster):
    """`small_disk_bytes` puts the last broker on a file system of that size, if this process may mount one. With
    `client_network_seed`, clients reach brokers through `client_network`."""

    def __init__(
        self,
        directory: Path,
        kinds: Sequence[str] = (OTTLA, OTTLA, OTTLA),
        *,
        settings: Mapping[str, Setting] | None = None,
        zookeeper: str = "embedded",
        small_disk_bytes: int = 0,
        client_network_seed: int | None = None,
    ) -> None:
        own = {**_SETTINGS, **(settings or {})}
        super().__init__(kinds, zookeeper=zookeeper, settings=own, network=True, directory=directory)
        self.client_network: ClientNetwork | None = None
        if client_network_seed is not None:
            self.client_network = ClientNetwork(self._ports, client_network_seed)
        self.small_disk: Path | None = None
        """The disk of the last broker, where it has one of its own."""
        if small_disk_bytes:
            self.small_disk = _mounted(directory / f"broker-{len(kinds)}", small_disk_bytes)

    @property
    def small_disk_broker(self) -> int:
        return self.size

    def broker_settings(self, broker: int) -> dict[str, Setting]:
        settings = {**super().broker_settings(broker), "broker.rack": f"rack-{broker}"}
        if self.client_network is not None:
            for_clients = f"PLAINTEXT://127.0.0.1:{self.client_network.ports[broker]}"
            for_brokers = f"INTERNAL://127.0.0.1:{self._proxied_ports[broker]}"
            settings["advertised.listeners"] = f"{for_clients},{for_brokers}"
        return settings

    @property
    def bootstrap(self) -> str:
        if self.client_network is None:
            return super().bootstrap
        return ",".join(f"127.0.0.1:{port}" for port in self.client_network.ports.values())

    def _new_zookeeper(self, kind: str, directory: Path) -> ZooKeeperServer:
        return AuditedZooKeeper(directory) if kind == "embedded" else super()._new_zookeeper(kind, directory)

    def close(self, *, stop: bool = True) -> None:
        try:
            super().close(stop=stop)
        finally:
            if self.client_network is not None:
                self.client_network.close()
            if self.small_disk is not None:
                subprocess.run(["umount", "--lazy", str(self.small_disk)], check=False)
                self.small_disk = None

    def journal(self) -> list[tree_audit.Write]:
        """Of the embedded ZooKeeper, which must be stopped; empty for another one."""
        server = self.zookeeper
        return tree_audit.read(server.tree) if isinstance(server, AuditedZooKeeper) else []

    def replicas(self, place: Place) -> list[Replica]:
        """Of all brokers, which must be stopped."""
        return [
            read_replica(broker, member.directory / "data" / "logs", place) for broker, member in self.brokers.items()
        ]


def _mounted(place: Path, size: int) -> Path | None:
    place.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "ottla-test", str(place)]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return place if done.returncode == 0 else None


def fill_up(disk: Path) -> Path:
    """A file that leaves no room for another byte."""
    filling = disk / "filling"
    room = os.statvfs(disk)
    descriptor = os.open(filling, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        with suppress(OSError):
            os.posix_fallocate(descriptor, 0, room.f_bavail * room.f_frsize - 65536)
        os.lseek(descriptor, 0, os.SEEK_END)
        for size in (65536, 4096, 1):
            with suppress(OSError):
                while True:
                    os.write(descriptor, bytes(size))
    finally:
        os.close(descriptor)
    return filling
