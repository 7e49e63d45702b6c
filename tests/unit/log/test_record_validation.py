"""What is checked of the records of a producer's batch, and what is left to a thread."""

from __future__ import annotations

import random
import struct

import pytest

from ottla.log import record_validation
from ottla.log.append_origin import AppendOrigin
from ottla.log.config import LogConfig
from ottla.log.errors import InvalidRecordsError, InvalidTimestampError, LargeBatchError
from ottla.log.validation import assign, prepare, validate_and_assign
from ottla.records import BatchView, Compression, TimestampType, compress, iter_batches
from ottla.records.record_walk import fast_walk, walker
from support.logs.batches import NOW_MS, batch
from support.logs.record_bytes import header_bytes, record_bytes, sealed

TWO = record_bytes(0) + record_bytes(1)


def validate(data: bytes, config: LogConfig | None = None, *, bounded: bool = False) -> bytes:
    result = validate_and_assign(
        memoryview(bytearray(data)),
        next_offset=100,
        now_ms=NOW_MS,
        config=config or LogConfig(),
        leader_epoch=7,
        origin=AppendOrigin.CLIENT,
        bounded=bounded,
    )
    return bytes(result.data)


POISON = {
    "noise": (b"\xff" * 50, 1, "varint"),
    "zeros": (bytes(50), 1, "varint"),
    "more records than there are": (TWO, 3, "says 3 records"),
    "fewer records than there are": (TWO, 1, "9 bytes follow"),
    "bytes behind the last record": (TWO + b"zzz", 2, "3 bytes follow"),
    "bytes behind a record's headers": (record_bytes(0, tail=b"xx"), 1, "2 bytes after its headers"),
    "offset deltas that fall": (record_bytes(1) + record_bytes(0), 2, "record 0 has offset delta 1"),
    "offset deltas with a gap": (record_bytes(0) + record_bytes(5), 2, "record 1 has offset delta 5"),
    "an offset delta twice": (record_bytes(0) + record_bytes(0), 2, "record 1 has offset delta 0"),
    "a record that is too long": (record_bytes(0, size=60), 1, "claims 60 bytes"),
    "a record that is too short": (record_bytes(0, size=3), 1, "cut off"),
    "a record of a negative size": (record_bytes(0, size=-3), 1, "claims -3 bytes"),
    "a key beyond the record": (record_bytes(0, key_size=9999), 1, "key of 9999 bytes"),
    "a key of a negative size": (record_bytes(0, key=None, key_size=-2), 1, "key of -2 bytes"),
    "a negative number of headers": (record_bytes(0, headers=header_bytes(count=-1)), 1, "-1 headers"),
    "headers that are not there": (record_bytes(0, headers=header_bytes(count=50)), 1, "50 headers"),
    "a header without a key": (record_bytes(0, headers=header_bytes((None, b""))), 1, "header without a key"),
    "a timestamp beyond 64 bits": (record_bytes(0, timestamp_delta=2**63 - 1), 1, "beyond 64 bits"),
    "a varint of six bytes": (b"\x90\x80\x80\x80\x80\x00" + record_bytes(0)[1:], 1, "its maximum length"),
    "two bytes for two billion records": (b"zz", 2**31 - 1, "2147483647 records"),
    "nothing": (b"", 1, "."),
}


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("what", POISON)
def test_records_that_are_not_what_the_batch_says_are_refused(what: str, codec: Compression) -> None:
    payload, count, words = POISON[what]
    data = sealed(payload if codec is Compression.NONE else compress(codec, payload), count, codec)
    for config in (
        LogConfig(),
        LogConfig(compacts=True),
        LogConfig(timestamp_type=TimestampType.LOG_APPEND_TIME),
        LogConfig(compression=Compression.ZSTD),
        LogConfig(timestamp_before_max_ms=1000),
    ):
        with pytest.raises(InvalidRecordsError, match=words) as caught:
            validate(data, config)
        assert not isinstance(caught.value, InvalidTimestampError)


@pytest.mark.parametrize("codec", list(Compression)[1:])
@pytest.mark.parametrize("payload", [b"garbage" * 9, b"zz", b""])
def test_a_payload_that_its_codec_does_not_know_is_refused(payload: bytes, codec: Compression) -> None:
    for count in (1, 2**31 - 1):
        with pytest.raises(InvalidRecordsError):
            validate(sealed(payload, count, codec))


