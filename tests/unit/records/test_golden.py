"""Batches that real producers and brokers wrote, against the records that were put in (see tests/golden/README.md)."""

from __future__ import annotations

import json
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

import pytest

from ottla.records import (
    BatchOptions,
    BatchView,
    Compression,
    MessageView,
    Record,
    TimestampType,
    convert_to_v2,
    decode_batch,
    encode_batch,
    encode_transaction_marker,
    iter_batches,
    iter_entries,
    iter_records,
    read_transaction_marker,
)
from ottla.records.columns import decode_columns, decode_records, encode_columns

GOLDEN = Path(__file__).parents[2] / "golden" / "records"
CAPTURES: list[dict[str, Any]] = json.loads((GOLDEN / "manifest.json").read_text(encoding="utf-8"))
COMPRESSIONS = {codec.name.lower(): codec for codec in Compression}
TIMESTAMP_TYPES = {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
    "NoTimestampType": TimestampType.CREATE_TIME,
}

each_capture = pytest.mark.parametrize("capture", CAPTURES, ids=lambda capture: capture["file"])
each_v2_capture = pytest.mark.parametrize(
    "capture", [capture for capture in CAPTURES if capture["magic"] == 2], ids=lambda capture: capture["file"]
)
each_old_capture = pytest.mark.parametrize(
    "capture", [capture for capture in CAPTURES if capture["magic"] < 2], ids=lambda capture: capture["file"]
)
each_transactional_capture = pytest.mark.parametrize(
    "capture", [capture for capture in CAPTURES if capture["markers"]], ids=lambda capture: capture["file"]
)


def bytes_of(capture: dict[str, Any]) -> bytes:
    return GOLDEN.joinpath(capture["file"]).read_bytes()


def expected_records(capture: dict[str, Any], timestamp: str = "timestamp_ms") -> list[Record]:
    return [
        Record(
            offset=record["offset"],
            timestamp_ms=record.get(timestamp, record["timestamp_ms"]),
            key=_bytes(record["key"]),
            value=_bytes(record["value"]),
            headers=tuple((name, _bytes(value)) for name, value in record["headers"]),
        )
        for record in capture["records"]
    ]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("latin-1")


def options_of(batch: BatchView) -> BatchOptions:
    """Everything a batch says of itself, so that only its records are missing to write it again."""
    stamped = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    return BatchOptions(
        base_offset=batch.base_offset,
        leader_epoch=batch.leader_epoch,
        timestamp_type=batch.timestamp_type,
        max_timestamp_ms=batch.max_timestamp_ms if stamped or not batch.record_count else None,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.is_transactional,
        delete_horizon_ms=batch.delete_horizon_ms,
        last_offset_delta=batch.last_offset_delta,
    )


def uncompressed_batches() -> list[Any]:
    """The data batches that were never compressed, each with the records that were put into it."""
    found = []
    for capture in CAPTURES:
        if capture["magic"] < 2:
            continue
        given = expected_records(capture, "given_timestamp_ms")
        for batch in iter_batches(bytes_of(capture)):
            if batch.compression is Compression.NONE and not batch.is_control:
                inside = [record for record in given if batch.base_offset <= record.offset <= batch.last_offset]
                found.append(pytest.param(batch, inside, id=f"{capture['file']}@{batch.position}"))
    return found


each_uncompressed_batch = pytest.mark.parametrize(("batch", "records"), uncompressed_batches())


def test_every_file_is_in_the_manifest() -> None:
    assert sorted(path.name for path in GOLDEN.glob("*.bin")) == [capture["file"] for capture in CAPTURES]


def test_the_captures_hold_all_that_producers_do() -> None:
    batches = [batch for capture in CAPTURES for batch in capture["batches"]]
    assert {(batch["magic"], batch["codec"]) for batch in batches} == {
        (magic, codec) for magic in (0, 1, 2) for codec in COMPRESSIONS if magic == 2 or codec != "zstd"
    }
    new = [batch for batch in batches if batch["magic"] == 2]
    for facet in (
        lambda batch: batch["timestamp_type"] == "LogAppendTime",
        lambda batch: batch["transactional"] and not batch["control"],
        lambda batch: batch["control"],
        lambda batch: batch["base_sequence"] > 0,
        lambda batch: batch["delete_horizon_ms"] is not None,
        lambda batch: 0 < batch["count"] < batch["last_offset"] - batch["base_offset"] + 1,
        lambda batch: batch["count"] == 0,
    ):
        assert any(map(facet, new))
    for writer, captures in groupby(CAPTURES, key=lambda capture: capture["writer"]):
        assert {capture["codec"] for capture in captures} == set(COMPRESSIONS), writer


@each_capture
def test_plain_codec_reads_what_was_put_in(capture: dict[str, Any]) -> None:
    assert list(iter_records(bytes_of(capture))) == expected_records(capture)


