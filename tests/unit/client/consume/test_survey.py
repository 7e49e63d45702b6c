"""What the headers of batches tell of an answer."""

from __future__ import annotations

import pytest

from ottla.client.consume import survey as module
from ottla.client.consume.record import NO_TIMESTAMP_TYPE
from ottla.client.consume.survey import survey
from ottla.client.subscriptions.subscription import NO_EPOCH, Position
from ottla.records import (
    BatchLengthError,
    BatchOptions,
    Compression,
    Record,
    TimestampType,
    UnknownMagicError,
    encode_batch,
    encode_transaction_marker,
    iter_records,
)
from ottla.wire.messages.fetch import AbortedTransaction
from unit.client.consume.scripted_log import batch, message

BEGIN = Position(0)


def marker(offset: int, producer_id: int, *, committed: bool) -> bytearray:
    return encode_transaction_marker(
        producer_id=producer_id,
        producer_epoch=0,
        committed=committed,
        coordinator_epoch=0,
        timestamp_ms=1,
        base_offset=offset,
    )


def transactional(first: int, count: int, producer_id: int) -> bytearray:
    return batch(first, count, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def kept(data: bytes, aborted: list[AbortedTransaction]) -> list[int]:
    found = survey(data, BEGIN, aborted)
    assert found.failure is None
    return [record.offset for piece in found.pieces for record in iter_records(piece.data)]


def test_batches_that_agree_are_one_piece() -> None:
    data = bytes(batch(0, 5, leader_epoch=3) + batch(5, 5, leader_epoch=3))
    found = survey(data, BEGIN)
    ((piece_data, next_, timestamp_type, leader_epoch, _),) = found.pieces
    assert bytes(piece_data) == data
    assert next_ == found.next == Position(10, 3)
    assert (timestamp_type, leader_epoch, found.failure) == (0, 3, None)


def test_another_epoch_or_clock_begins_another_piece() -> None:
    batches = [
        batch(0, 5, leader_epoch=3),
        batch(5, 5, leader_epoch=4),
        batch(10, 5, leader_epoch=4, timestamp_type=TimestampType.LOG_APPEND_TIME),
    ]
    found = survey(bytes(b"".join(batches)), BEGIN)
    assert [bytes(piece.data) for piece in found.pieces] == [bytes(one) for one in batches]
    assert [piece[1:4] for piece in found.pieces] == [((5, 3), 0, 3), ((10, 4), 0, 4), ((15, 4), 1, 4)]


def test_pieces_are_not_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [batch(5 * index, 5) for index in range(10)]
    monkeypatch.setattr(module, "PIECE_BYTES", len(batches[-1]) + 1)
    found = survey(bytes(b"".join(batches)), BEGIN)
    assert [piece.next.offset for piece in found.pieces] == [10, 20, 30, 40, 50]


@pytest.mark.parametrize("cut", [1, 20, 60, 70])
def test_what_is_cut_off_is_left_out(cut: int) -> None:
    found = survey(bytes(batch(0, 5) + batch(5, 5)[:cut]), BEGIN)
    assert [piece.next for piece in found.pieces] == [found.next] == [Position(5)]
    assert found.failure is None


def test_nothing_whole_is_no_progress() -> None:
    assert survey(bytes(batch(0, 5)[:-1]), Position(2, 1)) == ([], Position(2, 1), None)


def test_older_magics() -> None:
    data = (
        message(0, magic=0)
        + message(1, magic=0)
        + message(2, magic=1)
        + message(3, magic=1, attributes=8)
        + batch(4, 5, leader_epoch=2)
    )
    found = survey(data, BEGIN)
    assert [piece[1:4] for piece in found.pieces] == [
        ((2, NO_EPOCH), NO_TIMESTAMP_TYPE, NO_EPOCH),
        ((3, NO_EPOCH), 0, NO_EPOCH),
        ((4, NO_EPOCH), 1, NO_EPOCH),
        ((9, 2), 0, 2),
    ]
    assert [record.offset for piece in found.pieces for record in iter_records(piece.data)] == list(range(9))


def test_garbage_is_what_comes_after_the_last_piece() -> None:
    strange = batch(5, 5)
    strange[16] = 7
    short = batch(5, 5)
    short[8:12] = (30).to_bytes(4, "big")
    for garbage, error in ((strange, UnknownMagicError), (short, BatchLengthError)):
        found = survey(bytes(batch(0, 5) + garbage), BEGIN)
        assert [piece.next.offset for piece in found.pieces] == [5]
        assert isinstance(found.failure, error)


def test_a_transaction_is_left_out_from_its_beginning_to_its_abort() -> None:
    data = bytes(
        transactional(0, 2, 1)  # committed
        + marker(2, 1, committed=True)
        + transactional(3, 2, 1)  # aborted
        + transactional(5, 2, 2)  # of another producer
        + batch(7, 2)
        + transactional(9, 1, 1)  # still aborted
        + marker(10, 1, committed=False)
        + transactional(11, 2, 1)  # the next one
        + marker(13, 2, committed=True)
    )
    aborted = [AbortedTransaction(producer_id=1, first_offset=3)]
    assert kept(data, aborted) == [0, 1, 5, 6, 7, 8, 11, 12]
    assert kept(data, []) == [0, 1, 3, 4, 5, 6, 7, 8, 9, 11, 12]


def test_an_answer_of_nothing_but_aborted_records_moves_on() -> None:
    data = bytes(transactional(0, 5, 1))
    found = survey(data, BEGIN, [AbortedTransaction(producer_id=1, first_offset=0)])
    assert found.next.offset == 5
    assert [(bytes(piece.data), piece.next.offset) for piece in found.pieces] == [(b"", 5)]


@pytest.mark.parametrize("compression", list(Compression)[1:])
def test_batches_that_become_much_are_pieces_of_their_own(compression: Compression) -> None:
    """Half a megabyte that becomes a gigabyte is not decoded at once."""
    records = [Record(0, 0, None, bytes(1_000_000)) for _ in range(6)]
    batches = [
        bytes(encode_batch(records, BatchOptions(base_offset=6 * index, compression=compression))) for index in range(5)
    ]
    data = b"".join(batches)
    found = survey(data, BEGIN)
    assert [bytes(piece.data) for piece in found.pieces] == [
        b"".join(batches[:2]),
        b"".join(batches[2:4]),
        batches[4],
    ]
    assert [piece.next.offset for piece in found.pieces] == [12, 24, 30]
    assert all(piece.decoded_bytes <= module.DECODED_BYTES for piece in found.pieces)


@pytest.mark.parametrize("compression", list(Compression)[1:])
def test_broken_compression_is_left_to_those_who_decode(compression: Compression) -> None:
    data = bytearray(batch(0, 5, compression=compression))
    for size in range(61, len(data)):
        cut = bytes(data[:8]) + (size - 12).to_bytes(4, "big") + bytes(data[12:size])
        found = survey(cut, BEGIN)
        assert found.failure is None
        assert found.next.offset == 5
