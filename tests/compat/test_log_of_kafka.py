"""Log directories that a real Kafka 3.9.1 broker wrote, opened by ours: after a clean stop and after a crash."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat.kafka_logs import COMPACTED, LOG_START, OPEN, TOPIC_SETTINGS, TOPICS, KafkaLogs, write_kafka_logs
from compat.log_files import read_epochs
from compat.log_reading import read_all
from compat.once import Once
from ottla.base.clock import SystemClock
from ottla.base.ids import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.directories import DirectoryOptions, LogDirectories
from ottla.log.local_disk import LocalDisk
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_entry import ProducerEntry

pytestmark = pytest.mark.compat

STATES = ("clean", "killed")
OF_EACH = pytest.mark.parametrize("topic", TOPICS)
IN_BOTH_STATES = pytest.mark.parametrize("state", STATES)
INDEXES = (".index", ".timeindex", ".txnindex")


@pytest.fixture(scope="session")
def written(once: Once) -> KafkaLogs:
    return once("logs-of-kafka", write_kafka_logs)


def open_directory(path: Path) -> LogDirectories:
    directories = LogDirectories(LocalDisk(), SystemClock(), [path], DirectoryOptions(broker_id=1))
    directories.open(config_of)
    return directories


def config_of(partition: TopicPartition) -> LogConfig:
    return LogConfig.from_properties(TOPIC_SETTINGS.get(partition.topic, {"cleanup.policy": "compact"}))


@pytest.fixture(scope="session")
def opened(written: KafkaLogs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, LogDirectories]]:
    """Copies, each opened by ours; closed at the end."""
    place = tmp_path_factory.mktemp("opened")
    directories = {}
    for state in STATES:
        shutil.copytree(written.place / state, place / state)
        directories[state] = open_directory(place / state)
    for log in directories["killed"].logs():
        log.set_high_watermark(log.next_offset)  # as the leader of a partition with one replica does
    yield directories
    for each in directories.values():
        each.close()


def log_of(directories: LogDirectories, topic: str) -> PartitionLog:
    log = directories.get(TopicPartition(topic, 0))
    assert log is not None
    return log


def test_all_partitions_are_there(written: KafkaLogs, opened: dict[str, LogDirectories]) -> None:
    """Those of Kafka's own topics as well."""
    for state in STATES:
        folders = {path.name for path in (written.place / state).iterdir() if path.is_dir()}
        assert {str(log.partition) for log in opened[state].logs()} == folders
        assert folders >= {f"{topic}-0" for topic in TOPICS} | {"__transaction_state-0"}


@IN_BOTH_STATES
@OF_EACH
def test_records(written: KafkaLogs, opened: dict[str, LogDirectories], state: str, topic: str) -> None:
    heard = written.heard[state][topic].records
    assert read_all(log_of(opened[state], topic)) == heard
    assert len(heard) > 50


@IN_BOTH_STATES
@OF_EACH
def test_committed_records(written: KafkaLogs, opened: dict[str, LogDirectories], state: str, topic: str) -> None:
    heard = written.heard[state][topic].committed
    assert read_all(log_of(opened[state], topic), committed=True) == heard
    assert len(heard) > 40


@IN_BOTH_STATES
@OF_EACH
def test_bounds(written: KafkaLogs, opened: dict[str, LogDirectories], state: str, topic: str) -> None:
    log, heard = log_of(opened[state], topic), written.heard[state][topic]
    assert (log.log_start_offset, log.next_offset) == (heard.low, heard.high)
    assert log.log_start_offset == (LOG_START if topic == "records-deleted" else 0)
    assert log.high_watermark == heard.high
    # The open transaction begins behind the last committed record, the aborted ones and two markers.
    assert log.last_stable_offset == (92 if topic == OPEN else heard.high)


def test_several_segments(opened: dict[str, LogDirectories]) -> None:
    for directories in opened.values():
        assert all(len(log_of(directories, topic).segments) > 1 for topic in TOPICS)


@IN_BOTH_STATES
@OF_EACH
def test_offsets_by_time(written: KafkaLogs, opened: dict[str, LogDirectories], state: str, topic: str) -> None:
    log = log_of(opened[state], topic)
    for timestamp_ms, offset in written.heard[state][topic].by_time.items():
        found = log.offset_for_timestamp(timestamp_ms)
        if topic == "records-deleted" and offset == -1 and found is not None:
            # Kafka looks into the first segment that is new enough, and gives up if it lies before the log's start.
            heard = written.heard[state][topic].records
            assert found.offset == next(record.offset for record in heard if record.timestamp_ms >= timestamp_ms)
        else:
            assert (-1 if found is None else found.offset) == offset


