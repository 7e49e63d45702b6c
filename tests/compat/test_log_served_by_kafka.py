"""A real Kafka 3.9.1 broker serves the log directory that ours wrote, and ours goes on with what Kafka appended."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from compat.log_reading import read_all
from compat.log_workloads import LOG_START, config_of
from compat.log_writing import Appended, committed
from compat.once import Once
from compat.served_logs import TOPICS, TORN, ServedLogs, serve_logs
from ottla.base.clock import SystemClock
from ottla.base.ids import TopicPartition
from ottla.log.directories import DirectoryOptions, LogDirectories
from ottla.log.local_disk import LocalDisk
from ottla.log.partition_log import PartitionLog
from ottla.records import Record

pytestmark = pytest.mark.compat

OF_EACH = pytest.mark.parametrize("topic", TOPICS)
APPENDED = 40
"""By Kafka, to each topic; beside a record in a transaction that it committed, and one in an aborted one."""


@pytest.fixture(scope="session")
def served(once: Once) -> ServedLogs:
    return once("logs-served-by-kafka", serve_logs)


def _from_start(topic: str, records: Sequence[Record]) -> list[Record]:
    start = LOG_START if topic == "ours.log-start-moved" else 0
    return [record for record in records if record.offset >= start]


def _data(account: Sequence[Appended]) -> list[Record]:
    return [record for batch in account if batch.commits is None for record in batch.records]


@OF_EACH
def test_the_console_consumer_reads_all(served: ServedLogs, topic: str) -> None:
    assert served.read[topic] == _from_start(topic, _data(served.accounts[topic]))
    assert served.read[topic] or topic == "ours.empty"


@OF_EACH
def test_the_console_consumer_reads_what_is_committed(served: ServedLogs, topic: str) -> None:
    assert served.committed[topic] == _from_start(topic, committed(served.accounts[topic]))
    with_aborted = topic in ("ours.transactions", "ours.compacted")
    assert (len(served.committed[topic]) < len(served.read[topic])) == with_aborted


def test_kafka_finds_nothing_to_repair(served: ServedLogs) -> None:
    said = _about_logs(served.said)
    assert [line for line in said if re.match("WARN|ERROR|FATAL", line)] == []
    assert [line for line in said if re.search("Recovering|[Cc]orrupt|[Tt]runcating|[Rr]ebuilt|invalid", line)] == []
    assert any(f"Skipping recovery of {len(TOPICS)} logs" in line for line in said)
    ends = {topic: account[-1].last_offset + 1 if account else 0 for topic, account in served.accounts.items()}
    loaded = dict(re.findall(r"Completed load of Log\(dir=\S+/(\S+)-0, .* and log-end-offset (\d+)", served.said))
    assert {topic: int(end) for topic, end in loaded.items()} == ends


def test_kafka_goes_on_from_our_producer_snapshots(served: ServedLogs) -> None:
    """It reads no batch to know the producers."""
    form = r"partition=(\S+)-0, .*Reloading from producer snapshot and rebuilding producer state from offset (\d+)$"
    found = dict(re.findall(form, served.said, re.MULTILINE))
    ends = {topic: str(account[-1].last_offset + 1) for topic, account in served.accounts.items() if account}
    assert {topic: found.get(topic) for topic in ends} == ends


@OF_EACH
def test_kafka_recovers_all_after_our_crash(served: ServedLogs, topic: str) -> None:
    assert served.after_crash[topic] == _from_start(topic, _data(served.accounts[topic]))


def test_kafka_cuts_off_only_what_was_torn(served: ServedLogs) -> None:
    said = _about_logs(served.said_after_crash)
    assert any(f"Recovering {len(TOPICS)} logs" in line for line in said)
    warnings = [line for line in said if re.match("WARN|ERROR|FATAL", line)]
    assert len(warnings) == len(TORN)
    for topic in TORN:
        end = served.accounts[topic][-1].last_offset + 1
        assert any(f"partition={topic}-0" in line and f"truncating to offset {end}" in line for line in warnings)


def _about_logs(said: str) -> list[str]:
    """What Kafka said of logs; it also warns of connections while it starts."""
    return [line for line in said.splitlines() if re.match(r"\w+ (kafka\.log|org\.apache\.kafka\.storage)", line)]


@pytest.fixture(scope="session")
def reopened(served: ServedLogs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogDirectories]:
    """What Kafka appended to, opened by ours."""
    place = tmp_path_factory.mktemp("reopened") / "appended"
    shutil.copytree(served.place / "appended", place)
    directories = LogDirectories(LocalDisk(), SystemClock(), [place], DirectoryOptions(broker_id=1))
    directories.open(config_of)
    yield directories
    directories.close()


@OF_EACH
def test_ours_reads_what_kafka_appended(served: ServedLogs, reopened: LogDirectories, topic: str) -> None:
    log = _log_of(reopened, topic)
    records = read_all(log)
    before = _from_start(topic, _data(served.accounts[topic]))
    assert records == served.appended[topic]
    assert records[: len(before)] == before
    assert len(records) == len(before) + APPENDED + 2
    assert log.high_watermark == log.next_offset


@OF_EACH
def test_ours_reads_what_is_committed_then(served: ServedLogs, reopened: LogDirectories, topic: str) -> None:
    assert read_all(_log_of(reopened, topic), committed=True) == served.committed_after_appending[topic]


def _log_of(directories: LogDirectories, topic: str) -> PartitionLog:
    log = directories.get(TopicPartition(topic, 0))
    assert log is not None
    return log


def test_our_files_stay_as_they_were(served: ServedLogs) -> None:
    """Kafka serves closed segments as it finds them, but may delete those before the log's start."""
    for topic in TOPICS:
        start = LOG_START if topic == "ours.log-start-moved" else 0
        for path in _closed_files(served.place / "closed" / f"{topic}-0", start):
            assert (served.place / "appended" / path.parent.name / path.name).read_bytes() == path.read_bytes()


def _closed_files(folder: Path, start: int) -> list[Path]:
    """Of all segments but the active one, and those that begin before an offset."""
    active = int(max(folder.glob("*.log")).stem)
    paths = [path for path in folder.iterdir() if path.suffix in (".log", ".index", ".timeindex", ".txnindex")]
    return [path for path in paths if start <= int(path.stem) < active]
