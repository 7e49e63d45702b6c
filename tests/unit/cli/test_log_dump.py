"""`ottla log dump` on segments that real clients wrote, on files of our own, and on what is wrong with them."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ottla.base.ids import TopicPartition, format_uuid, random_uuid
from ottla.cli.main import run
from ottla.log.checkpoints import EpochEntry, LeaderEpochCheckpoint, MetaProperties, OffsetCheckpoint
from ottla.log.local_disk import LocalDisk
from ottla.log.offset_index import OffsetIndex
from ottla.log.partition_metadata import PartitionMetadata
from ottla.log.producer_snapshot import ProducerRow, encode_snapshot
from ottla.log.time_index import TimeIndex
from ottla.log.transaction_index import AbortedTransaction, TransactionIndex
from ottla.records import BatchOptions, Record, encode_batch

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "records"
CAPTURES: list[dict[str, Any]] = json.loads((GOLDEN / "manifest.json").read_text(encoding="utf-8"))
SEGMENT = "00000000000000000000.log"

Capture = pytest.CaptureFixture[str]


def dump(capsys: Capture, *arguments: str | Path) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code, lines and what was said on standard error."""
    code = run(["log", "dump", "--json", *map(str, arguments)])
    output = capsys.readouterr()
    return code, [json.loads(line) for line in output.out.splitlines()], output.err


def of_kind(lines: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["kind"] == kind]


def text(encoded: str | None) -> str | None:
    """The manifest holds bytes as Latin-1."""
    return None if encoded is None else encoded.encode("latin-1").decode("utf-8", "backslashreplace")


def time(timestamp_ms: int) -> str | None:
    if timestamp_ms == -1:
        return None
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda capture: capture["file"])
def test_segments_of_real_clients(capture: dict[str, Any], tmp_path: Path, capsys: Capture) -> None:
    segment = tmp_path / SEGMENT
    shutil.copy(GOLDEN / capture["file"], segment)
    code, lines, error = dump(capsys, segment, "--values")
    assert (code, error) == (0, "")
    batches = of_kind(lines, "batch")
    assert [
        (one["position"], one["bytes"], one["last_offset"], one["compression"], one["time"], one["magic"], one["crc"])
        for one in batches
    ] == [
        (
            one["position"],
            one["size"],
            one["last_offset"],
            one["codec"],
            time(one["max_timestamp_ms"]),
            one["magic"],
            f"{one['crc']:#010x}",
        )
        for one in capture["batches"]
    ]
    assert [one.get("producer", -1) for one in batches] == [one.get("producer_id", -1) for one in capture["batches"]]
    records = [line for line in of_kind(lines, "record") if "marker" not in line]
    assert [(one["offset"], one["time"], one["key"], one["value"]) for one in records] == [
        (one["offset"], time(one["timestamp_ms"]), text(one["key"]), text(one["value"])) for one in capture["records"]
    ]
    markers = [line for line in of_kind(lines, "record") if "marker" in line]
    assert [(one["offset"], one["marker"], one["coordinator_epoch"]) for one in markers] == [
        (one["offset"], "commit" if one["commit"] else "abort", one["coordinator_epoch"]) for one in capture["markers"]
    ]
    assert of_kind(lines, "end")[0]["batches"] == len(capture["batches"])


def write_segment(folder: Path) -> list[int]:
    """Three batches of two records; where each begins."""
    data = bytearray()
    positions = []
    for first in (0, 2, 4):
        positions.append(len(data))
        records = [Record(0, 1000 + offset, b"k", b"some value") for offset in (first, first + 1)]
        data += encode_batch(records, BatchOptions(base_offset=first))
    (folder / SEGMENT).write_bytes(data)
    return positions


def write_folder(folder: Path) -> str:
    """A partition's folder with a file of every kind; the topic's id."""
    disk = LocalDisk()
    positions = write_segment(folder)
    offsets = OffsetIndex(disk, folder / SEGMENT.replace(".log", ".index"), 0, 1024)
    offsets.append(3, positions[1])
    offsets.close()
    times = TimeIndex(disk, folder / SEGMENT.replace(".log", ".timeindex"), 0, 1024)
    times.maybe_append(1003, 3)
    times.close()
    transactions = TransactionIndex(disk, folder / SEGMENT.replace(".log", ".txnindex"), 0)
    transactions.append(AbortedTransaction(9, 1, 3, 4))
    transactions.close()
    snapshot = encode_snapshot([ProducerRow(9, 1, 5, 3, 1, 1003, 0, -1)])
    (folder / SEGMENT.replace(".log", ".snapshot")).write_bytes(snapshot)
    LeaderEpochCheckpoint(disk, folder / "leader-epoch-checkpoint").write([EpochEntry(2, 0), EpochEntry(5, 4)])
    OffsetCheckpoint(disk, folder / "recovery-point-offset-checkpoint").write({TopicPartition("t", 1): 6})
    MetaProperties(3, "some-cluster").write(disk, folder / "meta.properties")
    topic_id = random_uuid()
    PartitionMetadata(disk, folder).assign(topic_id)
    return format_uuid(topic_id)


