from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.disk import Buffer
from ottla.log.append_origin import AppendOrigin
from ottla.log.config import LogConfig
from ottla.log.errors import (
    CorruptRecordsError,
    InvalidRecordsError,
    InvalidTimestampError,
    LogError,
    LogRecordTooLargeError,
    NotOneBatchError,
)
from ottla.log.validation import ValidatedBatches, analyse, prepare, validate_and_assign
from ottla.records import BatchView, Compression, RecordError, TimestampType, iter_batches
from ottla.records.layout import ATTRIBUTES_AT, HEADER_SIZE, LAST_OFFSET_DELTA_AT, RECORD_COUNT_AT
from support.examples import examples
from support.logs.batches import NOW_MS, batch, marker, old_message, records_of, values_of

CLIENT, COORDINATOR, REPLICATION = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR, AppendOrigin.REPLICATION


def validate(
    data: Buffer,
    config: LogConfig | None = None,
    *,
    next_offset: int = 100,
    now_ms: int = NOW_MS,
    leader_epoch: int = 7,
    origin: AppendOrigin = CLIENT,
) -> ValidatedBatches:
    """Both ways: as a view of a frame, for which there is a short one, and as it is given. They must agree."""

    def outcome(each: Buffer) -> ValidatedBatches | LogError:
        try:
            return validate_and_assign(
                each,
                next_offset=next_offset,
                now_ms=now_ms,
                config=config if config is not None else LogConfig(),
                leader_epoch=leader_epoch,
                origin=origin,
            )
        except LogError as error:
            return error

    of_view, given = outcome(memoryview(bytearray(data))), outcome(data)
    if isinstance(given, LogError):
        assert (type(of_view), str(of_view)) == (type(given), str(given))
        raise given
    assert not isinstance(of_view, LogError)
    assert bytes(of_view.data) == bytes(given.data)
    assert of_view.info == given.info
    return given


def resealed(data: bytearray, change: Callable[[bytearray], None]) -> bytearray:
    """A batch that lies with a right CRC."""
    change(data)
    BatchView(data).refresh_crc()
    return data


# Offsets and epochs


def test_a_batch_is_given_offsets_and_epoch_where_it_lies() -> None:
    data = batch(3)
    result = validate(data)
    assert result.data is data
    view = BatchView(data)
    view.validate()
    assert (view.base_offset, view.last_offset, view.leader_epoch) == (100, 102, 7)
    info = result.info
    assert (info.first_offset, info.last_offset, info.valid_bytes) == (100, 102, len(data))
    assert (info.max_timestamp_ms, info.offset_of_max_timestamp, info.log_append_time_ms) == (NOW_MS, 102, -1)


def test_a_read_only_buffer_is_copied() -> None:
    original = bytes(batch(2))
    for data in (original, memoryview(original)):
        result = validate(data)
        assert [record.offset for record in records_of(result.data)] == [100, 101]
    assert BatchView(original).base_offset == 0


def test_the_batches_of_a_coordinator_follow_each_other() -> None:
    data = batch(3, timestamp_ms=NOW_MS + 5) + batch(2, timestamp_ms=NOW_MS)
    result = validate(data, origin=COORDINATOR)
    assert [record.offset for record in records_of(result.data)] == [100, 101, 102, 103, 104]
    info = result.info
    assert (info.first_offset, info.last_offset) == (100, 104)
    assert (info.max_timestamp_ms, info.offset_of_max_timestamp) == (NOW_MS + 5, 102)


def test_a_client_sends_one_batch_at_a_time() -> None:
    with pytest.raises(NotOneBatchError, match="bytes follow the batch"):
        validate(batch(1) + batch(1))
    with pytest.raises(NotOneBatchError, match="bytes follow the batch"):
        validate(batch(1) + old_message(1, b"a"))


def test_a_second_batch_is_refused_before_the_crc_of_the_first_is_checked() -> None:
    damaged = batch(1)
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecordsError):
        validate(bytearray(damaged))
    with pytest.raises(NotOneBatchError):
        validate(damaged + batch(1))
    with pytest.raises(LogRecordTooLargeError):
        validate(bytearray(damaged), LogConfig(max_message_bytes=len(damaged) - 1))
    with pytest.raises(CorruptRecordsError):  # a few bytes are no batch
        validate(damaged + batch(1)[:16])


# Timestamps


