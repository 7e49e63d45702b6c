from __future__ import annotations

from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.errors import CorruptSnapshotError
from ottla.log.local_disk import LocalDisk
from ottla.log.producer_snapshot import ProducerRow, SnapshotFiles, decode_snapshot, encode_snapshot
from support.examples import examples

PATH = Path("folder/00000000000000001045.snapshot")

# Written by ProducerStateManager.writeSnapshot of Apache Kafka 3.9.1: three producers, and none.
OF_KAFKA = bytes.fromhex(
    "0001c04372280000000300000000000000070003000000290000000000000411000000090000018bcfe5687bffffffffffffffffffffffff"
    "00000000000003e80000000000020000000000000414000000020000018bcfe569c80000000500000000000004124000000000000000"
    "7fffffffffffffffffffffffffff000000000000018bcfe56b150000000cffffffffffffffff"
)
EMPTY_OF_KAFKA = bytes.fromhex("000148674bc700000000")

ROWS = [
    ProducerRow(7, 3, 41, 1041, 9, 1_700_000_000_123, -1, -1),
    ProducerRow(1000, 0, 2, 1044, 2, 1_700_000_000_456, 5, 1042),
    ProducerRow(2**62, 32767, -1, -1, 0, 1_700_000_000_789, 12, -1),
]


def test_kafkas_bytes() -> None:
    assert encode_snapshot(ROWS) == OF_KAFKA
    assert decode_snapshot(PATH, OF_KAFKA) == ROWS
    assert encode_snapshot([]) == EMPTY_OF_KAFKA
    assert decode_snapshot(PATH, EMPTY_OF_KAFKA) == []


rows = st.builds(
    ProducerRow,
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**15 - 1),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**63 - 1),
    st.integers(0, 2**31 - 1),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**63 - 1),
)


@settings(deadline=None)
@given(st.lists(rows, max_size=20))
def test_rows_come_back(rows: list[ProducerRow]) -> None:
    assert decode_snapshot(PATH, encode_snapshot(rows)) == rows


@settings(deadline=None, max_examples=examples(80))
@given(st.integers(0, len(OF_KAFKA) * 8 - 1))
def test_every_flipped_bit_is_found(bit: int) -> None:
    damaged = bytearray(OF_KAFKA)
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptSnapshotError, match=PATH.name):
        decode_snapshot(PATH, bytes(damaged))


@pytest.mark.parametrize("size", range(len(OF_KAFKA)))
def test_every_cut_is_found(size: int) -> None:
    with pytest.raises(CorruptSnapshotError, match=PATH.name):
        decode_snapshot(PATH, OF_KAFKA[:size])


def with_crc(content: bytes, version: int = 1) -> bytes:
    return version.to_bytes(2, "big") + crc32c(content).to_bytes(4, "big") + content


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "0 bytes are too few"),
        (with_crc(bytes(4), version=2), "version 2 of a snapshot is not known, only 1"),
        (bytes(64), "version 0 of a snapshot is not known"),
        (with_crc(b"\xff\xff\xff\xff"), "it promises -1 producers"),
        (with_crc(b"\x00\x00\x00\x02" + bytes(46)), "it promises 2 producers, which 56 bytes do not hold"),
        (OF_KAFKA + b"\x00", "its CRC is 0xc0437228"),
    ],
)
def test_unreadable_snapshots_name_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptSnapshotError) as corrupt:
        decode_snapshot(PATH, data)
    assert str(corrupt.value).startswith(f"{PATH}: {reason}")


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def snapshots_at(folder: Path, *offsets: int) -> SnapshotFiles:
    files = SnapshotFiles(LocalDisk(), folder)
    for offset in offsets:
        files.write(offset, [], sync=False)
    return files


def test_files_are_found_by_their_names(tmp_path: Path) -> None:
    for name in (
        "00000000000000000100.snapshot",
        "00000000000000000020.snapshot",
        "00000000000000000020.snapshot.deleted",
        "00000000000000000030.snapshot.tmp",
        "00000000000000000020.log",
        "notes.snapshot",
    ):
        (tmp_path / name).touch()
    files = SnapshotFiles(LocalDisk(), tmp_path)
    assert (files.offsets, files.oldest, files.latest) == ((20, 100), 20, 100)


@pytest.mark.parametrize("sync", [False, True])
def test_write_and_read(tmp_path: Path, sync: bool) -> None:
    files = SnapshotFiles(LocalDisk(), tmp_path)
    assert (files.offsets, files.oldest, files.latest) == ((), None, None)
    path = files.write(1045, ROWS, sync=sync)
    assert path == tmp_path / "00000000000000001045.snapshot"
    assert path.read_bytes() == OF_KAFKA
    files.write(9, [], sync=sync)
    files.write(1045, [], sync=sync)  # shorter than before: nothing of the old one may stay
    assert files.offsets == (9, 1045)
    assert files.read(1045) == []
    assert files_in(tmp_path) == ["00000000000000000009.snapshot", "00000000000000001045.snapshot"]


def test_remove(tmp_path: Path) -> None:
    files = snapshots_at(tmp_path, 5, 10, 15, 20)
    files.remove(10)
    files.remove(11)
    (tmp_path / "00000000000000000015.snapshot").unlink()
    files.remove(15)
    assert files.offsets == (5, 20)
    assert files_in(tmp_path) == ["00000000000000000005.snapshot", "00000000000000000020.snapshot"]


def test_remove_before_keeps_the_one_at_the_offset(tmp_path: Path) -> None:
    files = snapshots_at(tmp_path, 5, 10, 15)
    files.remove_before(10)
    assert files.offsets == (10, 15)
    files.remove_before(16)
    assert files_in(tmp_path) == []
    assert files.latest is None


@pytest.mark.parametrize(
    ("bases", "left"),
    [
        ([5, 10], (5, 10, 40)),  # the last one was written at the end of the log, by a clean stop
        ([5, 10, 50], (5, 10)),  # it is not behind the last segment
        ([20], (20, 40)),
        ([], (40,)),
        ([5, 10, 20, 40], (5, 10, 20, 40)),
        ([40], (40,)),
    ],
)
def test_strays(tmp_path: Path, bases: list[int], left: tuple[int, ...]) -> None:
    files = snapshots_at(tmp_path, 5, 10, 20, 40)
    files.remove_strays(bases)
    assert files.offsets == left
    assert len(files_in(tmp_path)) == len(left)


def test_mark_deleted(tmp_path: Path) -> None:
    files = snapshots_at(tmp_path, 5, 10)
    assert files.mark_deleted(5) == tmp_path / "00000000000000000005.snapshot.deleted"
    assert files.mark_deleted(5) is None
    assert files_in(tmp_path) == ["00000000000000000005.snapshot.deleted", "00000000000000000010.snapshot"]
    (tmp_path / "00000000000000000010.snapshot").unlink()
    assert files.mark_deleted(10) is None
    assert files.offsets == ()
