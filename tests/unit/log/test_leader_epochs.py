from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.disk import Buffer
from ottla.log.checkpoints import EpochEntry
from ottla.log.errors import CorruptCheckpointError
from ottla.log.leader_epochs import LeaderEpochs
from ottla.log.local_disk import LocalDisk

UNDEFINED = (-1, -1)


class CountingDisk(LocalDisk):
    """Counts what it writes, and keeps it in memory; can be told to fail."""

    __slots__ = ("content", "fails", "writes")

    def __init__(self, content: bytes = b"") -> None:
        self.content = content
        self.writes = 0
        self.fails = False

    def read(self, path: Path) -> bytes:
        assert path.name == "leader-epoch-checkpoint"
        return self.content

    def write_atomically(self, path: Path, data: Buffer) -> None:
        if self.fails:
            raise OSError(28, "No space left on device", str(path))
        self.writes += 1
        self.content = bytes(data)


def epochs_of(*entries: tuple[int, int]) -> LeaderEpochs:
    text = "".join(f"{epoch} {offset}\n" for epoch, offset in entries)
    return LeaderEpochs(CountingDisk(f"0\n{len(entries)}\n{text}".encode()), Path("folder"))


def pairs(epochs: LeaderEpochs) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in epochs.entries]


def test_begins_empty_and_survives_reopening(tmp_path: Path) -> None:
    epochs = LeaderEpochs(LocalDisk(), tmp_path)
    assert (pairs(epochs), epochs.latest_epoch, epochs.earliest_entry) == ([], None, None)
    assert epochs.assign(0, 0)
    assert epochs.assign(2, 17)
    # As LeaderEpochFileCache of Apache Kafka 3.9.1 writes it after the same calls.
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n2 17\n"
    again = LeaderEpochs(LocalDisk(), tmp_path)
    assert pairs(again) == [(0, 0), (2, 17)]
    assert (again.latest_epoch, again.earliest_entry) == (2, (0, 0))


def test_only_changes_are_written() -> None:
    disk = CountingDisk()
    epochs = LeaderEpochs(disk, Path("folder"))
    assert epochs.assign(3, 10)
    for offset in range(10, 100):
        assert not epochs.assign(3, offset)
    assert disk.writes == 1
    epochs.truncate_from_end(11)
    epochs.truncate_from_start(9)
    epochs.truncate_from_start(10)
    epochs.flush()
    assert disk.writes == 1
    epochs.truncate_from_start(11)
    assert (disk.writes, disk.content) == (2, b"0\n1\n3 11\n")
    epochs.clear()
    epochs.clear()
    assert (disk.writes, disk.content) == (3, b"0\n0\n")


def test_truncation_can_leave_the_writing_for_later() -> None:
    disk = CountingDisk()
    epochs = LeaderEpochs(disk, Path("folder"))
    epochs.assign(1, 0)
    epochs.assign(2, 5)
    epochs.truncate_from_end(5, write=False)
    assert pairs(epochs) == [(1, 0)]
    assert disk.content == b"0\n2\n1 0\n2 5\n"
    epochs.flush()
    assert disk.content == b"0\n1\n1 0\n"
    assert disk.writes == 3
    epochs.truncate_from_start(3, write=False)
    epochs.assign(2, 7)
    assert disk.content == b"0\n2\n1 3\n2 7\n"
    epochs.flush()
    assert disk.writes == 4


def test_a_write_that_failed_is_done_by_the_next() -> None:
    disk = CountingDisk()
    epochs = LeaderEpochs(disk, Path("folder"))
    disk.fails = True
    with pytest.raises(OSError, match="No space left"):
        epochs.assign(1, 0)
    disk.fails = False
    epochs.flush()
    assert disk.content == b"0\n1\n1 0\n"


