"""Codecs for record batches: each library that could serve, beside what `ottla.records` does with its choice.

Run: python bench/compression.py [--seconds 0.3]

Payloads are those of real batches: JSON events of about 100 bytes and 1 KiB, and random bytes, in batches of 16 KiB
(the default of Kafka's producer) and 1 MiB. MB are of uncompressed data. The best of five rounds counts.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import cramjam
from isal import isal_zlib
from rich.console import Console
from rich.table import Table

from ottla.records import BatchView, Compression, Record, compress, decompress, encode_batch

Codec = Callable[[bytes], object]
GZIP_WINDOW_BITS = 31
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Candidate:
    codec: Compression
    name: str
    compress: Callable[[bytes], bytes]
    decompress: Codec


def zlib_gzip(level: int) -> Callable[[bytes], bytes]:
    def packed(data: bytes) -> bytes:
        compressor = zlib.compressobj(level, zlib.DEFLATED, GZIP_WINDOW_BITS)
        return compressor.compress(data) + compressor.flush()

    return packed


def isal_gzip(level: int) -> Callable[[bytes], bytes]:
    def packed(data: bytes) -> bytes:
        compressor = isal_zlib.compressobj(level, zlib.DEFLATED, GZIP_WINDOW_BITS)
        return compressor.compress(data) + compressor.flush()

    return packed


def lz4_frame(level: int) -> Callable[[bytes], bytes]:
    def packed(data: bytes) -> bytes:
        compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        compressor.compress(data)
        return bytes(compressor.finish())

    return packed


def ours(codec: Compression) -> Candidate:
    return Candidate(codec, "ottla", lambda data: compress(codec, data), lambda data: decompress(codec, data))


CANDIDATES = [
    Candidate(Compression.GZIP, "zlib 6 (as Kafka)", zlib_gzip(6), lambda data: zlib.decompress(data, 31)),
    Candidate(Compression.GZIP, "zlib 1", zlib_gzip(1), lambda data: zlib.decompress(data, 31)),
    Candidate(
        Compression.GZIP, "cramjam 6", lambda data: bytes(cramjam.gzip.compress(data, 6)), cramjam.gzip.decompress
    ),
    Candidate(Compression.GZIP, "isal 1", isal_gzip(1), lambda data: isal_zlib.decompress(data, 31)),
    Candidate(Compression.GZIP, "isal 3", isal_gzip(3), lambda data: isal_zlib.decompress(data, 31)),
    ours(Compression.GZIP),
    Candidate(
        Compression.SNAPPY,
        "cramjam, raw",
        lambda data: bytes(cramjam.snappy.compress_raw(data)),
        cramjam.snappy.decompress_raw,
    ),
    ours(Compression.SNAPPY),
    Candidate(Compression.LZ4, "cramjam, frame 1", lz4_frame(1), cramjam.lz4.decompress),
    Candidate(Compression.LZ4, "cramjam, frame 9", lz4_frame(9), cramjam.lz4.decompress),
    ours(Compression.LZ4),
    Candidate(
        Compression.ZSTD, "cramjam 1", lambda data: bytes(cramjam.zstd.compress(data, 1)), cramjam.zstd.decompress
    ),
    Candidate(
        Compression.ZSTD,
        "cramjam 3 (as Kafka)",
        lambda data: bytes(cramjam.zstd.compress(data, 3)),
        cramjam.zstd.decompress,
    ),
    ours(Compression.ZSTD),
]


def events(size: int, randomness: random.Random) -> list[bytes]:
    """A million bytes of JSON events of about that size."""
    values = []
    for index in range(1_100_000 // size):
        event: dict[str, object] = {
            "id": index,
            "user": f"user-{randomness.randrange(100_000)}",
            "event": randomness.choice(["click", "view", "buy", "scroll"]),
            "time_ms": 1_700_000_000_000 + 13 * index,
        }
        while len(json.dumps(event)) < size:
            event[f"field_{len(event)}"] = f"{randomness.choice(['alpha', 'beta', 'gamma'])}-{randomness.random():.4f}"
        values.append(json.dumps(event).encode())
    return values


def payload(values: list[bytes], size: int) -> bytes:
    """The records of one batch, cut to a size."""
    records = [Record(index, 1_700_000_000_000 + index, None, value) for index, value in enumerate(values)]
    return bytes(BatchView(encode_batch(records)).payload[:size])


@dataclass(slots=True)
class Figures:
    """Of one candidate on one kind of data: the best rates seen."""

    ratio: float
    compress: float = 0.0
    decompress: float = 0.0

    def __str__(self) -> str:
        return f"{self.compress:,.0f}  {self.decompress:,.0f}  {self.ratio:.2f}"


def megabytes_per_second(work: Codec, data: bytes, size: int, seconds: float) -> float:
    rounds, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        work(data)
        rounds += 1
    return rounds * size / elapsed / 1e6


def measure(data: bytes, seconds: float) -> list[Figures]:
    """All candidates take turns, so that a busy moment of the machine does not fall on one of them alone."""
    packed = [candidate.compress(data) for candidate in CANDIDATES]
    figures = [Figures(ratio=len(data) / len(each)) for each in packed]
    for _ in range(ROUNDS):
        for candidate, each, figure in zip(CANDIDATES, packed, figures, strict=True):
            share = seconds / ROUNDS
            rate = megabytes_per_second(candidate.compress, data, len(data), share)
            figure.compress = max(figure.compress, rate)
            rate = megabytes_per_second(candidate.decompress, each, len(data), share)
            figure.decompress = max(figure.decompress, rate)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="Codecs for record batches, side by side.")
    parser.add_argument("--seconds", type=float, default=0.3, help="to spend on each figure")
    seconds = parser.parse_args().seconds
    randomness = random.Random(1)
    kinds = {
        "JSON 100 B": events(100, randomness),
        "JSON 1 KiB": events(1024, randomness),
        "random": [randomness.randbytes(1000) for _ in range(1100)],
    }
    console = Console(width=120)
    for size in (16 * 1024, 1024 * 1024):
        table = Table("codec", "library", title=f"batches of {size // 1024} KiB: compress MB/s, decompress MB/s, ratio")
        for kind in kinds:
            table.add_column(kind, justify="right")
        columns = [measure(payload(values, size), seconds) for values in kinds.values()]
        for candidate, *cells in zip(CANDIDATES, *columns, strict=True):
            table.add_row(
                candidate.codec.name.lower(),
                candidate.name,
                *map(str, cells),
                end_section=candidate.name.startswith("ottla"),
            )
        console.print(table)


if __name__ == "__main__":
    main()
