"""Batches into records and columns: by both codecs, with deserializers, up to what cannot be read."""

from __future__ import annotations

import gc
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from ottla.base.ids import TopicPartition
from ottla.client.config import ConsumerConfig
from ottla.client.consume import decoding, kernels
from ottla.client.consume.arrow import ALL_COLUMNS, chosen_columns, combined
from ottla.client.consume.decoding import Decoder
from ottla.client.consume.fetch_buffer import FetchedChunk
from ottla.client.consume.kernels import KERNELS
from ottla.client.consume.record import ConsumerRecord
from ottla.client.errors import ClientError, CompiledCodeError, CorruptRecordError, SerializationError
from ottla.client.subscriptions.subscription import ConsumedPartition, Position
from ottla.records import BatchOptions, Compression, Record, TimestampType, encode_batch
from ottla.records.layout import CRC_AT
from unit.client.consume.scripted_log import batch, message

CHOSEN = chosen_columns()


def chunk_of(data: bytes | bytearray, begin: int = 0, **options: Any) -> FetchedChunk:
    state = ConsumedPartition(TopicPartition("events", 3))
    state.seek(Position(begin))
    return FetchedChunk(state, state.generation, data, **options)


def decoder(**settings: object) -> Decoder:
    return Decoder(ConsumerConfig.parse(None, {"bootstrap_servers": "localhost:1", **settings}))