@OF_EACH
def test_leader_epochs(written: KafkaLogs, opened: dict[str, LogDirectories], topic: str) -> None:
    """Kafka notes an epoch when a leader is chosen, and forgets it when it opens a log in which it wrote nothing."""
    for state, of_kafka in (("clean", "clean"), ("killed", "recovered")):
        log = log_of(opened[state], topic)
        in_file = read_epochs(written.place / of_kafka / f"{topic}-0")
        assert list(log.epochs.entries) == [entry for entry in in_file if entry[1] < log.next_offset]
    assert log.epochs.entries


@OF_EACH
def test_producers(written: KafkaLogs, opened: dict[str, LogDirectories], topic: str) -> None:
    """As in the snapshot that Kafka takes at the end when it stops."""
    for state, of_kafka in (("clean", "clean"), ("killed", "recovered")):
        log = log_of(opened[state], topic)
        last = written.rows(of_kafka, topic, ".snapshot")[log.next_offset]
        assert {_as_dumped(entry)["producerId"]: _as_dumped(entry) for entry in log.producers.entries.values()} == {
            row["producerId"]: row for row in last
        }
    assert topic not in ("golden.idempotent", "transactions", OPEN, COMPACTED) or len(log.producers.entries) > 1


def _as_dumped(entry: ProducerEntry) -> dict[str, int]:
    row = entry.row()
    last = (
        {}
        if not entry.batches
        else {
            "firstSequence": row.last_sequence - row.offset_delta,
            "lastSequence": row.last_sequence,
            "lastOffset": row.last_offset,
            "offsetDelta": row.offset_delta,
            "timestamp": row.timestamp_ms,
        }
    )
    return {
        "producerId": row.producer_id,
        "producerEpoch": row.producer_epoch,
        "coordinatorEpoch": row.coordinator_epoch,
        "currentTxnFirstOffset": row.current_transaction_first_offset,
        "lastTimestamp": row.timestamp_ms,
        **last,
    }


@OF_EACH
def test_aborted_transactions(written: KafkaLogs, opened: dict[str, LogDirectories], topic: str) -> None:
    for state, of_kafka in (("clean", "clean"), ("killed", "recovered")):
        log = log_of(opened[state], topic)
        found = [aborted for segment in log.segments for aborted in segment.transaction_index.all()]
        rows = [row for _, rows in sorted(written.rows(of_kafka, topic, ".txnindex").items()) for row in rows]
        assert [
            (aborted.producer_id, aborted.first_offset, aborted.last_offset, aborted.last_stable_offset)
            for aborted in found
        ] == [(row["producerId"], row["firstOffset"], row["lastOffset"], row["lastStableOffset"]) for row in rows]
    assert topic not in ("transactions", OPEN) or found


@IN_BOTH_STATES
@OF_EACH
def test_every_look_up_in_kafkas_indexes(opened: dict[str, LogDirectories], state: str, topic: str) -> None:
    """Each offset is found in the batch that a walk through the whole segment finds."""
    for segment in log_of(opened[state], topic).segments:
        for position, header in segment.iter_headers():
            for offset in (header.base_offset, header.last_offset):
                assert segment.position_of(offset) == (position, header.size_in_bytes)


def test_rebuilt_indexes_are_kafkas(written: KafkaLogs, tmp_path: Path) -> None:
    """Without a mark of a clean stop, checkpoint or index, ours makes the very files that Kafka had. Not for a
    compacted log: Kafka's cleaner writes many batches at once, and makes one entry for them."""
    shutil.copytree(written.place / "clean", tmp_path / "clean")
    for path in (tmp_path / "clean").glob("**/*"):
        if path.suffix in INDEXES or path.name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
            path.unlink()
    open_directory(tmp_path / "clean").close()
    for topic in TOPICS:
        if topic != COMPACTED:
            assert _files(tmp_path / "clean", topic, INDEXES) == _files(written.place / "clean", topic, INDEXES)


def test_a_crash_leaves_what_kafka_makes_of_it(written: KafkaLogs, tmp_path: Path) -> None:
    """Logs and indexes byte for byte; the cleaner goes on when Kafka does, so not the compacted topic."""
    shutil.copytree(written.place / "killed", tmp_path / "killed")
    open_directory(tmp_path / "killed").close()
    for topic in TOPICS:
        if topic != COMPACTED:
            suffixes = (".log", *INDEXES)
            assert _files(tmp_path / "killed", topic, suffixes) == _files(written.place / "recovered", topic, suffixes)


def _files(directory: Path, topic: str, suffixes: tuple[str, ...]) -> dict[str, bytes]:
    """An empty file is as good as none."""
    paths = (path for path in (directory / f"{topic}-0").iterdir() if path.suffix in suffixes)
    return {path.name: data for path in paths if (data := path.read_bytes())}
