"""Kafka's own dump tool reads what our log wrote: every file without a complaint, and in them what was appended."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from compat.log_dumps import DumpedLogs, dump_logs
from compat.log_files import tear
from compat.log_workloads import COMPACTED, LOG_START, WORKLOADS, Workload, config_of, write_all
from compat.log_writing import Appended, aborted_transactions, producers_at
from compat.once import Once
from golden import segment_dump
from golden.segment_dump import DumpedRecord
from ottla.base.clock import SystemClock
from ottla.log.directories import DirectoryOptions, LogDirectories
from ottla.log.local_disk import LocalDisk

pytestmark = pytest.mark.compat

STATES = ("closed", "reopened")
"""Closed in order; and opened again after a crash that tore the last write of every log and lost its epochs."""
OF_EACH = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.topic)
OF_EACH_AS_APPENDED = pytest.mark.parametrize(
    "workload", [each for each in WORKLOADS if each.topic != COMPACTED], ids=lambda workload: workload.topic
)


@pytest.fixture(scope="session")
def dumped(once: Once) -> DumpedLogs:
    return once("logs-of-ours", _write_and_dump)


def _write_and_dump(place: Path) -> DumpedLogs:
    clock, options = SystemClock(), DirectoryOptions(broker_id=1)
    directories = LogDirectories(LocalDisk(), clock, [place / "closed"], options)
    directories.open(config_of)
    accounts = write_all(directories, clock, {})
    directories.checkpoint()
    shutil.copytree(place / "closed", place / "reopened")
    directories.close()
    for folder in (place / "reopened").glob("ours.*"):
        tear(max(folder.glob("*.log")))
        (folder / "leader-epoch-checkpoint").unlink(missing_ok=True)
    reopened = LogDirectories(LocalDisk(), clock, [place / "reopened"], options)
    reopened.open(config_of)
    reopened.close()
    return dump_logs(place, accounts)


def test_nothing_to_complain_about(dumped: DumpedLogs) -> None:
    """But for the gaps that compaction leaves."""
    gaps = dumped.complaints["deep"]
    assert [line for line in gaps if COMPACTED not in line and "is followed by" not in line] == []
    assert [line for line in gaps if "Non-consecutive offsets" in line]
    assert dumped.complaints["verify-index"] == ()
    assert dumped.complaints["index-sanity"] == ()


def test_files_of_every_kind_were_read(dumped: DumpedLogs) -> None:
    assert {path.suffix for path in dumped.texts} == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}


@pytest.mark.parametrize("state", STATES)
@OF_EACH
def test_records(dumped: DumpedLogs, workload: Workload, state: str) -> None:
    found = [
        record for text in dumped.of(state, workload.topic, ".log").values() for record in segment_dump.records(text)
    ]
    assert found == [record for batch in dumped.accounts[workload.topic] for record in _as_dumped(batch)]


def _as_dumped(batch: Appended) -> list[DumpedRecord]:
    if batch.commits is not None:
        return []
    return [
        DumpedRecord(
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            key=None if record.key is None else record.key.decode(),
            value=None if record.value is None else record.value.decode(),
            key_size=-1 if record.key is None else len(record.key),
            value_size=-1 if record.value is None else len(record.value),
            sequence=-1 if batch.base_sequence < 0 else batch.base_sequence + record.offset - batch.first_offset,
            header_keys=tuple(name for name, _ in record.headers),
        )
        for record in batch.records
    ]


@pytest.mark.parametrize("state", STATES)
@OF_EACH_AS_APPENDED
def test_batches(dumped: DumpedLogs, workload: Workload, state: str) -> None:
    batches, markers = dumped.batches(state, workload.topic)
    fields = ("base_offset", "count", "leader_epoch", "producer_id", "producer_epoch", "base_sequence", "transactional")
    account = dumped.accounts[workload.topic]
    assert [(*(batch[name] for name in fields), batch["control"], batch["codec"]) for batch in batches] == [
        (
            batch.first_offset,
            batch.count,
            batch.leader_epoch,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.transactional,
            batch.commits is not None,
            batch.codec.name.lower(),
        )
        for batch in account
    ]
    assert [(marker["offset"], marker["commit"], marker["coordinator_epoch"]) for marker in markers] == [
        (batch.first_offset, batch.commits, batch.coordinator_epoch) for batch in account if batch.commits is not None
    ]


@pytest.mark.parametrize("state", STATES)
@OF_EACH_AS_APPENDED
def test_indexes(dumped: DumpedLogs, workload: Workload, state: str) -> None:
    """Entries where Kafka's leader makes them when each batch comes by itself. A cut drops entries, and a leader then
    begins to count at the last that is left, so there the two may differ by a batch."""
    logs = dumped.of(state, workload.topic, ".log")
    for path, text in logs.items():
        batches, _ = segment_dump.batches_and_markers(path, text)
        offsets, times = _expected_entries(batches, workload.config.index_interval_bytes)
        index = segment_dump.rows(dumped.texts[path.with_suffix(".index")])
        time_index = segment_dump.rows(dumped.texts[path.with_suffix(".timeindex")])
        assert [(row["offset"], row["position"]) for row in index] == offsets
        assert [(row["timestamp"], row["offset"]) for row in time_index] == times
    assert len(logs) > 1 or workload.topic == "ours.empty"


def _expected_entries(
    batches: Sequence[segment_dump.Fields], interval_bytes: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    newest = (-1, -1)
    bytes_since = 0
    for batch in batches:
        if batch["max_timestamp_ms"] > newest[0]:
            newest = batch["max_timestamp_ms"], batch["last_offset"]
        if bytes_since > interval_bytes:
            offsets.append((batch["last_offset"], batch["position"]))
            if not times or newest[0] > times[-1][0]:
                times.append(newest)
            bytes_since = 0
        bytes_since += batch["size"]
    if batches and (not times or newest[0] > times[-1][0]):
        times.append(newest)
    return offsets, times


@pytest.mark.parametrize("state", STATES)
def test_transaction_indexes(dumped: DumpedLogs, state: str) -> None:
    for workload in WORKLOADS:
        texts = dumped.of(state, workload.topic, ".txnindex").values()
        rows = [row for text in texts for row in segment_dump.rows(text)]
        found = [(row["producerId"], row["firstOffset"], row["lastOffset"], row["lastStableOffset"]) for row in rows]
        expected = aborted_transactions(dumped.accounts[workload.topic])
        if state == "reopened" and workload.topic == COMPACTED:
            expected = [row for row in expected if row in found]  # the rest had no batch left to be rebuilt from
        assert found == expected, workload.topic
        assert len(found) > 5 or workload.topic != "ours.transactions"


@pytest.mark.parametrize("state", STATES)
@OF_EACH
def test_producer_snapshots(dumped: DumpedLogs, workload: Workload, state: str) -> None:
    """One at the start of each segment but the first, and one at the end."""
    account = dumped.accounts[workload.topic]
    snapshots = dumped.of(state, workload.topic, ".snapshot")
    end = account[-1].last_offset + 1 if account else 0
    bases = [int(path.stem) for path in dumped.of(state, workload.topic, ".log")]
    expected = {*bases, end} - {0}
    if state == "reopened" and workload.topic == "ours.log-start-moved":
        expected = {offset for offset in expected if offset > LOG_START}
    found = {int(path.stem) for path in snapshots}
    if state == "reopened" and workload.topic == COMPACTED:
        # Recovery takes a snapshot behind a segment's last batch, which now may come long before the next segment.
        assert found < expected
        assert end in found
    else:
        assert found == expected
    for path, text in snapshots.items():
        rows = {row["producerId"]: row for row in segment_dump.rows(text)}
        assert rows == producers_at(account, int(path.stem)), path.name


@pytest.mark.parametrize("state", STATES)
def test_leader_epochs(dumped: DumpedLogs, state: str) -> None:
    for workload in WORKLOADS:
        account = dumped.accounts[workload.topic]
        starts: dict[int, int] = {}
        for batch in account:
            starts.setdefault(batch.leader_epoch, batch.first_offset)
        found = dumped.epochs[state, workload.topic]
        if workload.topic == "ours.log-start-moved":
            starts = {0: LOG_START}
        elif workload.topic == COMPACTED and state == "reopened":
            starts = {0: next(batch.first_offset for batch in account if batch.records)}
        assert found == sorted(starts.items()), workload.topic