def test_log_append_time_is_written_over_what_the_producer_said() -> None:
    config = LogConfig(timestamp_type=TimestampType.LOG_APPEND_TIME)
    result = validate(batch(2, timestamp_ms=5), config)
    assert {record.timestamp_ms for record in records_of(result.data)} == {NOW_MS}
    assert (result.info.log_append_time_ms, result.info.max_timestamp_ms) == (NOW_MS, NOW_MS)
    assert BatchView(result.data).timestamp_type is TimestampType.LOG_APPEND_TIME


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("origin", [CLIENT, COORDINATOR])
def test_log_append_time_is_part_of_what_the_crc_covers(codec: Compression, origin: AppendOrigin) -> None:
    config = LogConfig(timestamp_type=TimestampType.LOG_APPEND_TIME)
    result = validate(batch(3, timestamps_ms=[5, NOW_MS * 2, 7], compression=codec), config, origin=origin)
    header = BatchView(result.data).validate()
    assert result.info.headers == (header,)
    assert (header.base_offset, header.leader_epoch, header.max_timestamp_ms) == (100, 7, NOW_MS)


def test_log_append_time_does_not_excuse_broken_records() -> None:
    data = bytearray(batch(3))
    data[-1] = 1  # says that the last record has headers
    BatchView(data).refresh_crc()
    with pytest.raises(InvalidRecordsError):
        validate(data, LogConfig(timestamp_type=TimestampType.LOG_APPEND_TIME))


def test_a_timestamp_may_be_as_far_in_the_future_as_the_topic_says() -> None:
    config = LogConfig(timestamp_after_max_ms=1000)
    validate(batch(1, timestamp_ms=NOW_MS + 1000), config)
    with pytest.raises(InvalidTimestampError, match=r"1001 ms in the future.*after\.max\.ms"):
        validate(batch(1, timestamp_ms=NOW_MS + 1001), config)


def test_a_timestamp_may_be_as_far_in_the_past_as_the_topic_says() -> None:
    config = LogConfig(timestamp_before_max_ms=1000)
    validate(batch(2, timestamps_ms=[NOW_MS - 1000, NOW_MS]), config)
    with pytest.raises(InvalidTimestampError, match=r"1001 ms in the past.*before\.max\.ms"):
        validate(batch(2, timestamps_ms=[NOW_MS, NOW_MS - 1001]), config)


def test_a_record_without_a_timestamp_is_not_too_old() -> None:
    validate(batch(1, timestamp_ms=-1), LogConfig(timestamp_before_max_ms=1000))


def test_the_producers_timestamps_do_not_matter_under_log_append_time() -> None:
    config = LogConfig(
        timestamp_type=TimestampType.LOG_APPEND_TIME, timestamp_after_max_ms=1, timestamp_before_max_ms=1
    )
    validate(batch(2, timestamps_ms=[1, NOW_MS * 2]), config)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_a_claim_to_the_brokers_clock_is_dropped_where_the_topic_keeps_the_producers_time(codec: Compression) -> None:
    times = [NOW_MS, NOW_MS + 5, NOW_MS + 2]
    data = batch(3, timestamps_ms=times, timestamp_type=TimestampType.LOG_APPEND_TIME, compression=codec)
    for config in (LogConfig(), LogConfig(compression=Compression.LZ4)):
        result = validate(bytes(data), config)
        view = BatchView(result.data)
        view.validate()
        assert view.timestamp_type is TimestampType.CREATE_TIME
        assert view.max_timestamp_ms == result.info.max_timestamp_ms == NOW_MS + 5
        assert [record.timestamp_ms for record in records_of(result.data)] == times


def test_a_claim_to_the_brokers_clock_is_refused_where_it_matters() -> None:
    stamped = LogConfig(timestamp_type=TimestampType.LOG_APPEND_TIME)
    for config, time_ms in ((stamped, NOW_MS), (LogConfig(), -1)):
        with pytest.raises(InvalidTimestampError, match="LogAppendTime") as refused:
            validate(batch(2, timestamp_ms=time_ms, timestamp_type=TimestampType.LOG_APPEND_TIME), config)
        assert [fault.record_index for fault in refused.value.faults] == [0, 1]


# Compression