@pytest.mark.parametrize("codec", list(Compression))
def test_unusual_records_that_kafka_takes_are_taken(codec: Compression) -> None:
    unusual = record_bytes(0, headers=header_bytes((b"\xff", None), (b"", b"value"))) + record_bytes(1, attributes=7)
    data = sealed(unusual if codec is Compression.NONE else compress(codec, unusual), 2, codec)
    assert BatchView(validate(data)).last_offset == 101


# Timestamps


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("claimed_ms", [NOW_MS + 7_200_000, NOW_MS - 7_200_000, -1])
def test_the_newest_timestamp_of_a_batch_is_that_of_its_records(claimed_ms: int, codec: Compression) -> None:
    payload = record_bytes(0) + record_bytes(1, timestamp_delta=50) + record_bytes(2, timestamp_delta=-50)
    packed = payload if codec is Compression.NONE else compress(codec, payload)
    config = LogConfig(timestamp_after_max_ms=1000)
    header = BatchView(validate(sealed(packed, 3, codec, max_timestamp_ms=claimed_ms), config)).validate()
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (NOW_MS, NOW_MS + 50)


def test_each_record_is_held_to_the_limits_of_time() -> None:
    payload = b"".join(
        record_bytes(index, timestamp_delta=delta)
        for index, delta in enumerate((0, 2000, -2000, 999, -1000, -NOW_MS - 1))
    )
    data = sealed(payload, 6)
    config = LogConfig(timestamp_after_max_ms=1000, timestamp_before_max_ms=1000)
    with pytest.raises(InvalidTimestampError, match="2 of 6 records") as caught:
        validate(data, config)
    (future, past) = caught.value.faults
    assert future == (1, f"timestamp {NOW_MS + 2000} of record 1 is 2000 ms in the future; "
                         "message.timestamp.after.max.ms allows 1000")  # fmt: skip
    assert past == (2, f"timestamp {NOW_MS - 2000} of record 2 is 2000 ms in the past; "
                       "message.timestamp.before.max.ms allows 1000")  # fmt: skip
    stamped = LogConfig(timestamp_type=TimestampType.LOG_APPEND_TIME, timestamp_after_max_ms=1000)
    assert BatchView(validate(data, stamped)).max_timestamp_ms == NOW_MS


# Every faulty record is named (KIP-467)


@pytest.mark.parametrize("codec", list(Compression))
def test_every_record_without_a_key_is_named(codec: Compression) -> None:
    payload = b"".join(record_bytes(index, key=b"k" if index % 2 else None) for index in range(9))
    data = sealed(payload if codec is Compression.NONE else compress(codec, payload), 9, codec)
    with pytest.raises(InvalidRecordsError, match=r"5 of 9 records are refused: .*; and 2 more") as caught:
        validate(data, LogConfig(compacts=True))
    assert [fault.record_index for fault in caught.value.faults] == [0, 2, 4, 6, 8]
    assert caught.value.faults[1].reason == "record 2 has no key, but the topic is compacted"


def test_a_missing_key_and_a_timestamp_are_both_named_and_the_timestamp_decides() -> None:
    payload = record_bytes(0, key=None, timestamp_delta=-5000) + record_bytes(1, timestamp_delta=-5000)
    with pytest.raises(InvalidTimestampError) as caught:
        validate(sealed(payload, 2), LogConfig(compacts=True, timestamp_before_max_ms=1000))
    assert ["key" in fault.reason for fault in caught.value.faults] == [True, False]


def test_no_more_records_are_named_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_validation, "FAULTS_MAX", 3)
    payload = b"".join(record_bytes(index, key=None) for index in range(9))
    with pytest.raises(InvalidRecordsError, match="3 or more of 9 records") as caught:
        validate(sealed(payload, 9), LogConfig(compacts=True))
    assert len(caught.value.faults) == 3


def test_broken_records_are_reported_before_faulty_ones() -> None:
    with pytest.raises(InvalidRecordsError, match="2 bytes follow") as caught:
        validate(sealed(record_bytes(0, key=None) + b"zz", 1), LogConfig(compacts=True))
    assert not caught.value.faults


# What takes long


def large(codec: Compression = Compression.ZSTD) -> bytes:
    return bytes(batch([bytes(9 * 2**20)], compression=codec))


