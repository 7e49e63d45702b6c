"""Clusters to measure: three brokers of ours on the embedded ZooKeeper, and three of Apache Kafka 3.9.1 on Apache
ZooKeeper. Every server is a process with a directory of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from bench.broker.sides import BROKER_HEAP, DELETED_SOON, JVM_OPTIONS, free_port, start_process

from kafka_artifacts import classpath

KAFKA_VERSION: Final = "3.9.1"
BROKERS: Final = (1, 2, 3)
_START_S: Final = 120.0
_STOP_S: Final = 60.0
_LOOK_AGAIN_S: Final = 0.02
_ZOOKEEPER_HEAP: Final = ("-Xmx512M", "-Xms512M")
"""As Kafka's start script sets it."""
_SETTINGS: Final = {**DELETED_SOON, "auto.create.topics.enable": "false"}
"""Everything else has its default, on both sides."""


class ClusterSide(Protocol):
    """A make of brokers."""

    @property
    def name(self) -> str: ...

    def zookeeper_command(self, place: Path, port: int) -> list[str]: ...

    def broker_command(self, place: Path, settings: Mapping[str, str]) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class OttlaSide:
    name: str = "ottla"

    def zookeeper_command(self, place: Path, port: int) -> list[str]:
        return [_ottla(), "zookeeper", "--listen", f"127.0.0.1:{port}", "--data", str(place / "data")]

    def broker_command(self, place: Path, settings: Mapping[str, str]) -> list[str]:
        command = [_ottla(), "start", "--data-dir", str(place / "data")]
        for key, value in settings.items():
            command += ["--override", f"{key}={value}"]
        return command


@dataclass(frozen=True, slots=True)
class KafkaSide:
    name: str = f"Kafka {KAFKA_VERSION}"

    def zookeeper_command(self, place: Path, port: int) -> list[str]:
        settings = {
            "dataDir": str(place / "data"),
            "clientPort": str(port),
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "maxClientCnxns": "0",
        }
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return [*_java(*_ZOOKEEPER_HEAP), main, _properties(place / "zookeeper.properties", settings)]

    def broker_command(self, place: Path, settings: Mapping[str, str]) -> list[str]:
        own = {"log.dirs": str(place / "data"), **settings}
        return [*_java(*BROKER_HEAP), "kafka.Kafka", _properties(place / "server.properties", own)]


def _java(*heap: str) -> list[str]:
    return ["java", *heap, *JVM_OPTIONS, "-cp", classpath(KAFKA_VERSION)]


def _properties(file: Path, settings: Mapping[str, str]) -> str:
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
    return str(file)


def _ottla() -> str:
    return str(Path(sys.executable).with_name("ottla"))


class BenchCluster:
    """Three brokers that run, or are killed and started again."""

    def __init__(self, side: ClusterSide, place: Path) -> None:
        self.side = side
        self.name = side.name
        self._place = place
        self._zookeeper_port = free_port()
        self._ports = {broker: free_port() for broker in BROKERS}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._zookeeper: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when every server accepts connections."""
        place = self._new_place("zookeeper")
        self._zookeeper = start_process(self.side.zookeeper_command(place, self._zookeeper_port), place / "output.log")
        _wait_for_port(self._zookeeper_port, self._zookeeper, place)
        for broker in BROKERS:
            self.begin(broker)
        for broker in BROKERS:
            self.wait_until_listening(broker)

    def begin(self, broker: int) -> None:
        """Starts the process of a broker, and does not wait for it."""
        place = self._new_place(str(broker))
        settings = {
            "broker.id": str(broker),
            "zookeeper.connect": f"127.0.0.1:{self._zookeeper_port}",
            "listeners": f"PLAINTEXT://{self.address(broker)}",
            **_SETTINGS,
        }
        self._processes[broker] = start_process(self.side.broker_command(place, settings), place / "output.log")

    def wait_until_listening(self, broker: int) -> None:
        _wait_for_port(self._ports[broker], self._processes[broker], self._place / str(broker))

    def _new_place(self, name: str) -> Path:
        place = self._place / name
        place.mkdir(parents=True, exist_ok=True)
        return place

    def address(self, broker: int) -> str:
        return f"127.0.0.1:{self._ports[broker]}"

    @property
    def running(self) -> list[int]:
        return [broker for broker, process in self._processes.items() if process.poll() is None]

    @property
    def pids(self) -> list[int]:
        """Of the brokers, without ZooKeeper."""
        return [self._processes[broker].pid for broker in self.running]

    @property
    def bootstrap(self) -> str:
        return ",".join(map(self.address, BROKERS))

    def kill(self, broker: int) -> None:
        self._processes[broker].kill()
        self._processes[broker].wait()

    def stop_broker(self, broker: int) -> None:
        _stop(self._processes[broker])

    def stop(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            _stop(process)
        if self._zookeeper is not None:
            _stop(self._zookeeper)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def running_cluster(side: ClusterSide, place: Path) -> Iterator[BenchCluster]:
    cluster = BenchCluster(side, place)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def _wait_for_port(port: int, process: subprocess.Popen[bytes], place: Path) -> None:
    give_up_s = time.monotonic() + _START_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None or time.monotonic() > give_up_s:
            output = (place / "output.log").read_text(errors="replace")[-4000:]
            raise RuntimeError(f"the server in {place.name} does not listen:\n{output}")
        time.sleep(_LOOK_AGAIN_S)
