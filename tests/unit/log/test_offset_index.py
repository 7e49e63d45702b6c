from __future__ import annotations

import struct
from bisect import bisect_right
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.errors import CorruptIndexError
from ottla.log.local_disk import LocalDisk
from ottla.log.offset_index import OffsetIndex
from ottla.testing.simulated_disk import DiskOperation, SimulatedDisk, Survival
from support.examples import examples

BASE = 5_000_000_000
MAX_BYTES = 1024
FOLDER = Path("/log/t-0")


def index_at(path: Path, max_bytes: int = MAX_BYTES) -> OffsetIndex:
    return OffsetIndex(LocalDisk(), path / "i.index", BASE, max_bytes)


def packed(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def simulated() -> tuple[SimulatedDisk, OffsetIndex]:
    disk = SimulatedDisk(seed=1)
    disk.make_directory(FOLDER)
    disk.sync_all()
    return disk, OffsetIndex(disk, FOLDER / "i.index", BASE, MAX_BYTES)


def test_an_empty_index_leads_to_the_beginning(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    assert index.lookup(BASE + 10) == (BASE, 0)
    assert (index.last_offset, index.last_position, index.entry_count, index.is_full) == (BASE, 0, 0, False)
    assert not list(tmp_path.iterdir())  # to look is not to create


def test_bytes_of_the_file(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    index.append(BASE + 3, 4100)
    index.append(BASE + 2**31 - 1, 2**31 - 1)
    index.close()
    assert (tmp_path / "i.index").read_bytes() == bytes.fromhex("00000003 00001004 7fffffff 7fffffff")


@pytest.mark.parametrize(
    "offsets",
    [
        pytest.param(list(range(0, 2000, 20)), id="even"),
        pytest.param([*range(90), *range(5000, 5010)], id="crowded at the beginning"),
        pytest.param([*range(0, 5000, 500), *range(5000, 5090)], id="crowded at the end"),
        pytest.param([number**2 for number in range(100)], id="ever sparser"),
        pytest.param([*range(100), 2**31 - 1], id="one far away"),
    ],
)
def test_a_guess_never_misleads_a_lookup(tmp_path: Path, offsets: list[int]) -> None:
    index = index_at(tmp_path)
    for number, offset in enumerate(offsets):
        index.append(BASE + offset, number * 5000)
    for target in {near for offset in offsets for near in (offset - 1, offset, offset + 1)}:
        number = bisect_right(offsets, target) - 1
        expected = (offsets[number], number * 5000) if number >= 0 else (0, 0)
        found, position = index.lookup(BASE + target)
        assert (found - BASE, position) == expected


@settings(deadline=None, max_examples=examples(60))
@given(
    entries=st.lists(st.integers(1, 500), unique=True, max_size=40).map(sorted),
    targets=st.lists(st.integers(-2, 510), min_size=1, max_size=20),
    reopened=st.booleans(),
)
def test_lookups_against_a_list(
    entries: list[int], targets: list[int], reopened: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("index")
    index = index_at(path)
    model = [(BASE + offset, offset * 7) for offset in entries]
    for entry in model:
        index.append(*entry)
    if reopened:
        index.close()
        index = index_at(path)
    for target in targets:
        before = [entry for entry in model if entry[0] <= BASE + target]
        assert index.lookup(BASE + target) == (before[-1] if before else (BASE, 0))
        behind = [offset for offset, position in model if position >= target * 7]
        assert index.offset_behind(target * 7) == (behind[0] if behind else None)
    assert (index.last_offset, index.last_position) == (model[-1] if model else (BASE, 0))
    assert index.entry_count == len(model)


@settings(deadline=None, max_examples=examples(60))
@given(
    entries=st.lists(st.integers(1, 60), unique=True, max_size=20).map(sorted),
    cut=st.integers(-2, 62),
    reopened=st.booleans(),
)
def test_truncation_against_a_list(
    entries: list[int], cut: int, reopened: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("index")
    index = index_at(path)
    for offset in entries:
        index.append(BASE + offset, offset)
    if reopened:
        index.close()
        index = index_at(path)
    index.truncate_to(BASE + cut)
    kept = [offset for offset in entries if offset < cut]
    assert index.entry_count == len(kept)
    assert index.last_offset == BASE + (kept[-1] if kept else 0)
    index.append(BASE + 100, 100)
    index.close()
    assert (path / "i.index").read_bytes() == packed(*((offset, offset) for offset in [*kept, 100]))


def test_offsets_must_rise_and_fit(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    with pytest.raises(ValueError, match=r"offset 4999999999 is not within 2\^31"):
        index.append(BASE - 1, 0)
    with pytest.raises(ValueError, match=r"not within 2\^31"):
        index.append(BASE + 2**31, 0)
    index.append(BASE, 10)
    with pytest.raises(ValueError, match="does not come after"):
        index.append(BASE, 20)
    assert index.entry_count == 1


def test_full(tmp_path: Path) -> None:
    index = index_at(tmp_path, max_bytes=23)
    index.append(BASE + 1, 1)
    assert not index.is_full
    index.append(BASE + 2, 2)
    assert index.is_full
    with pytest.raises(ValueError, match="full, with 2 entries"):
        index.append(BASE + 3, 3)
    with pytest.raises(ValueError, match="cannot hold"):
        index_at(tmp_path, max_bytes=7)


@pytest.mark.parametrize("zeros", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_zeros_after_the_last_entry_of_a_killed_broker(tmp_path: Path, count: int, zeros: int) -> None:
    entries = [(n + 1, (n + 1) * 50) for n in range(count)]
    (tmp_path / "i.index").write_bytes(packed(*entries) + bytes(8 * zeros))
    index = index_at(tmp_path)
    assert index.entry_count == count
    assert index.lookup(BASE + 1000) == (BASE + count, count * 50)
    index.check()
    index.append(BASE + 500, 5000)
    index.sync()
    assert (tmp_path / "i.index").read_bytes() == packed(*entries, (500, 5000))


def test_only_zeros(tmp_path: Path) -> None:
    (tmp_path / "i.index").write_bytes(bytes(MAX_BYTES))
    index = index_at(tmp_path)
    assert index.entry_count == 0
    index.trim()
    assert (tmp_path / "i.index").read_bytes() == b""


def test_trim_leaves_a_file_of_the_right_size_alone(tmp_path: Path) -> None:
    (tmp_path / "i.index").write_bytes(packed((1, 1)))
    before = (tmp_path / "i.index").stat().st_mtime_ns
    index = index_at(tmp_path)
    index.trim()
    assert (tmp_path / "i.index").stat().st_mtime_ns == before


@pytest.mark.parametrize(("log_size", "kept"), [(0, 0), (100, 0), (101, 1), (200, 1), (300, 2), (301, 3), (9999, 3)])
def test_entries_beyond_the_log_are_dropped(tmp_path: Path, log_size: int, kept: int) -> None:
    entries = [(1, 100), (2, 200), (3, 300)]
    (tmp_path / "i.index").write_bytes(packed(*entries))
    index = index_at(tmp_path)
    index.drop_beyond(log_size)
    assert index.entry_count == kept
    index.write()
    assert (tmp_path / "i.index").read_bytes() == packed(*entries[:kept])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (packed((1, 1)) + b"xyz", "11 bytes is not a multiple of 8"),
        (packed((-5, 1)), "last entry is offset 4999999995"),
    ],
)
def test_contradictions_are_found(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "i.index").write_bytes(content)
    with pytest.raises(CorruptIndexError, match=reason) as caught:
        index_at(tmp_path).check()
    assert caught.value.path == tmp_path / "i.index"


def refuse(operation: DiskOperation, path: Path) -> None:
    raise AssertionError(f"{operation} of {path} is not needed")


def test_nothing_is_touched_before_it_is_needed() -> None:
    disk, index = simulated()
    disk.before = refuse
    index.write()
    index.sync()
    index.release()


def test_entries_reach_the_file_only_when_asked_for() -> None:
    disk, index = simulated()
    disk.open(index.path, create=True).close()
    index.append(BASE + 1, 1)
    assert disk.read(index.path) == b""
    index.write()
    index.append(BASE + 2, 2)
    assert disk.read(index.path) == packed((1, 1))
    index.release()
    assert disk.read(index.path) == packed((1, 1), (2, 2))
    assert index.lookup(BASE + 9) == (BASE + 2, 2)


def test_synced_once() -> None:
    disk, index = simulated()
    index.append(BASE + 1, 1)
    index.release()
    index.sync()
    disk.sync_directory(FOLDER)
    disk.before = refuse
    index.sync()
    disk.before = None
    disk.crash(Survival.NOTHING)
    disk.restart()
    assert disk.read(index.path) == packed((1, 1))


def test_a_write_that_failed_is_made_good() -> None:
    disk, index = simulated()
    for offset in range(1, 9):
        index.append(BASE + offset, offset)
    disk.fail(when=DiskOperation.APPEND)
    with pytest.raises(OSError, match=r"i\.index"):
        index.write()
    index.append(BASE + 9, 9)
    index.write()
    assert disk.read(index.path) == packed(*((offset, offset) for offset in range(1, 10)))


def test_rename_and_delete(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    index.append(BASE + 1, 1)
    index.write()
    index.append(BASE + 2, 2)
    index.rename(tmp_path / "i.index.deleted")
    index.close()
    assert (tmp_path / "i.index.deleted").read_bytes() == packed((1, 1), (2, 2))
    assert [path.name for path in tmp_path.iterdir()] == ["i.index.deleted"]
    with pytest.raises(FileNotFoundError):
        index.rename(tmp_path / "absent" / "i.index")
    index.path = tmp_path / "i.index.deleted"
    index.delete()
    assert not list(tmp_path.iterdir())
    index.rename(tmp_path / "other")  # what is not there needs no other name
    assert index.path == tmp_path / "other"


def test_clear(tmp_path: Path) -> None:
    (tmp_path / "i.index").write_bytes(packed((1, 1), (2, 2)))
    index = index_at(tmp_path)
    index.clear()
    assert (index.entry_count, index.last_offset) == (0, BASE)
    index.close()
    assert (tmp_path / "i.index").read_bytes() == b""


def test_abandoned_entries_are_not_written(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    index.append(BASE + 1, 1)
    index.abandon()
    index.close()
    assert not list(tmp_path.iterdir())
