"""Brokers to measure: ours, and Apache Kafka's with its own defaults. Each is a process with a directory of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from kafka_artifacts import classpath

KAFKA_VERSION: Final = "4.3.1"
_CLUSTER_ID: Final = "b3R0bGEtYmVuY2gtYmVuYw"
_STOP_TIMEOUT_S: Final = 60.0
BROKER_HEAP: Final = ("-Xmx1G", "-Xms1G")
"""What Kafka's start script gives a broker; the rest is what it gives every JVM."""
JVM_OPTIONS: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)


@dataclass(frozen=True, slots=True)
class Running:
    """A broker process; whether it answers yet is for the caller to find out."""

    name: str
    address: str
    process: subprocess.Popen[bytes]
    output: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def alive(self) -> None:
        """Raises, with its last words, when it has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.name} has ended:\n{self.output.read_text(errors='replace')[-4000:]}")

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Side(Protocol):
    """A kind of broker."""

    @property
    def name(self) -> str: ...

    def prepare(self, place: Path) -> None:
        """What an administrator does once before the first start."""

    def start(self, place: Path) -> Running:
        """Again, where the place is that of one that was stopped."""


DELETED_SOON: Final = {"log.segment.delete.delay.ms": "500"}
"""The only default that is not kept, on either side: for a minute, gigabytes of former turns would fill the page cache,
and whoever writes next would have to make room."""


@dataclass(frozen=True, slots=True)
class Ottla:
    """Ours, by the command that people start it with, with its own defaults but for what is set."""

    name: str = "ottla"
    settings: Mapping[str, str] = field(default_factory=lambda: dict(DELETED_SOON))

    def prepare(self, place: Path) -> None:
        place.mkdir(parents=True)
        (place / "port").write_text(str(free_port()))

    def start(self, place: Path) -> Running:
        address, output = f"127.0.0.1:{(place / 'port').read_text()}", place / "output.log"
        command = [str(Path(sys.executable).with_name("ottla")), "start", "--data-dir", str(place / "data")]
        for key, value in {"listeners": f"PLAINTEXT://{address}", **self.settings}.items():
            command += ["--override", f"{key}={value}"]
        process = start_process(command, output)
        return Running(self.name, address, process, output)


@dataclass(frozen=True, slots=True)
class Kafka:
    """Apache Kafka that is its own controller. Beside `settings`, nothing is set that it does not need to run alone on
    loopback."""

    name: str = f"Kafka {KAFKA_VERSION}"
    settings: Mapping[str, str] = field(default_factory=lambda: dict(DELETED_SOON))
    version: str = KAFKA_VERSION

    def prepare(self, place: Path) -> None:
        place.mkdir(parents=True)
        broker, controller = free_port(), free_port()
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{broker}",
            "log.dirs": str(place / "data"),
            **self.settings,
        }
        config = place / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        (place / "port").write_text(str(broker))
        format_command = ["java", "-cp", classpath(self.version), "kafka.tools.StorageTool", "format"]
        subprocess.run([*format_command, "-t", _CLUSTER_ID, "-c", str(config)], check=True, capture_output=True)

    def start(self, place: Path) -> Running:
        command = ["java", *BROKER_HEAP, *JVM_OPTIONS, "-cp", classpath(self.version), "kafka.Kafka"]
        output = place / "output.log"
        process = start_process([*command, str(place / "server.properties")], output)
        return Running(self.name, f"127.0.0.1:{(place / 'port').read_text()}", process, output)


def start_process(command: list[str], output: Path) -> subprocess.Popen[bytes]:
    with output.open("ab") as file:
        return subprocess.Popen(command, cwd=output.parent, stdout=file, stderr=subprocess.STDOUT)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