@pytest.fixture(params=["plain", "kernels"])
def codec(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the codecs in turn, whatever the size."""
    KERNELS.load()
    monkeypatch.setattr(decoding, "SMALL_BYTES", 0 if request.param == "kernels" else 1 << 40)
    chosen: str = request.param
    return chosen


@pytest.mark.usefixtures("codec")
@pytest.mark.parametrize("compression", Compression)
def test_records_are_what_was_written(compression: Compression) -> None:
    written = [
        Record(0, 1000, b"k", b"v", (("h", b"1"), ("h", None))),
        Record(0, 1001, None, b""),
        Record(0, 1002, b"", None),
    ]
    data = encode_batch(written, BatchOptions(base_offset=7, compression=compression))
    chunk = chunk_of(data, leader_epoch=4, timestamp_type=1)
    assert decoder().take(chunk, 10) == [
        ConsumerRecord("events", 3, 7, 1000, 1, b"k", b"v", (("h", b"1"), ("h", None)), 4),
        ConsumerRecord("events", 3, 8, 1001, 1, None, b"", (), 4),
        ConsumerRecord("events", 3, 9, 1002, 1, b"", None, (), 4),
    ]
    assert decoder().take(chunk, 10) == []


@pytest.mark.usefixtures("codec")
def test_a_chunk_is_taken_bit_by_bit_from_the_position_on() -> None:
    chunk = chunk_of(batch(0, 5) + batch(5, 5), begin=3)
    one = decoder()
    assert [record.offset for record in one.take(chunk, 4)] == [3, 4, 5, 6]
    assert chunk.rest.left == 3
    assert [record.offset for record in one.take(chunk, 4)] == [7, 8, 9]
    assert chunk.rest.left == 0


@pytest.mark.usefixtures("codec")
def test_older_magics() -> None:
    chunk = chunk_of(message(4, magic=1) + message(5, magic=1), begin=5, timestamp_type=0)
    assert decoder().take(chunk, 10) == [ConsumerRecord("events", 3, 5, 1005, 0, None, b"5", (), -1)]


@pytest.mark.usefixtures("codec")
def test_what_stands_before_a_corrupt_batch_comes_first() -> None:
    corrupt = batch(5, 5)
    corrupt[CRC_AT] ^= 1
    chunk = chunk_of(batch(0, 5) + corrupt)
    one = decoder()
    assert [record.offset for record in one.take(chunk, 100)] == [0, 1, 2, 3, 4]
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match=r"partition events-3, .*base offset 5: its CRC .*seek past it"):
            one.take(chunk, 100)
    with pytest.raises(CorruptRecordError):
        one.take(chunk_of(corrupt), 100)
    assert len(decoder(check_crcs=False).take(chunk_of(corrupt), 100)) == 5


@pytest.mark.usefixtures("codec")
@pytest.mark.parametrize("compression", [one for one in Compression if one is not Compression.NONE])
def test_a_batch_that_would_become_too_large_is_refused_unless_the_limit_is_raised(compression: Compression) -> None:
    written = [Record(0, 1000, None, bytes(1000)) for _ in range(10)]
    data = encode_batch(written, BatchOptions(compression=compression))
    reason = "increase max.decompressed.batch.bytes, or seek past it"
    small = decoder(max_decompressed_batch_bytes=5000)
    with pytest.raises(CorruptRecordError, match=reason):
        small.take(chunk_of(data), 10)
    with pytest.raises(CorruptRecordError, match=reason):
        small.take_columns(chunk_of(data), CHOSEN)
    assert len(decoder(max_decompressed_batch_bytes=20_000).take(chunk_of(data), 10)) == 10
    assert decoder().take_columns(chunk_of(data), CHOSEN).num_rows == 10


@pytest.mark.usefixtures("codec")
def test_deserializers() -> None:
    def read_key(topic: str, data: bytes) -> tuple[str, bytes]:
        return topic, data

    data = encode_batch([Record(0, 0, b"k", b'{"a": 1}'), Record(0, 0, None, None)])
    one = decoder(key_deserializer=read_key, value_deserializer="json")
    assert [(record.key, record.value) for record in one.take(chunk_of(data), 10)] == [
        (("events", b"k"), {"a": 1}),
        (None, None),
    ]


@pytest.mark.usefixtures("codec")
def test_what_a_deserializer_cannot_read_is_raised_after_what_it_can() -> None:
    chunk = chunk_of(encode_batch([Record(0, 0, None, value) for value in (b"1", b"2", b"?", b"4")]))
    one = decoder(value_deserializer="json")
    assert [record.value for record in one.take(chunk, 100)] == [1, 2]
    for _ in range(2):
        with pytest.raises(SerializationError, match=r"value .*'events'.*partition 3, offset 2; seek past it"):
            one.take(chunk, 100)


def test_both_codecs_agree_on_large_chunks() -> None:
    data = b"".join(bytes(batch(100 * index, 100)) for index in range(20))
    assert len(data) > decoding.SMALL_BYTES
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "SMALL_BYTES", 1 << 40)
        plain = decoder().take(chunk_of(data), 10_000)
    KERNELS.load()
    assert decoder().take(chunk_of(data), 10_000) == plain
    assert gc.isenabled()


def test_the_garbage_collector_is_spared_records_that_can_be_in_no_cycle() -> None:
    KERNELS.load()
    data = batch(0, 300)
    records = decoder().take(chunk_of(data), 1000)
    assert not any(map(gc.is_tracked, records))
    assert gc.isenabled()
    records = decoder(value_deserializer=lambda _topic, data: [data]).take(chunk_of(data), 1000)
    assert all(map(gc.is_tracked, records))
    records = decoder().take(chunk_of(data), 1000)
    gc.collect()
    assert [record.offset for record in records] == list(range(300))


def test_columns() -> None:
    written = [Record(0, 1000, b"k", b"v", (("h", b"1"),)), Record(0, 1001, None, None)]
    chunk = chunk_of(encode_batch(written, BatchOptions(base_offset=7)), begin=7)
    table = CHOSEN.of(decoder().take_columns(chunk, CHOSEN), "events")
    assert table.schema == CHOSEN.schema
    assert table.column("topic").dictionary.to_pylist() == ["events"]
    rows = table.to_pylist()
    assert [row | {"timestamp": row["timestamp"].timestamp()} for row in rows] == [
        {
            "topic": "events",
            "partition": 3,
            "offset": 7,
            "timestamp": 1.0,
            "key": b"k",
            "value": b"v",
            "headers": [{"key": "h", "value": b"1"}],
        },
        {
            "topic": "events",
            "partition": 3,
            "offset": 8,
            "timestamp": 1.001,
            "key": None,
            "value": None,
            "headers": [],
        },
    ]


def test_columns_of_several_topics_are_put_together() -> None:
    batches = [
        CHOSEN.of(decoder().take_columns(chunk_of(batch(offset, 2), begin=offset), CHOSEN), topic)
        for offset, topic in ((0, "a"), (2, "b"), (4, "a"))
    ]
    whole = combined(batches)
    assert whole.schema == CHOSEN.schema
    assert whole.column("topic").to_pylist() == ["a", "a", "b", "b", "a", "a"]
    assert whole.column("offset").to_pylist() == [0, 1, 2, 3, 4, 5]
    assert combined([]) is None
    assert CHOSEN.no_rows.num_rows == 0
    assert pa.Table.from_batches([whole, CHOSEN.no_rows]).num_rows == 6


def test_columns_up_to_what_is_corrupt() -> None:
    corrupt = batch(5, 5)
    corrupt[CRC_AT] ^= 1
    chunk = chunk_of(batch(0, 5) + corrupt)
    one = decoder()
    assert one.take_columns(chunk, CHOSEN).num_rows == 5
    with pytest.raises(CorruptRecordError):
        one.take_columns(chunk, CHOSEN)


@pytest.mark.parametrize("names", [*((name,) for name in ALL_COLUMNS), ("value", "timestampType", "key"), ALL_COLUMNS])
def test_only_the_columns_that_are_chosen(names: tuple[str, ...]) -> None:
    chosen = chosen_columns(names)
    options = BatchOptions(timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp_ms=5)
    chunk = chunk_of(encode_batch([Record(0, 1000, b"k", b"v", (("h", b"1"),))], options))
    table = chosen.of(decoder().take_columns(chunk, chosen), "events")
    assert table.schema == chosen.schema == chosen.no_rows.schema
    assert tuple(table.schema.names) == names
    expected = {
        "topic": "events",
        "partition": 3,
        "offset": 0,
        "timestamp": datetime(1970, 1, 1, 0, 0, 0, 5000, UTC),
        "key": b"k",
        "value": b"v",
        "headers": [{"key": "h", "value": b"1"}],
        "timestampType": 1,
    }
    assert table.to_pylist() == [{name: expected[name] for name in names}]


@pytest.mark.parametrize(
    ("names", "words"),
    [(("values",), r"'values' is not a column .*value"), ((), "not none"), (("key", "key"), "only once")],
)
def test_columns_that_cannot_be_chosen(names: tuple[str, ...], words: str) -> None:
    with pytest.raises(ClientError, match=words):
        chosen_columns(names)


@pytest.mark.usefixtures("codec")
@pytest.mark.parametrize("until", [0, 3, 5, 7, 10, 20])
def test_nothing_from_the_end_on(until: int) -> None:
    chunk = chunk_of(batch(0, 5) + batch(5, 5), begin=2)
    chunk.state.until = until
    expected = list(range(2, min(until, 10)))
    assert [record.offset for record in decoder().take(chunk, 100)] == expected
    again = FetchedChunk(chunk.state, chunk.generation, chunk.data)
    assert decoder().take_columns(again, CHOSEN).column("offset").to_pylist() == expected


def test_code_that_cannot_be_loaded_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(kernels, "import_module", fail)
    with pytest.raises(CompiledCodeError, match=r"reading Arrow columns needs compiled code.*NUMBA_CACHE_DIR"):
        kernels._Kernels().load()
