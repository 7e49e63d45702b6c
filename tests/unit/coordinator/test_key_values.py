"""Batches of coordinators beside those of the plain codec."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.key_values import KeyValue, TransactionProducer, encode_key_values, iter_key_values
from ottla.records import (
    BatchOptions,
    BatchView,
    Compression,
    CorruptBatchError,
    Record,
    RecordError,
    TimestampType,
    TransactionMarker,
    encode_batch,
    encode_transaction_marker,
)
from ottla.records.layout import NO_LEADER_EPOCH

NOW_MS = 1_700_000_000_000
sizes = st.sampled_from([0, 1, 5, 63, 64, 200, 8191, 8192])
values = st.one_of(st.none(), sizes.map(lambda size: b"v" * size))
few = st.lists(st.builds(KeyValue, sizes.map(lambda size: b"k" * size), values), min_size=1, max_size=4)
many = st.integers(1, 200).map(lambda count: [KeyValue(b"%d" % number, b"v") for number in range(count)])
pairs = few | many


def encoded(records: list[KeyValue], producer: TransactionProducer | None = None) -> bytes:
    return encode_key_values(records, NOW_MS, producer).placed(0, NO_LEADER_EPOCH)


@given(pairs, st.one_of(st.none(), st.just(TransactionProducer(2**40, 7))))
def test_the_bytes_are_those_of_the_plain_codec(records: list[KeyValue], producer: TransactionProducer | None) -> None:
    options = BatchOptions()
    if producer is not None:
        options = BatchOptions(
            producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, transactional=True
        )
    plain = encode_batch([Record(n, NOW_MS, *each) for n, each in enumerate(records)], options)
    assert encoded(records, producer) == plain


@given(
    pairs,
    st.sampled_from(Compression),
    st.sampled_from(TimestampType),
    st.lists(st.integers(-70_000, 70_000), max_size=4),
)
def test_records_are_read_as_they_were_written(
    records: list[KeyValue], compression: Compression, timestamp_type: TimestampType, delays: list[int]
) -> None:
    times = [NOW_MS + delay for delay in [*delays, *[0] * len(records)]]
    written = [Record(40 + 3 * n, times[n], *each) for n, each in enumerate(records)]
    options = BatchOptions(base_offset=40, compression=compression, timestamp_type=timestamp_type)
    batch = encode_batch(written, options, keep_offsets=True)
    stamp = BatchView(batch).header.max_timestamp_ms
    ((header, found),) = iter_key_values(bytes(batch))
    assert header.base_offset == 40
    assert found == [
        (each.offset, stamp if timestamp_type is TimestampType.LOG_APPEND_TIME else each.timestamp_ms, *each[2:4])
        for each in written
    ]


def test_records_with_headers_and_without_keys_are_read() -> None:
    written = [Record(0, NOW_MS, None, b"v"), Record(1, NOW_MS, b"k", b"v", (("h", b"x"),))]
    ((_, found),) = iter_key_values(bytes(encode_batch(written)))
    assert found == [(0, NOW_MS, None, b"v"), (1, NOW_MS, b"k", b"v")]


def test_batches_follow_each_other_and_a_piece_of_one_is_left_for_later() -> None:
    batch = encoded([KeyValue(b"k", b"v")])
    marker = bytes(
        encode_transaction_marker(
            producer_id=5, producer_epoch=1, committed=True, coordinator_epoch=2, timestamp_ms=NOW_MS
        )
    )
    for cut in (0, 1, 12, len(batch) - 1):
        read = [found for _, found in iter_key_values(batch + marker + batch + batch[:cut])]
        assert len(read) == 3
        assert read[0] == read[2] == [(0, NOW_MS, b"k", b"v")]
        assert isinstance(read[1], TransactionMarker)
        assert (read[1].producer_id, read[1].committed) == (5, True)


def test_a_changed_byte_is_seen() -> None:
    batch = encoded([KeyValue(b"key", b"value")])
    for at in range(21, len(batch)):  # what the CRC covers
        broken = bytearray(batch)
        broken[at] ^= 0x01
        with pytest.raises(CorruptBatchError):
            list(iter_key_values(bytes(broken)))


@given(st.data())
def test_records_that_lie_about_their_lengths_are_errors(data: st.DataObject) -> None:
    batch = bytearray(encoded([KeyValue(b"key", b"value"), KeyValue(b"other", None)]))
    at = data.draw(st.integers(61, len(batch) - 1))
    batch[at] = data.draw(st.integers(0, 255).filter(lambda byte: byte != batch[at]))
    BatchView(batch).refresh_crc()
    try:
        ((_, found),) = iter_key_values(bytes(batch))
    except RecordError:
        return
    assert isinstance(found, list)
    assert len(found) == 2