@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_a_batch_that_grows_much_is_left_to_a_thread(codec: Compression) -> None:
    data = bytes(batch([bytes(9 * 2**20)], compression=codec))
    config = LogConfig(max_message_bytes=2**30)
    with pytest.raises(LargeBatchError):
        validate(data, config, bounded=True)
    prepared = prepare(data, now_ms=NOW_MS, config=config)
    result = assign(prepared, next_offset=100, now_ms=NOW_MS, leader_epoch=7)
    assert bytes(result.data) == validate(data, config)


def test_ordinary_batches_are_validated_at_once() -> None:
    values = [struct.pack(">q", index) * 12 for index in range(9_000)]
    for codec in Compression:
        validate(bytes(batch(values, compression=codec)), LogConfig(compacts=True), bounded=True)


def test_many_records_are_left_to_a_thread_while_there_is_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_validation, "LOOP_RECORDS_MAX", 100)
    monkeypatch.setattr(walker, "kernel", None)
    few, many = bytes(batch(100)), bytes(batch(101))
    validate(few, bounded=True)
    with pytest.raises(LargeBatchError):
        validate(many, bounded=True)
    monkeypatch.setattr(walker, "kernel", fast_walk)
    validate(many, bounded=True)


def test_records_that_cannot_be_there_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walker, "kernel", None)
    monkeypatch.setattr(walker.loading, "begin", lambda: pytest.fail("nothing is loaded for them"))
    for codec in Compression:
        data = sealed(TWO if codec is Compression.NONE else compress(codec, TWO), 2**31 - 1, codec)
        for bounded in (True, False):
            with pytest.raises(InvalidRecordsError, match="2147483647 records"):
                validate(data, bounded=bounded)


def test_faults_among_many_records_are_looked_for_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_validation, "LOOP_RECORDS_MAX", 2)
    monkeypatch.setattr(walker, "kernel", lambda *_: None)  # finds them, but has no words
    data = sealed(TWO + record_bytes(2) + b"zz", 3)
    with pytest.raises(LargeBatchError):
        validate(data, bounded=True)
    with pytest.raises(InvalidRecordsError, match="2 bytes follow"):
        prepare(data, now_ms=NOW_MS, config=LogConfig())


def test_batches_left_to_a_thread_are_unchanged() -> None:
    data = bytearray(large())
    before = bytes(data)
    with pytest.raises(LargeBatchError):
        validate_and_assign(
            memoryview(data), next_offset=1, now_ms=NOW_MS, config=LogConfig(), leader_epoch=1,
            origin=AppendOrigin.CLIENT, bounded=True,
        )  # fmt: skip
    assert bytes(data) == before


@pytest.mark.parametrize("codec", list(Compression))
def test_a_batch_that_is_not_small_is_given_another_codec_in_a_thread(codec: Compression) -> None:
    values = [random.Random(index).randbytes(100) for index in range(200)]
    others = [each for each in Compression if each != codec]
    data = bytes(batch(values, compression=codec))
    for other in others:
        config = LogConfig(compression=other)
        with pytest.raises(LargeBatchError, match=f"compress as {other.name.lower()}"):
            validate(data, config, bounded=True)
        prepared = prepare(data, now_ms=NOW_MS, config=config, bounded=True)
        assert bytes(assign(prepared, next_offset=100, now_ms=NOW_MS, leader_epoch=7).data) == validate(data, config)
    validate(data, LogConfig(compression=codec), bounded=True)


def test_a_small_batch_is_given_another_codec_at_once() -> None:
    for codec in Compression:
        for other in Compression:
            validate(bytes(batch(10, compression=codec)), LogConfig(compression=other), bounded=True)


def test_prepared_batches_are_in_the_topics_codec_and_time() -> None:
    config = LogConfig(compression=Compression.LZ4, timestamp_type=TimestampType.LOG_APPEND_TIME)
    prepared = prepare(large(), now_ms=NOW_MS, config=config)
    result = assign(prepared, next_offset=100, now_ms=NOW_MS + 9, leader_epoch=7)
    (view,) = iter_batches(result.data)
    header = view.validate()
    assert (header.base_offset, header.leader_epoch, header.max_timestamp_ms) == (100, 7, NOW_MS + 9)
    assert header.compression is Compression.LZ4
    assert result.info.log_append_time_ms == NOW_MS + 9


def test_the_limit_on_what_a_batch_may_grow_to_holds_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_validation, "DEFAULT_MAX_DECOMPRESSED_BYTES", 2**20)
    with pytest.raises(InvalidRecordsError, match="beyond the limit of 1048576"):
        prepare(large(), now_ms=NOW_MS, config=LogConfig())
