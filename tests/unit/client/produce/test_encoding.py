"""Batches in bytes, by both codecs, and in halves."""

from __future__ import annotations

import pytest

from ottla.base.ids import ZERO_UUID, TopicPartition
from ottla.client.callbacks import Callbacks
from ottla.client.metadata import PartitionInfo, TopicInfo
from ottla.client.produce import batch as batch_module
from ottla.client.produce import compiled
from ottla.client.produce.accumulator import Accumulator
from ottla.client.produce.batch import Batch
from ottla.client.produce.encoding import Encoder, halves, sign
from ottla.client.produce.queues import PartitionQueue
from ottla.client.transactions.identity import Identity
from ottla.records import BatchView, Header, Record, decode_batch, read_header
from ottla.records.header_sections import header_section
from unit.client.produce.scripted_log import config

ROWS: list[tuple[bytes | None, bytes | None, tuple[Header, ...], int]] = [
    (
        b"%d" % index if index % 5 else None,
        b"key %d" % index if index % 3 == 0 else None,
        (("h", b"%d" % index), ("h", None)) if index % 4 == 0 else (),
        1000 + index // 7,
    )
    for index in range(200)
]


def batch_of(rows: list[tuple[bytes | None, bytes | None, tuple[Header, ...], int]]) -> Batch:
    queue = PartitionQueue(
        Accumulator(config(), lambda: None, Callbacks(takes_coroutines=False)),
        TopicPartition("events", 0),
    )
    batch = Batch(queue, 100_000, 0.0, 0.0)
    for value, key, headers, time_ms in rows:
        section = header_section(headers) if headers else None
        batch.widen()
        assert batch.append(value, key, section, time_ms, 1) is not None
    batch.close()
    return batch


@pytest.mark.parametrize("count", [1, 3, 4, 63, 64, 200])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_both_codecs_write_the_same_records(monkeypatch: pytest.MonkeyPatch, codec: str, count: int) -> None:
    encoder = Encoder(config(compression_type=codec))
    expected = [Record(index, row[3], row[1], row[0], row[2]) for index, row in enumerate(ROWS[:count])]
    assert compiled.load()
    quickly = encoder.encode(batch_of(ROWS[:count]))
    assert decode_batch(quickly) == expected
    monkeypatch.setattr(compiled, "columns", lambda: None)
    monkeypatch.setattr(compiled.loading, "begin", lambda: None)
    plainly = encoder.encode(batch_of(ROWS[:count]))
    assert decode_batch(plainly) == expected
    if codec == "none":
        assert plainly == quickly


def test_kernels_are_loaded_once_plain_python_has_cost_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    clock = iter([0.0, 0.1, 1.0, 1.1, 2.0, 2.3])
    monkeypatch.setattr("ottla.client.produce.encoding.thread_time", lambda: next(clock))
    monkeypatch.setattr(compiled, "columns", lambda: None)
    monkeypatch.setattr(compiled.loading, "begin", lambda: asked.append(True))
    monkeypatch.setattr(compiled._Spent, "plainly_s", 0.0)
    encoder = Encoder(config())
    for expected in ([], [], [True]):
        encoder.encode(batch_of(ROWS))
        assert asked == expected


def test_hashing_keys_counts_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(compiled, "columns", lambda: None)
    monkeypatch.setattr(compiled.loading, "begin", lambda: asked.append(True))
    monkeypatch.setattr(compiled._Spent, "plainly_s", compiled.LOAD_AFTER_S - 0.003)
    accumulator = Accumulator(config(), lambda: None, Callbacks(takes_coroutines=False))
    topic = accumulator.topic(TopicInfo("events", ZERO_UUID, False, (PartitionInfo(0, 1, 0, (1,), (1,)),)))
    for number in range(2047):
        topic.place(b"%d" % number)
    assert not asked
    topic.place(b"another")
    assert asked


def test_a_batch_is_signed_again_when_its_sequence_changes() -> None:
    batch = batch_of(ROWS)
    batch.encoded = Encoder(config()).encode(batch)
    sign(batch)
    assert read_header(batch.encoded).producer_id == -1
    for identity, sequence in ((Identity(7, 3), 5), (Identity(7, 4), 0)):
        batch.identity, batch.sequence = identity, sequence
        sign(batch)
        header = read_header(batch.encoded)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (*identity, sequence)
        assert len(decode_batch(batch.encoded)) == len(ROWS)


@pytest.mark.parametrize("size", [64 * 1024, 100_001, 1_000_000])
def test_a_large_batch_is_signed_without_being_read_again(size: int) -> None:
    assert compiled.load()
    batch = batch_of([(bytes(size), None, (), 5)])
    batch.encoded = Encoder(config()).encode(batch)
    for identity, sequence in ((Identity(2**40 + 7, 3), 5), (Identity(7, 4), 2**31 - 1), (Identity(7, 5), 0)):
        batch.identity, batch.sequence = identity, sequence
        sign(batch)
        header = BatchView(batch.encoded).validate(verify_crc=True)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (*identity, sequence)


@pytest.mark.parametrize("count", [2, 3, 200])
def test_halves_have_all_records_and_sequences_between_them(count: int) -> None:
    batch = batch_of(ROWS[:count])
    batch.identity, batch.sequence = Identity(7, 0), 2**31 - 1
    encoder = Encoder(config())
    batch.encoded = encoder.encode(batch)
    first, second = halves(batch)
    assert first.count + second.count == count
    assert (first.sequence, second.sequence) == (2**31 - 1, first.count - 1)
    assert first.reserved_bytes + second.reserved_bytes == batch.reserved_bytes
    assert batch.number < first.number < second.number
    rows = [one[1:] for part in (first, second) for one in decode_batch(encoder.encode(part))]
    assert rows == [(row[3], row[1], row[0], row[2]) for row in ROWS[:count]]


def test_what_is_compressed_and_large_is_heavy() -> None:
    large, small = batch_of([]), batch_of([])
    large.reserved_bytes, small.reserved_bytes = 1_000_000, 1000
    assert Encoder(config(compression_type="zstd")).is_heavy(large)
    assert not Encoder(config(compression_type="zstd")).is_heavy(small)
    assert not Encoder(config()).is_heavy(large)


def test_a_millisecond_without_a_record_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch was closed after a thread noted the time of its record, and before the record was in."""
    batch = batch_of([])
    batch.is_closed = False
    delivery = batch.append(b"value", None, None, None, 1)
    assert delivery is not None
    stamp_ms = batch.time_ms_of(0)
    monkeypatch.setattr(batch_module, "time", lambda: stamp_ms / 1000 + 5)
    batch.stamp()
    batch.close()
    assert batch.time_runs() == [(1, stamp_ms)]
    encoded = Encoder(config()).encode(batch)
    assert read_header(encoded).max_timestamp_ms == stamp_ms
    assert [one.timestamp_ms for one in decode_batch(encoded)] == [stamp_ms]
