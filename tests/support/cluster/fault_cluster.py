"""A cluster for fault tests: audited, cut at will, quick to notice a broker's death, one broker on a small disk, and
brokers with several log directories."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from ottla.testing.broker import Setting
from ottla.testing.zookeeper_server import ZooKeeperServer
from ottla.zookeeper import paths
from ottla.zookeeper.server.run import TREE_NAME
from ottla.zookeeper.znodes import PartitionLeader, ReplicaAssignment, TopicAssignment
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
    `client_network_seed`, clients reach brokers through `client_network`. Each broker has so many `log_directories`."""

    def __init__(
        self,
        directory: Path,
        kinds: Sequence[str] = (OTTLA, OTTLA, OTTLA),
        *,
        settings: Mapping[str, Setting] | None = None,
        zookeeper: str = "embedded",
        small_disk_bytes: int = 0,
        client_network_seed: int | None = None,
        log_directories: int = 1,
    ) -> None:
        own = {**_SETTINGS, **(settings or {})}
        super().__init__(kinds, zookeeper=zookeeper, settings=own, network=True, directory=directory)
        self.log_directory_count = log_directories
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
        if self.log_directory_count > 1:
            settings["log.dirs"] = ",".join(map(str, self.log_directories(broker)))
            settings["replica.high.watermark.checkpoint.interval.ms"] = 500  # notices soon that a directory is gone
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

    # --- replicas -----------------------------------------------------------------------------------------------------

    def log_directories(self, broker: int) -> list[Path]:
        data = self.directory / f"broker-{broker}" / "data"
        return [data / ("logs" if number == 1 else f"logs-{number}") for number in self._numbers()]

    def _numbers(self) -> range:
        return range(1, self.log_directory_count + 1)

    def log_directory_of(self, broker: int, place: Place) -> Path | None:
        """Where the broker has its replica; None if it has none."""
        found = [each for each in self.log_directories(broker) if (each / str(place)).exists()]
        if len(found) > 1:
            raise RuntimeError(f"broker {broker} has {place} in {len(found)} log directories")
        return found[0] if found else None

    def assignment(self, place: Place) -> ReplicaAssignment:
        """By ZooKeeper."""
        path = paths.topic(place.topic)
        node = self.view.ask(lambda tree: tree.get(path))
        if node is None:
            raise LookupError(f"topic {place.topic} does not exist")
        return TopicAssignment.decode(path, node.data).partitions[place.partition]

    def wait_until_in_sync(self, place: Place, *, timeout_s: float) -> PartitionLeader:
        """Waits until no reassignment is under way, and all replicas are in sync."""

        def state() -> PartitionLeader | None:
            assigned, found = self.assignment(place), self.view.partition(*place)
            if assigned.adding or assigned.removing or found is None:
                return None
            return found if found.leader in found.isr and set(found.isr) == set(assigned.replicas) else None

        what = f"the replicas of {place} are not in sync"
        return self._wait(state, what, timeout_s, lambda: f"{self.view.partition(*place)}, {self.assignment(place)}")

    def wait_until_not_in_sync(self, place: Place, broker: int, *, timeout_s: float) -> None:
        """Waits until others lead, and the broker is not in sync."""

        def state() -> bool | None:
            found = self.view.partition(*place)
            return True if found is not None and found.leader >= 0 and broker not in found.isr else None

        what = f"broker {broker} is still in the ISR of {place}"
        self._wait(state, what, timeout_s, lambda: self._shown(*place))

    def replicas(self, place: Place, brokers: Collection[int] | None = None) -> list[Replica]:
        """Of these brokers, or all, which must be stopped."""
        return [
            read_replica(broker, self.log_directory_of(broker, place) or self.log_directories(broker)[0], place)
            for broker in (self.brokers if brokers is None else brokers)
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