@pytest.mark.parametrize("target", list(Compression))
@pytest.mark.parametrize("source", list(Compression))
def test_batches_are_kept_in_the_topics_codec(source: Compression, target: Compression) -> None:
    values = [b"some words " * 20, None, b"others"]
    data = batch(values, compression=source, producer_id=5, producer_epoch=1, sequence=9, transactional=True)
    result = validate(data, LogConfig(compression=target))
    view = BatchView(result.data)
    header = view.validate()
    assert header.compression is target
    assert values_of(records_of(result.data)) == values
    assert (header.base_offset, header.leader_epoch, header.record_count) == (100, 7, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 9)
    assert header.is_transactional
    assert result.info.valid_bytes == len(result.data)


@pytest.mark.parametrize("codec", list(Compression))
def test_without_a_codec_of_its_own_the_topic_keeps_the_producers(codec: Compression) -> None:
    data = batch([b"words " * 50], compression=codec)
    result = validate(data)
    assert result.data is data
    assert BatchView(result.data).compression is codec


def test_the_level_of_the_codec_is_the_topics() -> None:
    values = [bytes((index * index * 7 + index // 3) % 251 for index in range(20_000))]
    quick = validate(batch(values), LogConfig(compression=Compression.GZIP, compression_level=1))
    thorough = validate(batch(values), LogConfig(compression=Compression.GZIP, compression_level=9))
    assert len(thorough.data) < len(quick.data)


def test_markers_are_not_compressed() -> None:
    data = marker(5, committed=True)
    result = validate(data, LogConfig(compression=Compression.GZIP), origin=COORDINATOR)
    assert BatchView(result.data).compression is Compression.NONE


def test_a_batch_that_outgrows_the_limit_when_it_is_decompressed_is_refused() -> None:
    data = batch([bytes(5000)], compression=Compression.GZIP)
    config = LogConfig(compression=Compression.NONE, max_message_bytes=1000)
    with pytest.raises(LogRecordTooLargeError, match=r"max\.message\.bytes"):
        validate(data, config)


def test_a_payload_that_cannot_be_decompressed_is_invalid() -> None:
    data = batch([b"words"], compression=Compression.GZIP)
    data[-12:-8] = bytes(4)
    BatchView(data).refresh_crc()
    for config in (LogConfig(), LogConfig(compression=Compression.NONE), LogConfig(compacts=True)):
        with pytest.raises(InvalidRecordsError, match="gzip"):
            validate(bytes(data), config)


# Old formats


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("bounded", [False, True])
def test_old_messages_are_refused(magic: int, bounded: bool) -> None:
    with pytest.raises(NotOneBatchError, match=f"old format {magic}"):
        prepare(old_message(magic, b"a"), now_ms=NOW_MS, config=LogConfig(), bounded=bounded)


# Keys


@pytest.mark.parametrize("codec", list(Compression))
def test_on_a_compacted_topic_every_record_needs_a_key(codec: Compression) -> None:
    config = LogConfig(compacts=True)
    validate(batch(3, compression=codec), config)
    validate(batch(3, key=b"", compression=codec), config)
    with pytest.raises(InvalidRecordsError, match="record 0 has no key") as caught:
        validate(batch(3, key=None, compression=codec), config)
    assert [fault.record_index for fault in caught.value.faults] == [0, 1, 2]


def test_without_compaction_no_key_is_needed() -> None:
    validate(batch(3, key=None))


# What is refused


def test_a_batch_may_be_as_large_as_the_topic_says() -> None:
    data = batch([bytes(500)])
    validate(bytes(data), LogConfig(max_message_bytes=len(data)))
    with pytest.raises(LogRecordTooLargeError, match=rf"{len(data)} bytes.*{len(data) - 1}"):
        validate(data, LogConfig(max_message_bytes=len(data) - 1))


def test_control_batches_come_from_coordinators_only() -> None:
    with pytest.raises(InvalidRecordsError, match="control"):
        validate(marker(5, committed=True))
    validate(marker(5, committed=True), origin=COORDINATOR)


def test_a_client_may_not_set_a_delete_horizon() -> None:
    with pytest.raises(InvalidRecordsError, match="delete horizon"):
        validate(batch(1, delete_horizon_ms=NOW_MS))


def test_the_first_offset_of_a_clients_batch_is_zero() -> None:
    with pytest.raises(InvalidRecordsError, match="offset 0"):
        validate(batch(1, base_offset=3))
    with pytest.raises(InvalidRecordsError, match="offset 0"):  # before its size is looked at, as in Kafka
        validate(batch(1, base_offset=3), LogConfig(max_message_bytes=0))


def test_a_producer_needs_an_epoch() -> None:
    with pytest.raises(InvalidRecordsError, match="epoch -1"):
        validate(batch(1, producer_id=5, producer_epoch=-1, sequence=0))


def test_a_producer_needs_a_sequence_number() -> None:
    with pytest.raises(InvalidRecordsError, match="sequence number -1"):
        validate(batch(1, producer_id=5, producer_epoch=0))


@pytest.mark.parametrize(
    ("at", "number"), [(RECORD_COUNT_AT, 2), (RECORD_COUNT_AT, 0), (LAST_OFFSET_DELTA_AT, 5), (LAST_OFFSET_DELTA_AT, 1)]
)
def test_a_batch_must_count_its_records_right(at: int, number: int) -> None:
    def lie(data: bytearray) -> None:
        data[at : at + 4] = number.to_bytes(4, "big")

    with pytest.raises(InvalidRecordsError):
        validate(resealed(batch(3), lie))


def test_a_wrong_crc_is_corrupt() -> None:
    data = batch(3)
    data[-1] ^= 1
    with pytest.raises(CorruptRecordsError, match="CRC"):
        validate(data)


def test_an_unknown_codec_is_invalid() -> None:
    def choose_codec_7(data: bytearray) -> None:
        data[ATTRIBUTES_AT + 1] |= 7

    with pytest.raises(InvalidRecordsError, match="compression 7"):
        validate(resealed(batch(3), choose_codec_7))


@pytest.mark.parametrize("size", [1, 11, 16, 17, HEADER_SIZE - 1, HEADER_SIZE, -1])
def test_a_leader_takes_no_piece_of_a_batch(size: int) -> None:
    with pytest.raises(InvalidRecordsError):
        validate(batch(3)[:size])


# For followers


def test_a_follower_leaves_out_a_piece_at_the_end() -> None:
    first, second = batch(2, base_offset=10, leader_epoch=3), batch(1, base_offset=12, leader_epoch=3)
    for size in range(len(second)):
        info = analyse(first + second[:size], REPLICATION)
        assert (len(info.headers), info.valid_bytes) == (1, len(first))
        assert (info.first_offset, info.last_offset) == (10, 11)
    info = analyse(first + second, REPLICATION)
    assert (len(info.headers), info.valid_bytes, info.last_offset) == (2, len(first) + len(second), 12)
    assert info.offsets_monotonic


def test_a_follower_sees_that_offsets_fall() -> None:
    assert not analyse(batch(2, base_offset=10) + batch(2, base_offset=11), REPLICATION).offsets_monotonic
    assert not analyse(batch(2, base_offset=10) + batch(1, base_offset=5), REPLICATION).offsets_monotonic
    assert analyse(batch(2, base_offset=10) + batch(1, base_offset=50), REPLICATION).offsets_monotonic


def test_a_follower_checks_the_crc_of_every_batch() -> None:
    second = batch(1, base_offset=12)
    second[-1] ^= 1
    with pytest.raises(CorruptRecordsError, match="CRC"):
        analyse(batch(2, base_offset=10) + second, REPLICATION)


# Whatever comes


@settings(deadline=None, max_examples=examples(120))
@given(st.data())
def test_any_bytes_are_appended_whole_or_refused_by_name(data: st.DataObject) -> None:
    original = batch(
        data.draw(st.integers(1, 5)), compression=data.draw(st.sampled_from(list(Compression))), producer_id=4,
        producer_epoch=0, sequence=0,
    )  # fmt: skip
    for _ in range(data.draw(st.integers(1, 3))):
        original[data.draw(st.integers(0, len(original) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    if data.draw(st.booleans()):
        with suppress(RecordError):  # no batch any more: as good as any other bytes
            BatchView(original).refresh_crc()
    config = replace(
        LogConfig(timestamp_before_max_ms=data.draw(st.sampled_from([2**63 - 1, 1000]))),
        compacts=data.draw(st.booleans()),
        compression=data.draw(st.sampled_from([None, *Compression])),
    )
    try:
        result = validate(bytes(original), config)
    except LogError:
        return
    headers = [view.validate() for view in iter_batches(result.data)]
    assert tuple(headers) == result.info.headers
    assert headers[0].base_offset == 100
    found = records_of(result.data)  # what was accepted can be read
    assert [record.offset for record in found] == list(range(100, 100 + headers[0].record_count))
    assert max(record.timestamp_ms for record in found) == headers[0].max_timestamp_ms
