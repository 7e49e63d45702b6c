"""What clients record, and what is made of it when they are killed."""

from __future__ import annotations

from pathlib import Path

from support.cluster.checker import Place
from support.isolation.history import TOMBSTONE, Outcome, Read, Restart, Write
from support.isolation.recording import Recorded, Recorder

A, B = Place("in", 0), Place("out", 1)


def test_transactions_and_their_outcomes(tmp_path: Path) -> None:
    file = tmp_path / "one.events"
    with Recorder(file, 3, "writer") as recorder:
        committed = recorder.begin()
        value = recorder.write(committed, A)
        output = recorder.write(committed, B, value)
        recorder.stored(output, 17)
        recorder.consumed(committed, A, 4, 99)
        recorder.offset(committed, A, 5)
        recorder.ask(committed)
        recorder.end(committed, Outcome.COMMITTED)
        unclear = recorder.begin()
        recorder.ask(unclear)
        never_asked = recorder.begin()
        failed = recorder.begin()
        recorder.ask(failed)
        recorder.end(failed, Outcome.ABORTED)
        recorder.complain("on purpose")
    found = Recorded.of([file])
    one = found.transactions[committed]
    assert one.writes == [Write(A, value), Write(B, output, 17, value)]
    assert [read[:3] for read in one.reads] == [(A, 4, 99)]
    assert (one.producer, one.offsets, one.outcome) == ("writer", {A: 5}, Outcome.COMMITTED)
    assert one.asked_ns is not None
    assert one.ended_ns is not None
    assert one.began_ns <= one.reads[0].at_ns <= one.asked_ns <= one.ended_ns
    outcomes = {number: each.outcome for number, each in found.transactions.items()}
    assert outcomes == {
        committed: Outcome.COMMITTED,
        unclear: Outcome.UNKNOWN,
        never_asked: Outcome.ABORTED,
        failed: Outcome.ABORTED,
    }
    assert found.transactions[unclear].ended_ns is None
    assert found.errors == ["writer: on purpose"]
    assert found.readers == []


def test_what_a_reader_saw(tmp_path: Path) -> None:
    file = tmp_path / "one.events"
    with Recorder(file, 1, "reader") as recorder:
        recorder.read(A, 0, 5, 10)
        recorder.restart(A, 0)
        recorder.read(A, 0, 5, 20)
    (reader,) = Recorded.of([file]).readers
    assert reader.name == "reader"
    assert reader.events == [Read(A, 0, 5, 10), Restart(A, 0), Read(A, 0, 5, 20)]


def test_a_prepared_transaction_that_another_process_completes(tmp_path: Path) -> None:
    """Whichever file is read first."""
    with Recorder(tmp_path / "b.events", 1, "preparer") as recorder:
        own, other, undecided = recorder.begin(), recorder.begin(), recorder.begin()
        for number in (own, other, undecided):
            recorder.prepared(number)
            recorder.ask(number)
        recorder.end(own, Outcome.COMMITTED)
    with Recorder(tmp_path / "a.events", 2, "preparer") as recorder:
        recorder.end(other, Outcome.COMMITTED)
    found = Recorded.of(sorted(tmp_path.glob("*.events"))).transactions
    assert all(one.is_prepared for one in found.values())
    assert {number: (one.outcome, one.ended_by_other) for number, one in found.items()} == {
        own: (Outcome.COMMITTED, False),
        other: (Outcome.COMMITTED, True),
        undecided: (Outcome.UNKNOWN, False),
    }


def test_tombstones_are_known_by_their_offsets(tmp_path: Path) -> None:
    with Recorder(tmp_path / "one.events", 1, "writer") as recorder:
        number = recorder.begin()
        gone, kept = (recorder.write(number, A, key=7, is_tombstone=is_tombstone) for is_tombstone in (True, False))
        recorder.stored(gone, 3)
        recorder.stored(kept, 4)
    with Recorder(tmp_path / "two.events", 2, "reader") as recorder:
        recorder.read(A, 3, TOMBSTONE, 10)
        recorder.read(A, 9, TOMBSTONE, 10)
    found = Recorded.of(sorted(tmp_path.glob("*.events")))
    assert found.transactions[number].writes == [
        Write(A, gone, 3, key=7, is_tombstone=True),
        Write(A, kept, 4, key=7),
    ]
    assert found.tombstones == {(A, 3): gone}
    assert found.readers[0].events == [Read(A, 3, gone, 10), Read(A, 9, TOMBSTONE, 10)]


def test_the_last_line_of_a_killed_client_may_be_cut(tmp_path: Path) -> None:
    file = tmp_path / "one.events"
    with Recorder(file, 1, "writer") as recorder:
        number = recorder.begin()
        recorder.ask(number)
        recorder.end(number, Outcome.COMMITTED)
    file.write_text(file.read_text()[:-8])
    assert Recorded.of([file]).transactions[number].outcome is Outcome.UNKNOWN


def test_numbers_of_processes_differ(tmp_path: Path) -> None:
    with Recorder(tmp_path / "one", 1, "a") as one, Recorder(tmp_path / "two", 2, "b") as two:
        assert {one.new_number() for _ in range(100)}.isdisjoint(two.new_number() for _ in range(100))
