"""Rows on the way to a step and back."""

from __future__ import annotations

import random
from itertools import chain

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from ottla.spark.streams import packing
from ottla.spark.streams.packing import BUCKET, ROWS, arrow_schema, lists_of, packages, result_packages, unpackages

FIELDS = StructType(
    [StructField("key", BinaryType()), StructField("side", IntegerType()), StructField("offset", LongType())]
)
SCHEMA = arrow_schema(FIELDS)
Rows = list[tuple[bytes | None, int, int | None]]


def batch_of(buckets: list[int], rows: Rows, binary: pa.DataType | None = None) -> pa.RecordBatch:
    keys, sides, offsets = zip(*rows, strict=True)
    columns = [
        pa.array(buckets, pa.int32()),
        pa.array(keys, binary or pa.binary()),
        pa.array(sides, pa.int32()),
        pa.array(offsets, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=[BUCKET, *FIELDS.fieldNames()])


def rows_of(package: bytes) -> Rows:
    return list(zip(*lists_of(SCHEMA, package), strict=True))


def some_rows(count: int) -> tuple[list[int], Rows]:
    chance = random.Random(count)
    rows: Rows = [(chance.choice([None, b"", b"k%d" % n]), n % 2, chance.choice([None, n])) for n in range(count)]
    return [chance.randrange(5) for _ in rows], rows


@pytest.mark.parametrize("package_bytes", [1, 100, 1 << 20])
@pytest.mark.parametrize("gathered_bytes", [1, 1 << 20])
def test_a_bucket_gets_its_rows_in_order(
    monkeypatch: pytest.MonkeyPatch, package_bytes: int, gathered_bytes: int
) -> None:
    monkeypatch.setattr(packing, "_PACKAGE_BYTES", package_bytes)
    monkeypatch.setattr(packing, "_GATHERED_BYTES", gathered_bytes)
    buckets, rows = some_rows(200)
    whole = batch_of(buckets, rows)
    found: dict[int, Rows] = {}
    for batch in packages(iter([whole.slice(0, 50), whole.slice(50, 0), whole.slice(50)])):
        for row in batch.to_pylist():
            found.setdefault(row[BUCKET], []).extend(rows_of(row[ROWS]))
    expected = {one: [row for bucket, row in zip(buckets, rows, strict=True) if bucket == one] for one in set(buckets)}
    assert found == expected


def test_large_types_of_spark_are_packed_as_the_others() -> None:
    (batch,) = packages(iter([batch_of([1, 1], [(b"a", 0, 1), (None, 1, 2)], pa.large_binary())]))
    assert [rows_of(row[ROWS]) for row in batch.to_pylist()] == [[(b"a", 0, 1), (None, 1, 2)]]


def test_packages_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_PACKAGE_BYTES", 1000)
    rows: Rows = [(b"x" * 80, 0, number) for number in range(100)]
    (batch,) = packages(iter([batch_of([1] * 100, rows)]))
    assert 9 <= batch.num_rows <= 13
    assert list(chain.from_iterable(rows_of(row[ROWS]) for row in batch.to_pylist())) == rows


@pytest.mark.parametrize("count", [0, 1, 1024, 2500])
def test_results_come_back(count: int) -> None:
    _, rows = some_rows(count)
    made = list(result_packages(SCHEMA, iter(rows)))
    assert len(made) == -(-count // 1024)
    found = unpackages(SCHEMA, iter([pa.RecordBatch.from_arrays([pa.array(made, pa.binary())], names=[ROWS])]))
    assert [tuple(row.values()) for batch in found for row in batch.to_pylist()] == rows


def test_nothing_gives_nothing() -> None:
    assert not list(packages(iter([])))
    assert not list(packages(iter([batch_of([1], [(b"a", 0, 1)]).slice(0, 0)])))