def test_follows_its_folder(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    epochs = LeaderEpochs(LocalDisk(), old)
    epochs.assign(1, 0)
    old.rename(new)
    epochs.move_to(new)
    epochs.assign(2, 9)
    assert (new / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n1 0\n2 9\n"
    assert not old.exists()


@pytest.mark.parametrize(("epoch", "offset"), [(-1, 0), (0, -1), (-1, -1)])
def test_negative_numbers_are_refused(epoch: int, offset: int) -> None:
    for epochs in (epochs_of(), epochs_of((5, 5))):
        with pytest.raises(ValueError, match="neither may be negative"):
            epochs.assign(epoch, offset)


def test_a_garbled_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n1\nfirst epoch")
    with pytest.raises(CorruptCheckpointError, match="leader-epoch-checkpoint: line 3 is 'first epoch'"):
        LeaderEpochs(LocalDisk(), tmp_path)


def test_a_file_out_of_order_is_brought_into_order() -> None:
    assert pairs(epochs_of((1, 10), (4, 5), (4, 7), (3, 20), (6, 20))) == [(6, 20)]
    assert pairs(epochs_of((1, 10), (2, 20), (2, 15))) == [(1, 10), (2, 15)]


def test_end_offsets() -> None:
    epochs = epochs_of((2, 10), (4, 20), (7, 30))
    assert epochs.end_offset_for(-1, 99) == UNDEFINED
    assert epochs.end_offset_for(7, 99) == (7, 99)  # the latest goes on to the log's end
    assert epochs.end_offset_for(8, 99) == UNDEFINED  # unknown yet
    assert epochs.end_offset_for(2, 99) == (2, 20)
    assert epochs.end_offset_for(3, 99) == (2, 20)  # no such leader: the one before it
    assert epochs.end_offset_for(4, 99) == (4, 30)
    assert epochs.end_offset_for(6, 99) == (4, 30)
    assert epochs.end_offset_for(1, 99) == (1, 10)  # gone: begin where the log does
    assert epochs.end_offset_for(0, 99) == (0, 10)
    for epoch in (-1, 0, 5):
        assert epochs_of().end_offset_for(epoch, 99) == UNDEFINED


def test_neighbours_and_epochs_of_offsets() -> None:
    epochs = epochs_of((2, 10), (4, 20))
    assert [epochs.epoch_for_offset(offset) for offset in (0, 9, 10, 19, 20, 1000)] == [None, None, 2, 2, 4, 4]
    assert [epochs.previous_epoch(epoch) for epoch in (1, 2, 3, 4, 5)] == [None, None, 2, 2, 4]
    assert [epochs.next_epoch(epoch) for epoch in (1, 2, 3, 4, 5)] == [2, 4, 4, None, None]


def test_a_new_epoch_pushes_out_what_contradicts_it() -> None:
    epochs = epochs_of((2, 10), (4, 20), (7, 30))
    epochs.assign(8, 30)  # the leader before wrote nothing
    assert pairs(epochs) == [(2, 10), (4, 20), (8, 30)]
    epochs.assign(9, 15)  # its log was cut
    assert pairs(epochs) == [(2, 10), (9, 15)]
    epochs.assign(1, 50)  # an unclean election gave the log to an older history
    assert pairs(epochs) == [(1, 50)]
    epochs.assign(1, 40)
    assert pairs(epochs) == [(1, 40)]


def test_truncation_keeps_the_right_boundary() -> None:
    epochs = epochs_of((2, 10), (4, 20), (7, 30))
    epochs.truncate_from_end(31)
    epochs.truncate_from_end(-1)
    assert pairs(epochs) == [(2, 10), (4, 20), (7, 30)]
    epochs.truncate_from_end(30)
    assert pairs(epochs) == [(2, 10), (4, 20)]
    epochs.truncate_from_start(9)
    assert pairs(epochs) == [(2, 10), (4, 20)]
    epochs.truncate_from_start(15)
    assert pairs(epochs) == [(2, 15), (4, 20)]
    epochs.truncate_from_start(20)
    assert pairs(epochs) == [(4, 20)]
    epochs.truncate_from_start(99)
    assert pairs(epochs) == [(4, 99)]
    epochs.truncate_from_end(99)
    assert pairs(epochs) == []
    assert epochs.latest_epoch is None


# Against a plain list in which every record of the log has the epoch that wrote it.


class ListModel:
    """A log as the epoch of each of its records, from `start` on."""

    def __init__(self) -> None:
        self.start = 0
        self.records: list[int] = []

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    def entries(self) -> list[EpochEntry]:
        found: list[EpochEntry] = []
        for offset, epoch in enumerate(self.records, self.start):
            if not found or found[-1].epoch != epoch:
                found.append(EpochEntry(epoch, offset))
        return found

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        known = sorted(set(self.records))
        if epoch == -1 or not known or epoch > known[-1]:
            return UNDEFINED
        at_most = [candidate for candidate in known if candidate <= epoch]
        answer = at_most[-1] if at_most else epoch
        above = [offset for offset, writer in enumerate(self.records, self.start) if writer > epoch]
        return answer, above[0] if above else self.end


steps = st.lists(
    st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 4))
    | st.tuples(st.just("end"), st.integers(0, 40), st.just(0))
    | st.tuples(st.just("start"), st.integers(0, 40), st.just(0)),
    max_size=25,
)


@settings(deadline=None)
@given(steps)
def test_a_list_of_records_tells_the_same(steps: list[tuple[str, int, int]]) -> None:
    disk, model, epoch = CountingDisk(), ListModel(), 0
    epochs = LeaderEpochs(disk, Path("folder"))
    for step, number, count in steps:
        if step == "append":
            epoch += number
            for offset in range(model.end, model.end + count):
                epochs.assign(epoch, offset)
            model.records += [epoch] * count
        elif step == "end" and model.start <= number <= model.end:
            del model.records[number - model.start :]
            epochs.truncate_from_end(number)
        elif step == "start" and model.start <= number < model.end:
            del model.records[: number - model.start]
            model.start = number
            epochs.truncate_from_start(number)
        assert list(epochs.entries) == model.entries()
        assert LeaderEpochs(disk, Path("folder")).entries == epochs.entries
    for asked in range(-1, epoch + 3):
        assert epochs.end_offset_for(asked, model.end) == model.end_offset_for(asked)
    for offset, writer in enumerate(model.records, model.start):
        assert epochs.epoch_for_offset(offset) == writer


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 30)), max_size=20))
def test_both_numbers_always_rise(assignments: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs(CountingDisk(), Path("folder"))
    for epoch, offset in assignments:
        epochs.assign(epoch, offset)
        for before, after in zip(epochs.entries, epochs.entries[1:], strict=False):
            assert before.epoch < after.epoch
            assert before.start_offset < after.start_offset
        assert epochs.latest_epoch == epoch
        assert epochs.entries[-1].start_offset <= offset