@each_v2_capture
def test_headers_say_what_kafka_reads_in_them(capture: dict[str, Any]) -> None:
    found = [
        {
            "position": batch.position,
            "size": batch.size_in_bytes,
            "magic": batch.magic,
            "base_offset": batch.base_offset,
            "last_offset": batch.last_offset,
            "count": batch.record_count,
            "base_sequence": batch.base_sequence,
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "leader_epoch": batch.leader_epoch,
            "max_timestamp_ms": batch.max_timestamp_ms,
            "crc": batch.crc,
            "codec": batch.compression,
            "timestamp_type": batch.timestamp_type,
            "transactional": batch.is_transactional,
            "control": batch.is_control,
            "delete_horizon_ms": batch.delete_horizon_ms,
        }
        for batch in iter_batches(bytes_of(capture))
    ]
    assert found == [
        batch | {"codec": COMPRESSIONS[batch["codec"]], "timestamp_type": TIMESTAMP_TYPES[batch["timestamp_type"]]}
        for batch in capture["batches"]
    ]


@each_old_capture
def test_messages_say_what_kafka_reads_in_them(capture: dict[str, Any]) -> None:
    found = [
        {
            "position": message.position,
            "size": message.size_in_bytes,
            "magic": message.magic,
            "last_offset": message.last_offset,
            "max_timestamp_ms": message.timestamp_ms,
            "crc": message.crc,
            "codec": message.compression,
            "timestamp_type": message.timestamp_type,
        }
        for message in iter_entries(bytes_of(capture))
        if isinstance(message, MessageView)
    ]
    assert found == [
        batch | {"codec": COMPRESSIONS[batch["codec"]], "timestamp_type": TIMESTAMP_TYPES[batch["timestamp_type"]]}
        for batch in capture["batches"]
    ]


@each_old_capture
def test_old_messages_convert_to_batches_of_the_same_records(capture: dict[str, Any]) -> None:
    batches = convert_to_v2(bytes_of(capture))
    assert [record for batch in batches for record in decode_batch(batch)] == expected_records(capture)
    assert {BatchView(batch).compression for batch in batches} == {COMPRESSIONS[capture["codec"]]}


@each_v2_capture
def test_kernels_read_what_was_put_in(capture: dict[str, Any]) -> None:
    assert list(decode_records(bytes_of(capture))) == expected_records(capture)


@each_v2_capture
def test_arrow_columns_hold_what_was_put_in(capture: dict[str, Any]) -> None:
    columns = decode_columns(bytes_of(capture), headers=True)
    records = expected_records(capture)
    assert columns["offset"].to_pylist() == [record.offset for record in records]
    assert columns["timestamp"].cast("int64").to_pylist() == [record.timestamp_ms * 1000 for record in records]
    assert columns["key"].to_pylist() == [record.key for record in records]
    assert columns["value"].to_pylist() == [record.value for record in records]
    assert columns["headers"].to_pylist() == [
        [{"key": name, "value": value} for name, value in record.headers] for record in records
    ]


@each_uncompressed_batch
def test_plain_codec_writes_the_same_bytes(batch: BatchView, records: list[Record]) -> None:
    assert encode_batch(records, options_of(batch), keep_offsets=True) == batch.data


@each_uncompressed_batch
def test_kernels_write_the_same_bytes(batch: BatchView, records: list[Record]) -> None:
    written = encode_columns(
        [record.value for record in records],
        [record.key for record in records],
        [list(record.headers) for record in records],
        [record.timestamp_ms for record in records],
        options=options_of(batch),
        offsets=[record.offset for record in records],
    )
    assert written == batch.data


@each_transactional_capture
def test_markers_are_read_and_written_again(capture: dict[str, Any]) -> None:
    control = [batch for batch in iter_batches(bytes_of(capture)) if batch.is_control]
    markers = [read_transaction_marker(batch) for batch in control]
    assert [
        {
            "offset": marker.offset,
            "timestamp_ms": marker.timestamp_ms,
            "commit": marker.committed,
            "coordinator_epoch": marker.coordinator_epoch,
        }
        for marker in markers
        if marker is not None
    ] == capture["markers"]
    for batch, marker in zip(control, markers, strict=True):
        assert marker is not None
        written = encode_transaction_marker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            committed=marker.committed,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=marker.timestamp_ms,
            base_offset=marker.offset,
            leader_epoch=batch.leader_epoch,
        )
        assert written == batch.data


@each_capture
def test_sizes_add_up(capture: dict[str, Any]) -> None:
    sizes = [batch["size"] for batch in capture["batches"]]
    assert [batch["position"] for batch in capture["batches"]] == [0, *accumulate(sizes)][:-1]
    assert sum(sizes) == len(bytes_of(capture))
