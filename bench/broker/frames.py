"""The requests of the load, made once and sent as they are, again and again."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from typing import Final

from ottla.records.layout import Compression
from ottla.records.plain import BatchOptions, encode_batch
from ottla.records.record import Record
from ottla.wire.framing import request_frame
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic

PRODUCE_VERSION: Final = 11
FETCH_VERSION: Final = 12
"""The last one that names topics rather than their ids, so that both brokers get the same bytes."""
CLIENT_ID: Final = "bench"
BATCH_BYTES: Final = 256 * 1024
"""What is meant by a big batch."""


def batch_of(value_bytes: int, count: int) -> bytearray:
    """That many records of bytes that say nothing, as a producer without idempotence makes them."""
    chance, now_ms = random.Random(value_bytes), time.time_ns() // 1_000_000
    return encode_batch(
        (Record(index, now_ms, None, chance.randbytes(value_bytes)) for index in range(count)), BatchOptions()
    )


def texts(value_bytes: int, count: int) -> list[bytes]:
    """Values that compress about as well as events in JSON do."""
    chance = random.Random(value_bytes)
    words = [bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz", k=chance.randint(3, 9))) for _ in range(500)]
    found = []
    for number in range(count):
        value = b'{"id":%d,"at":%d,"text":"' % (chance.getrandbits(32), 1_700_000_000_000 + 17 * number)
        while len(value) < value_bytes:
            value += chance.choice(words) + b" "
        found.append(value[:value_bytes])
    return found


def text_batch(value_bytes: int, count: int, compression: Compression, keys: int = 0) -> bytearray:
    """Records of text, with so many different keys where there are keys."""
    now_ms = time.time_ns() // 1_000_000
    records = (
        Record(index, now_ms, b"key-%06d" % (index % keys) if keys else None, value)
        for index, value in enumerate(texts(value_bytes, count))
    )
    return encode_batch(records, BatchOptions(compression=compression))


def records_in_big_batch(value_bytes: int) -> int:
    return BATCH_BYTES // (value_bytes + 8)


def produce_frame(topic: str, partition: int, batch: bytes | bytearray) -> bytearray:
    """A whole frame that is answered when the leader has the batch."""
    return wide_produce_frame(topic, [partition], batch)


def wide_produce_frame(topic: str, partitions: Iterable[int], batch: bytes | bytearray) -> bytearray:
    """The same with that batch for each of the partitions."""
    parts = [ProducePartition(index=partition, records=batch) for partition in partitions]
    data = ProduceTopic(name=topic, partition_data=parts)
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data])
    return bytearray(b"".join(request_frame(request, PRODUCE_VERSION, 1, CLIENT_ID)))


def fetch_frame(topic: str, partition: int, offset: int, max_bytes: int, max_wait_ms: int = 500) -> bytes:
    """A whole frame that asks for what there is from an offset on, outside of any session."""
    return wide_fetch_frame(topic, [partition], offset, max_bytes, max_wait_ms)


def wide_fetch_frame(
    topic: str, partitions: Sequence[int], offset: int, partition_bytes: int, max_wait_ms: int = 500
) -> bytes:
    """The same for several partitions, so many bytes of each."""
    wanted = [
        FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_bytes)
        for partition in partitions
    ]
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=partition_bytes * len(wanted),
        topics=[FetchTopic(topic=topic, partitions=wanted)],
    )
    return b"".join(request_frame(request, FETCH_VERSION, 1, CLIENT_ID))
