"""The two brokers: ours and Apache Kafka's, with the same settings, empty at first."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from kazoo.client import KazooClient

from differential.connection import Connection, NoAnswerError
from differential.requests import api_named, request_of
from ottla.base.error_codes import ErrorCode
from ottla.testing.broker import Broker
from ottla.wire.registry import apis
from support import kafka_process
from support.kafka_process import Ports

VERSIONS: Final = ("4.3.1", "3.9.1")
SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "3600000",
    "log.cleaner.enable": "false",
    "log.segment.delete.delay.ms": "2000",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "5000",
    "max.incremental.fetch.session.cache.slots": "20000",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "message.max.bytes": "1048588",
    "delete.topic.enable": "true",
    # Defaults of Kafka 4 that 3.9.1 has not.
    "log.message.timestamp.after.max.ms": "3600000",
    "log.roll.ms": str(2**62),
}
"""Nothing happens on its own: no retention, no compaction, no rolling by age."""
OF_KAFKA_4: Final = {
    # A group's members are assigned their partitions in the request that asks for it, as Ottla does it.
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.assignor.offload.enable": "false",
}
PATIENCE_S: Final = 60.0
_STOP_S: Final = 60.0
_SESSION_MS: Final = "4000"


class Peers:
    """Both run. Restarting keeps ports and data."""

    def __init__(self, ours: Broker, kafka: kafka_process.Broker, zookeeper: str | None) -> None:
        self._ours = ours
        self._kafka = kafka
        self._process = kafka.process
        self._zookeeper = zookeeper

    @property
    def ports(self) -> tuple[int, int]:
        return self._ours.port, self._kafka.port

    @property
    def version(self) -> str:
        return self._kafka.version

    @property
    def our_output(self) -> str:
        return self._ours.output

    def restart(self) -> None:
        with ThreadPoolExecutor(1) as beside:
            ours = beside.submit(self._ours.restart)
            self._restart_kafka()
            ours.result()
        for port in self.ports:
            await_service(port)

    def _restart_kafka(self) -> None:
        kafka_process.stop(self._process)
        if self._zookeeper is not None:
            _await_forgotten(self._zookeeper)
        self._process = subprocess.Popen(
            self._kafka.process.args,
            cwd=self._kafka.data.parent,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        )

    def close(self) -> None:
        kafka_process.kill(self._process)


@contextmanager
def running(place: Path, version: str) -> Iterator[Peers]:
    """With Kafka of that version."""
    with ExitStack() as stack:
        zookeeper = None
        if version == "3.9.1":
            zookeeper = stack.enter_context(kafka_process.zookeeper(place / "zookeeper"))
            settings = {**SETTINGS, "zookeeper.session.timeout.ms": _SESSION_MS}
            kafka = kafka_process.zookeeper_mode_broker(place / "kafka", zookeeper, 1, settings)
        elif version == "4.3.1":
            kafka = kafka_process.kraft_broker(place / "kafka", {**SETTINGS, **OF_KAFKA_4}, Ports.without_proxy())
        else:
            raise ValueError(f"there is no Kafka {version!r} to compare with; there are {', '.join(VERSIONS)}")
        ours = stack.enter_context(Broker(overrides={**SETTINGS, "broker.id": "1"}))
        peers = Peers(ours, kafka, zookeeper)
        stack.callback(peers.close)
        for port in peers.ports:
            await_service(port)
        yield peers


def await_service(port: int) -> None:
    """Until a broker serves groups and gives out producer ids: asking where their coordinator is makes its topic."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        try:
            connection = Connection(port)
            try:
                answers = []
                for name, version, fields in (
                    ("InitProducerId", 1, {"transactional_id": None, "transaction_timeout_ms": 60_000}),
                    ("FindCoordinator", 3, {"key": "warm", "key_type": 0}),
                    ("Heartbeat", 3, {"group_id": "warm", "generation_id": 1, "member_id": "nobody"}),
                ):
                    api = api_named(name)
                    sent = connection.send(request_of(api, dict(fields)), version)
                    answers.append(getattr(connection.receive(api, version, sent), "error_code", 0))
                if answers[0] == ErrorCode.NONE and answers[-1] == ErrorCode.UNKNOWN_MEMBER_ID:
                    return
            finally:
                connection.close()
        except (OSError, NoAnswerError):
            pass
        time.sleep(0.1)
    raise RuntimeError(f"the broker on port {port} does not serve groups after {PATIENCE_S:.0f} s")


def _await_forgotten(zookeeper: str) -> None:
    """A broker ends at once while ZooKeeper takes the one before to be alive."""
    tree = KazooClient(zookeeper)
    tree.start()
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while tree.exists("/brokers/ids/1") and time.monotonic() < deadline_s:
            time.sleep(0.1)
    finally:
        tree.stop()
        tree.close()


NOT_COMPARED: Final = {"3.9.1": {"ConsumerGroupHeartbeat", "ConsumerGroupDescribe"}}
"""APIs that a version has and does not serve unless it is told to."""
SINCE: Final = {
    "3.9.1": {"Produce": 3, "OffsetCommit": 1, "OffsetFetch": 1},  # before, offsets were kept in ZooKeeper
    "4.3.1": {"Produce": 3},  # older versions are announced for the sake of librdkafka, and refused
}


def common_versions(ports: tuple[int, int], peer: str) -> dict[str, tuple[int, int]]:
    """The lowest and the highest version of each API that both brokers serve in the same way, by its name."""
    served = [_served(port) for port in ports]
    both = {}
    for name in sorted(served[0].keys() & served[1].keys()):
        if name in NOT_COMPARED.get(peer, ()):
            continue
        low = max(*(each[name][0] for each in served), SINCE[peer].get(name, 0))
        high = min(each[name][1] for each in served)
        if low <= high:
            both[name] = (low, high)
    return both


def delete_group(ports: tuple[int, int], group_id: str) -> None:
    """From both brokers, whether it is there or not."""
    api = api_named("DeleteGroups")
    for port in ports:
        connection = Connection(port)
        try:
            connection.receive(api, 0, connection.send(request_of(api, {"groups_names": [group_id]}), 0))
        finally:
            connection.close()


def _served(port: int) -> dict[str, tuple[int, int]]:
    api = api_named("ApiVersions")
    connection = Connection(port)
    try:
        answer = connection.receive(api, 0, connection.send(api.request(), 0))
    finally:
        connection.close()
    known = apis()
    return {
        known[each.api_key].name: (each.min_version, each.max_version)
        for each in answer.api_keys  # type: ignore[attr-defined]  # declared by the answer to ApiVersions
        if each.api_key in known
    }
