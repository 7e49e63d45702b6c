"""Log directories written by ours, served by a real Kafka 3.9.1 broker with ZooKeeper.

Kafka makes the topics and stops. Ours writes a new directory with all of them, which takes the place of Kafka's, once
as it was closed and once as a crash would have left it. What Kafka's console consumer reads then is kept, and what
Kafka said while it opened the logs. To the closed one Kafka appends, for ours to open again.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from compat.kafka_logs import PATIENCE_S, consume, consume_decided
from compat.log_files import tear
from compat.log_workloads import WORKLOADS, config_of, write_all
from compat.log_writing import Appended
from ottla.base.clock import SystemClock
from ottla.base.ids import Uuid, parse_uuid
from ottla.log.directories import DirectoryOptions, LogDirectories
from ottla.log.local_disk import LocalDisk
from ottla.records import Record
from support.controllers import admin_of
from support.kafka_process import Broker, java_command, stop, zookeeper, zookeeper_mode_broker

TOPICS = tuple(workload.topic for workload in WORKLOADS)
BROKER_SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.index.size.max.bytes": "40000",
    "log.cleaner.dedupe.buffer.size": "4000000",
}
TORN = ("ours.none", "ours.transactions")
"""Topics whose last write the crash tore."""
NULL = "NULL"
IDLE_MS = 15_000
"""After which it gives up waiting for more; it must not before it has joined its group."""


@dataclass(frozen=True, slots=True)
class ServedLogs:
    """What was written, and what became of it."""

    place: Path
    accounts: Mapping[str, list[Appended]]
    read: Mapping[str, list[Record]]
    committed: Mapping[str, list[Record]]
    said: str
    """By Kafka, of the logs that were closed."""
    after_crash: Mapping[str, list[Record]]
    said_after_crash: str
    appended: Mapping[str, list[Record]]
    """All records after Kafka had appended, as its consumer read them."""
    committed_after_appending: Mapping[str, list[Record]]


def serve_logs(place: Path) -> ServedLogs:
    home, clock = place / "broker", SystemClock()
    with zookeeper(place / "zookeeper") as address:
        broker = zookeeper_mode_broker(home, address, 1, BROKER_SETTINGS)
        try:
            _create_topics(broker)
        finally:
            stop(broker.process)
        shutil.move(broker.data, place / "of-kafka")

        options = DirectoryOptions(broker_id=1, cluster_id=_cluster_id(place / "of-kafka"))
        directories = LogDirectories(LocalDisk(), clock, [place / "closed"], options)
        directories.open(config_of)
        accounts = write_all(directories, clock, _topic_ids(place / "of-kafka"), one_leader=True)
        directories.checkpoint()
        shutil.copytree(place / "closed", place / "crashed")
        directories.close()

        shutil.copytree(place / "closed", broker.data)
        broker = zookeeper_mode_broker(home, address, 1, BROKER_SETTINGS)
        try:
            read, committed = _console_consumers(broker)
            said = broker.output
            _append(broker)
            appended, committed_after_appending = consume_decided(broker, TOPICS, undecided=("ours.transactions",))
        finally:
            stop(broker.process)
        shutil.move(broker.data, place / "appended")

        for topic in TORN:
            tear(max((place / "crashed" / f"{topic}-0").glob("*.log")))
        shutil.copytree(place / "crashed", broker.data)
        broker = zookeeper_mode_broker(home, address, 1, BROKER_SETTINGS)
        try:
            after_crash, _ = consume(broker, TOPICS, committed=False)
            said_after_crash = broker.output
        finally:
            stop(broker.process)
    return ServedLogs(
        place, accounts, read, committed, said, after_crash, said_after_crash, appended, committed_after_appending
    )


def _create_topics(broker: Broker) -> None:
    admin = admin_of(broker)
    topics = [NewTopic(workload.topic, 1, 1, config=dict(workload.settings)) for workload in WORKLOADS]
    for created in admin.create_topics(topics, operation_timeout=30).values():
        created.result()


def _cluster_id(directory: Path) -> str:
    found = re.search(r"^cluster\.id=(.*)$", (directory / "meta.properties").read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{directory} belongs to no cluster")
    return found[1]


def _topic_ids(directory: Path) -> dict[str, Uuid]:
    ids = {}
    for topic in TOPICS:
        lines = (directory / f"{topic}-0" / "partition.metadata").read_text().splitlines()
        ids[topic] = parse_uuid(lines[1].removeprefix("topic_id: "))
    return ids


def _append(broker: Broker) -> None:
    """To each topic; also as transactions, one of them aborted."""
    plain = Producer({"bootstrap.servers": broker.address})
    ending = Producer({"bootstrap.servers": broker.address, "transactional.id": "after-ours", "log_level": 2})
    ending.init_transactions()
    for topic in TOPICS:
        for number in range(40):
            plain.produce(topic, b"by Kafka, %d" % number, b"key-%d" % number, partition=0)
    for end in (ending.commit_transaction, ending.abort_transaction):
        ending.begin_transaction()
        for topic in TOPICS:
            ending.produce(topic, b"in a transaction", b"key", partition=0)
        ending.flush(PATIENCE_S)  # what was not sent when a transaction is aborted never is
        end()
    if plain.flush(PATIENCE_S):
        raise RuntimeError(f"records are not acknowledged after {PATIENCE_S:.0f} s")


# The console consumer, which prints a line for each record.

_LINE = re.compile(
    r"(?:CreateTime|LogAppendTime):(?P<timestamp_ms>\d+)\tPartition:0\tOffset:(?P<offset>\d+)\t"
    r"(?P<headers>[^\t]*)\t(?P<key>[^\t]*)\t(?P<value>.*)"
)


def _console_consumers(broker: Broker) -> tuple[dict[str, list[Record]], dict[str, list[Record]]]:
    """All records, and those of committed transactions; both at the same time, since each waits for more at the end."""
    processes = [_console_consumer(broker, isolation) for isolation in ("read_uncommitted", "read_committed")]
    everything, committed = (_printed(process) for process in processes)
    return everything, committed


def _console_consumer(broker: Broker, isolation: str) -> subprocess.Popen[str]:
    shown = dict.fromkeys(("timestamp", "partition", "offset", "headers", "key", "value"), "true")
    properties = {**{f"print.{name}": value for name, value in shown.items()}, "null.literal": NULL}
    command = java_command(
        "3.9.1",
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.address, "--include", r"ours\..*", "--from-beginning"),
        *("--isolation-level", isolation, "--timeout-ms", str(IDLE_MS)),
        *(word for name, value in properties.items() for word in ("--property", f"{name}={value}")),
    )
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _printed(process: subprocess.Popen[str]) -> dict[str, list[Record]]:
    output, errors = process.communicate(timeout=120)
    records: dict[str, list[Record]] = {topic: [] for topic in TOPICS}
    for line in output.splitlines():
        form = _LINE.fullmatch(line)
        if form is None:
            raise RuntimeError(f"the console consumer printed {line!r}\n{errors}")
        headers = tuple((name, value.encode()) for name, _, value in _split(form["headers"]))
        (_, topic), *_ = headers
        records[topic.decode()].append(
            Record(int(form["offset"]), int(form["timestamp_ms"]), _bytes(form["key"]), _bytes(form["value"]), headers)
        )
    counted = re.search(r"Processed a total of (\d+) messages", errors)
    if counted is None or int(counted[1]) != sum(map(len, records.values())):
        raise RuntimeError(f"the console consumer says:\n{errors}")
    return {topic: sorted(some, key=lambda record: record.offset) for topic, some in records.items()}


def _split(headers: str) -> Sequence[tuple[str, str, str]]:
    return [header.partition(":") for header in headers.split(",")]


def _bytes(text: str) -> bytes | None:
    return None if text == NULL else text.encode()
