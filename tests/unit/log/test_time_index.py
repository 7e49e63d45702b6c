from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.errors import CorruptIndexError
from ottla.log.local_disk import LocalDisk
from ottla.log.time_index import TimeIndex
from support.examples import examples

BASE = 5_000_000_000
NOTHING = (-1, BASE)


def index_at(path: Path, max_bytes: int = 1200) -> TimeIndex:
    return TimeIndex(LocalDisk(), path / "i.timeindex", BASE, max_bytes)


def packed(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


def test_an_empty_index_has_no_timestamp(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    assert index.lookup(10**15) == NOTHING
    assert index.last_entry == NOTHING
    assert index.entry_count == 0
    assert not list(tmp_path.iterdir())


def test_bytes_of_the_file(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    index.maybe_append(1_700_000_000_000, BASE + 3)
    index.maybe_append(2**63 - 1, BASE + 2**31 - 1)
    index.close()
    assert (tmp_path / "i.timeindex").read_bytes() == bytes.fromhex(
        "0000018bcfe56800 00000003 7fffffffffffffff 7fffffff"
    )


@settings(deadline=None, max_examples=examples(60))
@given(
    steps=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=30),
    targets=st.lists(st.integers(-3, 280), min_size=1, max_size=20),
    reopened=st.booleans(),
)
def test_lookups_against_a_list(
    steps: list[tuple[int, int]], targets: list[int], reopened: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("index")
    index = index_at(path)
    model: list[tuple[int, int]] = []
    timestamp_ms, offset = -1, BASE
    for later, further in steps:
        timestamp_ms, offset = timestamp_ms + later, offset + further
        index.maybe_append(timestamp_ms, offset)
        model.append((timestamp_ms, offset))
    if reopened:
        index.close()
        index = index_at(path)
    for target in targets:
        before = [entry for entry in model if entry[0] <= target]
        assert index.lookup(target) == (before[-1] if before else NOTHING)
    assert index.last_entry == (model[-1] if model else NOTHING)
    cut = BASE + targets[0]
    index.truncate_to(cut)
    kept = [entry for entry in model if entry[1] < cut]
    assert index.entry_count == len(kept)
    assert index.last_entry == (kept[-1] if kept else NOTHING)
    index.close()
    written = path / "i.timeindex"
    assert (written.read_bytes() if written.exists() else b"") == packed(*((ms, at - BASE) for ms, at in kept))


def test_only_what_is_newer_becomes_an_entry(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    index.maybe_append(-1, BASE + 1)  # records without a timestamp
    assert index.entry_count == 0
    index.maybe_append(0, BASE + 2)
    index.maybe_append(100, BASE + 5)
    index.maybe_append(100, BASE + 9)
    index.maybe_append(100, BASE + 5)
    assert index.entry_count == 2
    assert index.last_entry == (100, BASE + 5)


def test_an_older_entry_is_an_error(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    index.maybe_append(100, BASE + 5)
    with pytest.raises(ValueError, match="timestamp 99 at offset 5000000006 comes before 100"):
        index.maybe_append(99, BASE + 6)
    with pytest.raises(ValueError, match="comes before"):
        index.maybe_append(101, BASE + 4)
    with pytest.raises(ValueError, match=r"not within 2\^31"):
        index.maybe_append(101, BASE + 2**31)
    assert index.entry_count == 1


def test_the_last_place_is_kept_for_the_end(tmp_path: Path) -> None:
    index = index_at(tmp_path, max_bytes=36)
    index.maybe_append(1, BASE + 1)
    assert not index.is_full
    index.maybe_append(2, BASE + 2)
    assert index.is_full
    with pytest.raises(ValueError, match="full, with 3 entries"):
        index.maybe_append(3, BASE + 3)
    index.maybe_append(3, BASE + 3, even_if_full=True)
    assert index.last_entry == (3, BASE + 3)


def test_zeros_after_the_last_entry_of_a_killed_broker(tmp_path: Path) -> None:
    entries = packed((0, 0), (10, 1), (20, 2))
    (tmp_path / "i.timeindex").write_bytes(entries + bytes(12 * 97))
    index = index_at(tmp_path)
    assert index.last_entry == (20, BASE + 2)
    index.trim()
    assert (tmp_path / "i.timeindex").read_bytes() == entries


def test_a_segment_whose_only_time_is_the_epoch(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    index.maybe_append(0, BASE)
    index.close()
    assert index_at(tmp_path).last_entry == (0, BASE)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (bytes(13), "13 bytes is not a multiple of 12"),
        (packed((50, 1), (40, 2)), "last entry is timestamp 40"),
        (packed((50, 1), (60, -2)), "at offset 4999999998"),
    ],
)
def test_contradictions_are_found(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "i.timeindex").write_bytes(content)
    with pytest.raises(CorruptIndexError, match=reason):
        index_at(tmp_path).check()


def test_a_sound_index_passes(tmp_path: Path) -> None:
    (tmp_path / "i.timeindex").write_bytes(packed((50, 1), (60, 2)))
    index_at(tmp_path).check()
