from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.errors import CorruptIndexError
from ottla.log.local_disk import LocalDisk
from ottla.log.transaction_index import AbortedTransaction, TransactionIndex
from ottla.testing.simulated_disk import DiskOperation, SimulatedDisk
from support.examples import examples

BASE = 100
FOLDER = Path("/log/t-0")


def index_at(path: Path, base_offset: int = BASE) -> TransactionIndex:
    return TransactionIndex(LocalDisk(), path / "i.txnindex", base_offset)


def filled(path: Path, *transactions: AbortedTransaction) -> TransactionIndex:
    index = index_at(path)
    for transaction in transactions:
        index.append(transaction)
    return index


FIRST = AbortedTransaction(producer_id=7, first_offset=90, last_offset=110, last_stable_offset=105)
SECOND = AbortedTransaction(producer_id=8, first_offset=105, last_offset=120, last_stable_offset=121)
THIRD = AbortedTransaction(producer_id=7, first_offset=130, last_offset=140, last_stable_offset=141)


def test_no_file_before_the_first_abort(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    assert index.all() == []
    assert index.collect(0, 1000) == ([], False)
    index.check()
    index.truncate_to(0)
    index.clear()
    index.sync()
    index.rename(tmp_path / "i.txnindex.deleted")
    index.close()
    assert not list(tmp_path.iterdir())


def test_bytes_of_the_file(tmp_path: Path) -> None:
    filled(tmp_path, FIRST).close()
    assert (tmp_path / "i.txnindex").read_bytes() == bytes.fromhex(
        "0000 0000000000000007 000000000000005a 000000000000006e 0000000000000069"
    )


def test_reopened(tmp_path: Path) -> None:
    filled(tmp_path, FIRST, SECOND).close()
    index = index_at(tmp_path)
    assert index.all() == [FIRST, SECOND]
    index.append(THIRD)
    assert index_at(tmp_path).all() == [FIRST, SECOND, THIRD]


@pytest.mark.parametrize(
    ("fetch", "upper", "found", "complete"),
    [
        (100, 150, [FIRST, SECOND, THIRD], False),
        (100, 141, [FIRST, SECOND, THIRD], True),
        (111, 121, [SECOND], True),
        (111, 122, [SECOND], True),
        (121, 130, [], True),
        (121, 131, [THIRD], True),
        (141, 141, [], True),
        (141, 200, [], False),
        (0, 91, [FIRST], True),
        (0, 90, [], True),
    ],
)
def test_collecting(tmp_path: Path, fetch: int, upper: int, found: list[AbortedTransaction], complete: bool) -> None:
    assert filled(tmp_path, FIRST, SECOND, THIRD).collect(fetch, upper) == (found, complete)


@st.composite
def histories(draw: st.DrawFn) -> list[AbortedTransaction]:
    """Aborts as a log makes them: markers in order, the last stable offset before the oldest open transaction."""
    transactions = []
    last_offset, last_stable_offset = BASE, 0
    for _ in range(draw(st.integers(0, 12))):
        last_offset += draw(st.integers(1, 9))
        first_offset = draw(st.integers(0, last_offset - 1))
        last_stable_offset = draw(st.integers(last_stable_offset, last_offset + 1))
        transactions.append(AbortedTransaction(1, first_offset, last_offset, last_stable_offset))
    return transactions


@settings(deadline=None, max_examples=examples(40))
@given(transactions=histories(), fetch=st.integers(90, 220), size=st.integers(0, 60), cut=st.integers(90, 220))
def test_against_a_walk_through_all(
    transactions: list[AbortedTransaction],
    fetch: int,
    size: int,
    cut: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    index = filled(tmp_path_factory.mktemp("index"), *transactions)
    upper = fetch + size
    expected, complete = [], False
    for transaction in transactions:
        if transaction.last_offset >= fetch and transaction.first_offset < upper:
            expected.append(transaction)
        if transaction.last_stable_offset >= upper:
            complete = True
            break
    assert index.collect(fetch, upper) == (expected, complete)
    index.truncate_to(cut)
    kept = [transaction for transaction in transactions if transaction.last_offset < cut]
    assert index.all() == kept
    index.release()
    assert index.all() == kept


def test_markers_come_in_order(tmp_path: Path) -> None:
    index = filled(tmp_path, SECOND)
    with pytest.raises(ValueError, match="offset 110 does not come after 120"):
        index.append(FIRST)
    with pytest.raises(ValueError, match="offset 120 does not come after 120"):
        index.append(SECOND)
    index.truncate_to(120)
    index.append(FIRST)
    assert index_at(tmp_path).all() == [FIRST]


def test_a_torn_entry_at_the_end_is_none(tmp_path: Path) -> None:
    filled(tmp_path, FIRST, SECOND)
    path = tmp_path / "i.txnindex"
    path.write_bytes(path.read_bytes()[:-1])
    index = index_at(tmp_path)
    with pytest.raises(CorruptIndexError, match="67 bytes is not a multiple of 34"):
        index.check()
    assert index.all() == [FIRST]
    index.append(THIRD)
    assert index_at(tmp_path).all() == [FIRST, THIRD]


def test_a_version_of_the_future(tmp_path: Path) -> None:
    (tmp_path / "i.txnindex").write_bytes(struct.pack(">hqqqq", 1, 7, 90, 110, 105))
    index = index_at(tmp_path)
    with pytest.raises(CorruptIndexError, match="entry 0 has version 1"):
        index.check()
    with pytest.raises(CorruptIndexError, match="version 1"):
        index.collect(0, 1000)


def test_entries_of_another_segment(tmp_path: Path) -> None:
    filled(tmp_path, FIRST)
    with pytest.raises(CorruptIndexError, match="entry 0 ends at offset 110, which does not come after 110"):
        index_at(tmp_path, base_offset=111).check()
    index_at(tmp_path, base_offset=110).check()


def test_entries_out_of_order(tmp_path: Path) -> None:
    filled(tmp_path, FIRST, SECOND)
    path = tmp_path / "i.txnindex"
    data = path.read_bytes()
    path.write_bytes(data[34:] + data[:34])
    with pytest.raises(CorruptIndexError, match="entry 1 ends at offset 110, which does not come after 120"):
        index_at(tmp_path).check()


def test_rename_clear_and_delete(tmp_path: Path) -> None:
    index = filled(tmp_path, FIRST)
    index.rename(tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
    index.append(SECOND)
    index.clear()
    assert index.all() == []
    assert (tmp_path / "other").read_bytes() == b""
    index.delete()
    assert not list(tmp_path.iterdir())


def test_synced_entries_survive() -> None:
    disk = SimulatedDisk(seed=3)
    disk.make_directory(FOLDER)
    disk.sync_all()
    index = TransactionIndex(disk, FOLDER / "i.txnindex", BASE)
    index.append(FIRST)
    assert index.is_new
    index.sync()
    disk.sync_directory(FOLDER)
    index.append(SECOND)
    disk.restart()
    assert TransactionIndex(disk, FOLDER / "i.txnindex", BASE).all()[:1] == [FIRST]


def test_an_append_that_failed_left_nothing() -> None:
    for seed in range(20):
        disk = SimulatedDisk(seed)
        disk.make_directory(FOLDER)
        index = TransactionIndex(disk, FOLDER / "i.txnindex", BASE)
        index.append(FIRST)
        disk.fail(when=DiskOperation.APPEND)
        with pytest.raises(OSError, match=r"i\.txnindex"):
            index.append(SECOND)
        assert index.all() == [FIRST]
        index.append(THIRD)
        assert TransactionIndex(disk, index.path, BASE).all() == [FIRST, THIRD]
