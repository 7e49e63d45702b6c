"""Mutated record batches against every reader of them: `python -m fuzz.records`.

The plain codec and the kernels must agree: the same records, or a `RecordError` from both. Half of the batches get
their CRC repaired after the damage, so that what lies behind it is reached; old message sets are read by
`legacy` alone. Anything else that is raised ends the run with the seed and the bytes.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Iterator

from fuzz import driver
from fuzz.mutation import mutate
from ottla.records import (
    BatchOptions,
    Compression,
    Record,
    RecordError,
    TimestampType,
    compute_crc,
    encode_batch,
    encode_transaction_marker,
    iter_records,
)
from ottla.records.columns import Reading, decode_records
from ottla.records.layout import CRC_AT, HEADER_SIZE, MAGIC_AT, MAGIC_V2

MAX_DECOMPRESSED_BYTES = 1 << 20
OLD_CRC_AT = 12


def corpus(source: random.Random) -> list[bytes]:
    """Valid batches with every codec and kind, and old message sets."""
    batches = []
    for codec in Compression:
        for count in (0, 1, 3, 20):
            options = BatchOptions(
                base_offset=source.choice((0, 7, 1 << 40)),
                compression=codec,
                timestamp_type=source.choice(tuple(TimestampType)),
                producer_id=source.choice((-1, 900)),
                transactional=source.random() < 0.3,
                delete_horizon_ms=source.choice((None, 1_700_000_000_000)),
            )
            batches.append(bytes(encode_batch([_record(source, n) for n in range(count)], options)))
    marker = encode_transaction_marker(
        committed=True, producer_id=9, producer_epoch=1, coordinator_epoch=2, timestamp_ms=5
    )
    return [
        *batches,
        bytes(marker),
        batches[2] + batches[6],
        *(_old_message(source, magic) for magic in (0, 1) for _ in range(4)),
    ]


def _record(source: random.Random, number: int) -> Record:
    headers = tuple((f"h{n}", source.choice((None, b"", b"value"))) for n in range(source.choice((0, 0, 2))))
    key = source.choice((None, b"", source.randbytes(5)))
    value = source.choice((None, b"", source.randbytes(70), b"x" * 200))
    return Record(number, 1_700_000_000_000 + number, key, value, headers)


def _old_message(source: random.Random, magic: int) -> bytes:
    key, value = source.randbytes(3), source.randbytes(9)
    stamp = b"" if magic == 0 else (1_700_000_000_000).to_bytes(8, "big")
    body = bytes((magic, 0)) + stamp + len(key).to_bytes(4, "big") + key + len(value).to_bytes(4, "big") + value
    return (4).to_bytes(8, "big") + (len(body) + 4).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body


def mutated(source: random.Random, seeds: list[bytes]) -> Iterator[bytes]:
    """Without end: every seed in turn, damaged."""
    while True:
        for data in seeds:
            damaged = bytearray(mutate(source, data, source.choice(seeds)))
            if source.random() < 0.5:
                _repair_crc(damaged)
            yield bytes(damaged)


def _repair_crc(batch: bytearray) -> None:
    if len(batch) <= MAGIC_AT:
        return
    if batch[MAGIC_AT] < MAGIC_V2:
        batch[OLD_CRC_AT : OLD_CRC_AT + 4] = zlib.crc32(batch[MAGIC_AT:]).to_bytes(4, "big")
    elif len(batch) >= HEADER_SIZE:
        try:
            batch[CRC_AT : CRC_AT + 4] = compute_crc(batch).to_bytes(4, "big")
        except RecordError:
            return


def check(data: bytes) -> str:
    """The outcome on which all readers agree: `read`, or the name of the plain codec's error."""
    if len(data) > MAGIC_AT and data[MAGIC_AT] < MAGIC_V2:
        try:
            list(iter_records(data, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES))
        except RecordError as error:
            return f"old: {type(error).__name__}"
        return "old: read"
    failure: RecordError | None = None
    records: list[Record] = []
    try:
        records = list(iter_records(data, partial_tail=True, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES))
    except RecordError as error:
        failure = error
    try:
        compiled = decode_records(data, Reading(max_decompressed_bytes=MAX_DECOMPRESSED_BYTES))
    except RecordError as error:
        if failure is None:
            raise AssertionError(f"the plain codec reads {records!r}, the kernels say {error!r}") from error
        return type(failure).__name__
    if failure is not None:
        raise AssertionError(f"the plain codec says {failure!r}, the kernels read {compiled!r}")
    if compiled != records:
        raise AssertionError(f"the plain codec reads {records!r}, the kernels {compiled!r}")
    return "read"


def run(seed: int, batches: int) -> Counter[str]:
    """How often each outcome came."""
    source = random.Random(seed)
    return driver.fuzz(seed, batches, mutated(source, corpus(source)), check, bytes.hex)


if __name__ == "__main__":
    driver.main("batches", run)
