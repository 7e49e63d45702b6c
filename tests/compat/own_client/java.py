"""Programs beside Kafka's Java client: `../java/Client*.java`, compiled once for all workers."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from compat.once import Once
from kafka_artifacts import classpath
from support.groups.consumers import Membership
from support.kafka_process import java_command

VERSION = "4.3.1"
_SOURCES = Path(__file__).parents[1] / "java"
_TIME_LIMIT_S = 120
_PACKAGE = "org.apache.kafka.clients.consumer"
_ASSIGNORS = {
    "range": f"{_PACKAGE}.RangeAssignor",
    "roundrobin": f"{_PACKAGE}.RoundRobinAssignor",
    "sticky": f"{_PACKAGE}.StickyAssignor",
    "cooperative-sticky": f"{_PACKAGE}.CooperativeStickyAssignor",
}


class Programs:
    """Where they are compiled."""

    def __init__(self, once: Once) -> None:
        self._place = once("own-client-classes", _compile)

    def run(self, name: str, arguments: Sequence[str], given: bytes) -> bytes:
        """One of them to its end; bytes in, bytes out."""
        result = subprocess.run(
            self.command(name, *arguments), input=given, capture_output=True, check=False, timeout=_TIME_LIMIT_S
        )
        if result.returncode:
            raise RuntimeError(f"{name} with Kafka {VERSION} failed:\n{result.stderr.decode(errors='replace')}")
        return result.stdout

    def command(self, name: str, *arguments: str) -> list[str]:
        return java_command(VERSION, name, *arguments, heap_mb=256, classes=self._place)

    def member(self, membership: Membership) -> list[str]:
        """What runs a Java consumer as a member of a group that tells what `clients.groups.member` tells."""
        flavour = membership.flavour
        settings: dict[str, str | int] = {
            "bootstrap.servers": membership.bootstrap,
            "group.id": membership.group,
            "group.protocol": flavour.protocol,
            "auto.offset.reset": membership.reset,
            "metadata.max.age.ms": membership.metadata_age_ms,
        }
        if flavour.protocol == "consumer":
            settings["group.remote.assignor"] = flavour.strategy
        else:
            settings["partition.assignment.strategy"] = _ASSIGNORS[flavour.strategy]
            settings["session.timeout.ms"] = membership.session_ms
            settings["heartbeat.interval.ms"] = membership.heartbeat_ms
        words = [f"{key}={value}" for key, value in settings.items()]
        return self.command("ClientMember", membership.topics[0], *words)


def _compile(place: Path) -> Path:
    sources = map(str, sorted(_SOURCES.glob("Client[A-Z]*.java")))
    command = ["javac", "-nowarn", "-proc:none", "-Xlint:none", "-cp", classpath(VERSION), "-d", str(place), *sources]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIME_LIMIT_S)
    if result.returncode:
        raise RuntimeError(f"javac with Kafka {VERSION} failed:\n{result.stderr}")
    return place