def test_a_folder_with_a_file_of_every_kind(tmp_path: Path, capsys: Capture) -> None:
    topic_id = write_folder(tmp_path)
    code, lines, error = dump(capsys, tmp_path)
    assert (code, error) == (0, "")
    assert len({line["file"] for line in lines}) == 9
    # By the files' names: checkpoints and the rest come behind segments.
    found = [{name: value for name, value in line.items() if name != "file"} for line in lines]
    assert found[0] == {"kind": "entry", "offset": 3, "position": 97}
    assert [line["kind"] for line in found[1:5]] == ["batch", "batch", "batch", "end"]
    assert {"kind": "producer", **ProducerRow(9, 1, 5, 3, 1, 1003, 0, -1)._asdict()} in found
    aborted = {"producer": 9, "first_offset": 1, "last_offset": 3, "last_stable_offset": 4}
    assert {"kind": "aborted", **aborted} in found
    assert {"kind": "entry", "time": "1970-01-01T00:00:01.003+00:00", "timestamp": 1003, "offset": 3} in found
    assert {"kind": "epoch", "epoch": 5, "start_offset": 4} in found
    assert {"kind": "partition", "topic": "t", "partition": 1, "offset": 6} in found
    assert {"kind": "topic", "id": topic_id, "version": 0} in found
    directory = {"broker": 3, "cluster": "some-cluster", "directory": None, "version": 0}
    assert {"kind": "directory", **directory} in found


def test_for_people(tmp_path: Path, capsys: Capture) -> None:
    write_segment(tmp_path)
    assert run(["log", "dump", str(tmp_path / SEGMENT), "--values"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == str(tmp_path / SEGMENT)
    assert lines[1].startswith("  batch first_offset=0 last_offset=1 records=2 position=0 bytes=97 compression=none ")
    assert lines[2] == '  record offset=0 time=1970-01-01T00:00:01.000+00:00 key=k value="some value" headers={}'
    assert run(["log", "dump", str(tmp_path / SEGMENT), "--check"]) == 0
    assert capsys.readouterr().out == ""


def test_a_flipped_bit_is_found_and_the_rest_still_shown(tmp_path: Path, capsys: Capture) -> None:
    positions = write_segment(tmp_path)
    data = bytearray((tmp_path / SEGMENT).read_bytes())
    data[positions[1] + 70] ^= 1
    (tmp_path / SEGMENT).write_bytes(data)
    code, lines, error = dump(capsys, tmp_path / SEGMENT, "--values")
    assert code == 1
    assert error == "Error: Found 1 problem.\n"
    (problem,) = of_kind(lines, "problem")
    assert problem["position"] == positions[1]
    assert "CRC" in problem["reason"]
    assert [line["offset"] for line in of_kind(lines, "record")] == [0, 1, 4, 5]


def test_a_torn_end_is_found(tmp_path: Path, capsys: Capture) -> None:
    positions = write_segment(tmp_path)
    data = (tmp_path / SEGMENT).read_bytes()
    (tmp_path / SEGMENT).write_bytes(data[:-5])
    code, lines, _ = dump(capsys, tmp_path / SEGMENT)
    assert code == 1
    assert len(of_kind(lines, "batch")) == 2
    assert of_kind(lines, "problem")[0]["position"] == positions[2]


def test_offsets_that_go_back_are_found(tmp_path: Path, capsys: Capture) -> None:
    write_segment(tmp_path)
    data = (tmp_path / SEGMENT).read_bytes()
    (tmp_path / SEGMENT).write_bytes(data + data[:97])
    code, lines, _ = dump(capsys, tmp_path / SEGMENT)
    assert code == 1
    assert of_kind(lines, "problem")[0]["reason"] == "offset 0 is out of order: expected 6 or later"


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([(3, 0)], "the batch at position 0 ends at offset 1, not 3"),
        ([(3, 90)], "no batch starts at position 90"),
        ([(3, 5000)], "position 5000 is beyond the end of the log"),
    ],
)
def test_an_index_that_contradicts_its_segment_is_found(
    entries: list[tuple[int, int]], reason: str, tmp_path: Path, capsys: Capture
) -> None:
    write_segment(tmp_path)
    index = OffsetIndex(LocalDisk(), tmp_path / SEGMENT.replace(".log", ".index"), 0, 1024)
    for offset, position in entries:
        index.append(offset, position)
    index.close()
    code, lines, _ = dump(capsys, tmp_path / SEGMENT.replace(".log", ".index"))
    assert code == 1
    assert reason in of_kind(lines, "problem")[0]["reason"]


def test_a_torn_index_and_a_broken_snapshot_are_found(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "00000000000000000000.timeindex").write_bytes(bytes(13))
    (tmp_path / "00000000000000000000.txnindex").write_bytes(bytes(35))
    (tmp_path / "00000000000000000000.snapshot").write_bytes(bytes(20))
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n1\nnonsense\n")
    code, lines, _ = dump(capsys, tmp_path)
    assert code == 1
    reasons = {Path(line["file"]).suffix or line["file"]: line["reason"] for line in of_kind(lines, "problem")}
    assert len(reasons) == 4
    assert "13 bytes is not a multiple of 12" in reasons[".timeindex"]


def test_what_is_no_file_of_a_log(tmp_path: Path, capsys: Capture) -> None:
    foreign = tmp_path / "notes.txt"
    foreign.write_text("hello")
    code, _, error = dump(capsys, foreign)
    assert code == 1
    assert "notes.txt' is not a log file" in error
    code, _, error = dump(capsys, tmp_path)
    assert code == 1
    assert "contains no log files" in error
    code, _, error = dump(capsys, tmp_path / SEGMENT)
    assert code == 1
    assert "no such file" in error


def test_a_text_with_the_name_of_a_segment_is_a_problem_not_a_crash(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / SEGMENT).write_text("this is no segment, whatever it is called; but long enough to be taken for one")
    code, lines, _ = dump(capsys, tmp_path / SEGMENT)
    assert code == 1
    assert [line["kind"] for line in lines] == ["problem"]


def test_a_file_that_does_not_exist(tmp_path: Path, capsys: Capture) -> None:
    for name in ("nofile", SEGMENT):
        path = tmp_path / name
        assert run(["log", "dump", str(path)]) == 1
        output = capsys.readouterr()
        assert output.out == ""
        assert output.err == f"Error: {path}: no such file or directory.\n"
