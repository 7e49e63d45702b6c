"""Real Apache Kafka processes for the capture: ZooKeeper, brokers of both versions, and Java programs beside them.

Everything listens on 127.0.0.1 and lives in a directory the caller owns.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka_artifacts import HOME, classpath

JAVA_SOURCES = Path(__file__).resolve().parents[1] / "golden" / "java"
KRAFT_CLUSTER_ID = "b3R0bGEtZ29sZGVuLWJ5dA"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
_ARCHIVED = {"kafka.Kafka", "kafka.tools.StorageTool"}
"""Programs that start faster with the archive of a broker's classes."""

_QUIET = {
    "num.network.threads": "2",
    "num.io.threads": "2",
    # Fixed timestamps are years old: nothing may be deleted, nor a new segment begun, for its age.
    "log.retention.ms": "-1",
    "log.roll.ms": str(2**62),
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}

_LOGGING = {
    "log4j.rootLogger": "WARN, out",
    # What it does with the logs it finds.
    "log4j.logger.kafka.log": "INFO",
    "log4j.logger.org.apache.kafka.storage.internals": "INFO",
    "log4j.appender.out": "org.apache.log4j.ConsoleAppender",
    "log4j.appender.out.layout": "org.apache.log4j.PatternLayout",
    "log4j.appender.out.layout.ConversionPattern": "%p %c: %m%n",
}


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker: where clients reach it, and where its logs are."""

    version: str
    port: int
    data: Path
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def output(self) -> str:
        """What it said since it was started last."""
        return (self.data.parent / "output.log").read_text(encoding="utf-8", errors="replace")


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a broker listens, and what it tells clients and other brokers: the port of a proxy, if there is one."""

    listening: int
    advertised: int

    @classmethod
    def without_proxy(cls) -> Ports:
        port = free_port()
        return cls(port, port)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def class_archive(version: str) -> Path:
    """Where the classes of a broker are archived, if they are: see `support.class_archive`."""
    return HOME / version / "broker.jsa"


ZOOKEEPER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


def java_command(
    version: str, *arguments: str, heap_mb: int = 512, logging: Path | None = None, classes: Path | None = None
) -> list[str]:
    """With Kafka's jars, and classes of one's own if told where."""
    options = [f"-Xmx{heap_mb}m", "-XX:TieredStopAtLevel=1"]
    if logging is not None:
        options.append(f"-Dlog4j.configuration=file:{logging}")
    if _ARCHIVED.intersection(arguments) and class_archive(version).exists():
        options += [f"-XX:SharedArchiveFile={class_archive(version)}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    own = [] if classes is None else [str(classes)]
    jars = classpath(version)
    if ZOOKEEPER in arguments and (other := os.environ.get("OTTLA_ZOOKEEPER_JARS")):
        jars = f"{other}/*"  # another version of ZooKeeper than the one that Kafka brings
    return ["java", *options, "-cp", os.pathsep.join([*own, jars]), *arguments]


def run_java(version: str, source: str, given: str) -> str:
    """Runs one of the Java programs beside this module with Kafka's jars; text in, text out."""
    command = java_command(version, str(JAVA_SOURCES / source))
    result = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"{source} on Kafka {version} failed:\n{result.stderr}")
    return result.stdout


@contextmanager
def zookeeper(place: Path) -> Iterator[str]:
    """A standalone Apache ZooKeeper; its address is given."""
    place.mkdir(parents=True)
    port = free_port()
    config = _properties(
        place / "zookeeper.properties",
        {
            "dataDir": str(place / "data"),
            "clientPort": str(port),
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "maxClientCnxns": "0",
            "tickTime": "2000",
        },
    )
    process = _start(java_command("3.9.1", ZOOKEEPER, str(config)), place)
    try:
        _wait_for_port(port, process, place)
        yield f"127.0.0.1:{port}"
    finally:
        stop(process)


def zookeeper_mode_broker(
    place: Path,
    zookeeper_address: str,
    broker_id: int,
    settings: Mapping[str, str],
    ports: Ports | None = None,
    *,
    heap_mb: int = 512,
    archive_into: Path | None = None,
) -> Broker:
    """Starts a 3.9.1 broker that keeps its metadata in ZooKeeper; again, if the place is that of a stopped one. With
    `archive_into`, it archives the classes that it has loaded when it ends."""
    place.mkdir(parents=True, exist_ok=True)
    ports = ports or Ports.without_proxy()
    config = _properties(
        place / "server.properties",
        {
            **_QUIET,
            "broker.id": str(broker_id),
            "zookeeper.connect": zookeeper_address,
            "listeners": f"PLAINTEXT://127.0.0.1:{ports.listening}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{ports.advertised}",
            "log.dirs": str(place / "data"),
            **settings,
        },
    )
    logging = _properties(place / "log4j.properties", _LOGGING)
    command = java_command("3.9.1", "kafka.Kafka", str(config), logging=logging, heap_mb=heap_mb)
    process = _start(_archiving(command, archive_into), place)
    _wait_for_port(ports.listening, process, place)
    return Broker("3.9.1", ports.advertised, place / "data", process)


def kraft_broker(
    place: Path,
    settings: Mapping[str, str],
    ports: Ports | None = None,
    controller_ports: Ports | None = None,
    *,
    archive_into: Path | None = None,
) -> Broker:
    """Starts a 4.3.1 broker that is its own controller. With `archive_into`, it archives the classes that it has loaded
    when it ends."""
    place.mkdir(parents=True)
    ports = ports or Ports.without_proxy()
    controller_ports = controller_ports or Ports.without_proxy()
    config = _properties(
        place / "server.properties",
        {
            **_QUIET,
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_ports.advertised}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "listeners": f"PLAINTEXT://127.0.0.1:{ports.listening},CONTROLLER://127.0.0.1:{controller_ports.listening}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{ports.advertised}",
            "log.dirs": str(place / "data"),
            **settings,
        },
    )
    format_command = java_command(
        "4.3.1", "kafka.tools.StorageTool", "format", "-t", KRAFT_CLUSTER_ID, "-c", str(config)
    )
    subprocess.run(format_command, check=True, capture_output=True)
    process = _start(_archiving(java_command("4.3.1", "kafka.Kafka", str(config)), archive_into), place)
    _wait_for_port(ports.listening, process, place)
    return Broker("4.3.1", ports.advertised, place / "data", process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Without a chance to finish anything, as a crash would."""
    process.kill()
    process.wait()


def stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _properties(file: Path, settings: Mapping[str, str]) -> Path:
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    return file


def _archiving(command: list[str], archive: Path | None) -> list[str]:
    return command if archive is None else [command[0], f"-XX:ArchiveClassesAtExit={archive}", *command[1:]]


def _start(command: list[str], place: Path) -> subprocess.Popen[bytes]:
    with (place / "output.log").open("wb") as output:
        return subprocess.Popen(command, cwd=place, stdout=output, stderr=subprocess.STDOUT)


def _wait_for_port(port: int, process: subprocess.Popen[bytes], place: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            output = (place / "output.log").read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(f"a process of Kafka ended while starting:\n{output[-4000:]}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    stop(process)
    raise RuntimeError(f"nothing listened on port {port} within {START_TIMEOUT_S:.0f} s")
