"""Record batches, nanoseconds of CPU a record: ours beside aiokafka's (Cython) and kafka-python's, in one run.

    python bench/records.py [--rounds 9] [--codecs none,lz4] [--save]

Everyone makes the same batches of the same records: full at 16 KiB, or at 1 MiB. We take Arrow arrays, or lists of
`bytes` as the others do. Everyone reads the same bytes, 1 MiB of batches as a fetch brings them, checks every CRC, and
takes key, value, offset and timestamp of every record: we into Arrow arrays, or into record objects as the others do.

In each round everyone runs for 20 ms of CPU time, in turn, and each one's best round counts, so that a busy moment of
the machine hits no one alone. The garbage collector stays on, as in a program.

A ratio is the time of the better of the two others to ours. "codec" is the time of compression alone, ours: what is
left of a row without it is the work on records. Where it is most of a row, the ratio says who has which library.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import random
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from ottla.records.batch import iter_batches
from ottla.records.columns import decode_columns, encode_batches, iterate_records
from ottla.records.compression import compress, decompress
from ottla.records.layout import Compression
from ottla.records.plain import BatchOptions, decode_batch, encode_batch
from ottla.records.record import Record

with warnings.catch_warnings():
    # kafka-python uses deprecated functions of the standard library when it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec
    import kafka.record.default_records
    import kafka.record.memory_records

import aiokafka.record._crecords.default_records as aiokafka_default_records
import aiokafka.record._crecords.memory_records as aiokafka_memory_records

RESULTS = Path(__file__).parent / "results"
TOTAL_BYTES = 1024 * 1024
ROUND_NS = 20_000_000
FIRST_TIMESTAMP_MS = 1_700_000_000_000
KAFKA_PYTHON_HAS = {
    Compression.NONE: True,
    Compression.GZIP: kafka.codec.has_gzip(),
    Compression.SNAPPY: kafka.codec.has_snappy(),
    Compression.LZ4: kafka.codec.has_lz4(),
    Compression.ZSTD: kafka.codec.has_zstd(),
}


@dataclass(frozen=True, slots=True)
class Records:
    """The same records in the forms that each library takes."""

    value_bytes: int
    keys: list[bytes]
    values: list[bytes]
    timestamps_ms: list[int]

    @classmethod
    def made(cls, value_bytes: int) -> Records:
        """Lines of JSON with words and numbers: they compress to about a third, as such lines do."""
        chance = random.Random(value_bytes)
        words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randrange(3, 9))) for _ in range(500)]
        count = TOTAL_BYTES // (value_bytes + 20)
        values = []
        for index in range(count):
            line = f'{{"id":{index},"user":"{chance.randrange(1 << 32):08x}","text":"'
            while len(line) < value_bytes:
                line += chance.choice(words) + " " + str(chance.randrange(1000)) + " "
            values.append((line[: value_bytes - 2] + '"}').encode())
        keys = [b"key-%06d" % index for index in range(count)]
        return cls(value_bytes, keys, values, [FIRST_TIMESTAMP_MS + index // 10 for index in range(count)])


@dataclass(slots=True)
class Row:
    work: str
    value_bytes: int
    batch: str
    codec: str
    best_ns: dict[str, float] = field(default_factory=dict)

    def ratio(self, ours: str) -> float:
        others = [self.best_ns[name] for name in ("aiokafka", "kafka-python") if name in self.best_ns]
        return min(others) / self.best_ns[ours]


def best_of(contenders: dict[str, Callable[[], Any]], rounds: int, records: int) -> dict[str, float]:
    """Nanoseconds a record of each, in its best round."""
    loops = {}
    for name, run in contenders.items():
        run()
        started = time.process_time_ns()
        run()
        loops[name] = 1 + ROUND_NS // (time.process_time_ns() - started)
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, run in contenders.items():
            gc.collect()
            run()
            started = time.process_time_ns()
            for _ in range(loops[name]):
                run()
            elapsed = (time.process_time_ns() - started) / loops[name] / records
            best[name] = min(best.get(name, elapsed), elapsed)
    return best


def chunks_of(batches: list[memoryview]) -> list[tuple[int, int]]:
    """The rows that each batch took."""
    views = [next(iter_batches(batch)) for batch in batches]
    return [(view.base_offset, view.next_offset) for view in views]


def built_by(builder: Any, records: Records, chunks: list[tuple[int, int]], codec: Compression) -> list[Any]:
    """The same batches by a builder of the others: both have the same interface."""
    batches = []
    for first, until in chunks:
        batch = builder(2, int(codec), 0, -1, -1, -1, 1 << 30)
        append = batch.append
        rows = zip(
            range(until - first),
            records.timestamps_ms[first:until],
            records.keys[first:until],
            records.values[first:until],
            strict=True,
        )
        for offset, timestamp_ms, key, value in rows:
            append(offset, timestamp_ms, key, value, [])
        batches.append(batch.build())
    return batches


def read_by(memory_records: Any, data: bytes) -> int:
    """Everything of every record by a reader of the others: both have the same interface."""
    found = 0
    reader = memory_records(data)
    while reader.has_next():
        batch = reader.next_batch()
        if not batch.validate_crc():
            raise ValueError("a batch that we wrote has a CRC that the other does not accept")
        for record in batch:
            record.key, record.value, record.offset, record.timestamp  # noqa: B018  # Reading it is the work.
            found += 1
    return found


def read_objects(data: bytes) -> int:
    found = 0
    for record in iterate_records(data):
        record.key, record.value, record.offset, record.timestamp_ms  # noqa: B018  # As above.
        found += 1
    return found


def read_plainly(data: bytes) -> int:
    return sum(len(decode_batch(batch)) for batch in iter_batches(data))


def encode_row(records: Records, batch_bytes: int, codec: Compression, rounds: int) -> tuple[Row, bytes]:
    keys, values = pa.array(records.keys, pa.binary()), pa.array(records.values, pa.binary())
    timestamps_ms = pa.array(records.timestamps_ms)
    options = BatchOptions(compression=codec)
    plain = list(encode_batches(values, keys, timestamps_ms=timestamps_ms, max_batch_bytes=batch_bytes))
    chunks = chunks_of(plain)
    payloads = [next(iter_batches(batch)).payload for batch in plain]
    rows = list(map(Record, range(len(keys)), records.timestamps_ms, records.keys, records.values))

    def ours(keys: Any, values: Any, timestamps_ms: Any) -> list[memoryview]:
        return list(
            encode_batches(values, keys, timestamps_ms=timestamps_ms, max_batch_bytes=batch_bytes, options=options)
        )

    contenders: dict[str, Callable[[], Any]] = {
        "columns": lambda: ours(keys, values, timestamps_ms),
        "objects": lambda: ours(records.keys, records.values, records.timestamps_ms),
        "plain": lambda: [encode_batch(rows[first:until], options) for first, until in chunks],
        "aiokafka": lambda: built_by(aiokafka_default_records.DefaultRecordBatchBuilder, records, chunks, codec),
    }
    if KAFKA_PYTHON_HAS[codec]:
        contenders["kafka-python"] = lambda: built_by(
            kafka.record.default_records.DefaultRecordBatchBuilder, records, chunks, codec
        )
    if codec is not Compression.NONE:
        contenders["codec"] = lambda: [compress(codec, payload) for payload in payloads]
    row = Row("encode", records.value_bytes, f"{batch_bytes >> 10} KiB", codec.name.lower())
    row.best_ns = best_of(contenders, rounds, len(keys))
    return row, b"".join(ours(keys, values, timestamps_ms))


def decode_row(encoded: bytes, like: Row, codec: Compression, count: int, rounds: int) -> Row:
    contenders: dict[str, Callable[[], Any]] = {
        "columns": lambda: decode_columns(encoded).num_rows,
        "objects": lambda: read_objects(encoded),
        "plain": lambda: read_plainly(encoded),
        "aiokafka": lambda: read_by(aiokafka_memory_records.MemoryRecords, encoded),
    }
    if KAFKA_PYTHON_HAS[codec]:
        contenders["kafka-python"] = lambda: read_by(kafka.record.memory_records.MemoryRecords, encoded)
    for name, run in contenders.items():
        if run() != count:
            raise ValueError(f"{name} does not find {count} records")
    if codec is not Compression.NONE:
        payloads = [batch.payload for batch in iter_batches(encoded)]
        contenders["codec"] = lambda: [decompress(codec, payload) for payload in payloads]
    row = Row("decode", like.value_bytes, like.batch, like.codec)
    row.best_ns = best_of(contenders, rounds, count)
    return row


def measured(codecs: list[Compression], rounds: int) -> list[Row]:
    encoding, decoding = [], []
    for value_bytes in (100, 1024):
        records = Records.made(value_bytes)
        for batch_bytes in (16 * 1024, 1024 * 1024):
            for codec in codecs:
                row, encoded = encode_row(records, batch_bytes, codec, rounds)
                encoding.append(row)
                decoding.append(decode_row(encoded, row, codec, len(records.keys), rounds))
    return encoding + decoding


COLUMNS = {
    "encode": {"columns": "Arrow", "objects": "lists"},
    "decode": {"columns": "Arrow", "objects": "objects"},
}
OTHERS = {"plain": "plain", "aiokafka": "aiokafka", "kafka-python": "kafka-python", "codec": "codec"}


def cells_of(row: Row) -> list[str]:
    names = [*COLUMNS[row.work], *OTHERS]
    numbers = [f"{row.best_ns[name]:,.0f}" if name in row.best_ns else "-" for name in names]
    ratios = [f"{row.ratio(name):.1f}x" for name in COLUMNS[row.work]]
    return [f"{row.value_bytes} B", row.batch, row.codec, *numbers, *ratios]


def heads_of(work: str) -> list[str]:
    return [
        "value",
        "batch",
        "codec",
        *COLUMNS[work].values(),
        *OTHERS.values(),
        *(f"x {name}" for name in COLUMNS[work].values()),
    ]


def versions() -> str:
    names = ("aiokafka", "kafka-python", "cramjam", "crc32c", "isal", "numba", "pyarrow")
    return f"Python {platform.python_version()}, " + ", ".join(f"{name} {version(name)}" for name in names)


def show(rows: list[Row], rounds: int) -> None:
    console = Console()
    for work in COLUMNS:
        table = Table(title=f"{work}: ns of CPU a record, best of {rounds} rounds", title_justify="left")
        for index, head in enumerate(heads_of(work)):
            table.add_column(head, justify="left" if index < 3 else "right")
        for row in rows:
            if row.work == work:
                table.add_row(*cells_of(row))
        console.print(table)
    console.print(versions(), highlight=False)


def save(rows: list[Row], rounds: int) -> None:
    lines = [
        "# Record batches, ns of CPU a record",
        "",
        f"`python bench/records.py --rounds {rounds} --save`, best of {rounds} rounds, "
        f"{platform.machine()}, {time.strftime('%Y-%m-%d')}. {versions()}.",
        "What is compared, and how, stands at the top of `bench/records.py`.",
    ]
    for work in COLUMNS:
        heads = heads_of(work)
        lines += ["", f"## {work}", "", f"| {' | '.join(heads)} |", f"| {' | '.join(['---'] * len(heads))} |"]
        lines += [f"| {' | '.join(cells_of(row))} |" for row in rows if row.work == work]
    (RESULTS / "records.md").write_text("\n".join(lines) + "\n")
    numbers = [
        {"work": row.work, "value_bytes": row.value_bytes, "batch": row.batch, "codec": row.codec, "ns": row.best_ns}
        for row in rows
    ]
    (RESULTS / "records.json").write_text(json.dumps(numbers, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--codecs", default=",".join(codec.name.lower() for codec in Compression))
    parser.add_argument("--save", action="store_true", help="write bench/results/records.md and records.json")
    arguments = parser.parse_args()
    codecs = [Compression[name.upper()] for name in arguments.codecs.split(",")]
    rows = measured(codecs, arguments.rounds)
    show(rows, arguments.rounds)
    if arguments.save:
        save(rows, arguments.rounds)


if __name__ == "__main__":
    main()
