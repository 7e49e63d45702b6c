"""Many rows of a bucket as the bytes of one row, on the way to a step and back.

PySpark converts the rows of `transformWithState` one cell at a time, in both directions, which costs several times as
much as what a step does with them. So rows are packed before the shuffle and results are unpacked after it, as Arrow
batches without their schemas. All functions here work on Arrow data, in the Python workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKET: Final = "bucket"
ROWS: Final = "rows"
PACKED: Final = StructType([StructField(BUCKET, IntegerType()), StructField(ROWS, BinaryType())])
RESULTS: Final = StructType([StructField(ROWS, BinaryType())])

_ARROW: Final[dict[type, pa.DataType]] = {BinaryType: pa.binary(), IntegerType: pa.int32(), LongType: pa.int64()}
_GATHERED_BYTES: Final = 32 << 20
"""In the memory of a worker until rows are packed. The more there are, the fewer and larger packages there are."""
_PACKAGE_BYTES: Final = 16 << 10
"""Approximately, except if one row is larger. Spark has up to 10,000 packages at a time in memory."""
_RESULT_ROWS: Final = 1024
_UNPACKED_ROWS: Final = 10_000

Batches = Iterator[pa.RecordBatch]


def arrow_schema(schema: StructType) -> pa.Schema:
    return pa.schema([(field.name, _ARROW[type(field.dataType)]) for field in schema.fields])


def packed_frame(rows: DataFrame) -> DataFrame:
    """Packs a DataFrame whose first column is the bucket."""
    return _map_in_arrow(rows, packages, PACKED)


def unpacked_frame(packed: DataFrame, schema: StructType) -> DataFrame:
    """The results that `Packages` has made."""
    return _map_in_arrow(packed, partial(unpackages, arrow_schema(schema)), schema)


def packages(batches: Batches) -> Batches:
    """Packages of rows of one bucket each. The first column is the bucket."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        gathered.append(batch)
        size += batch.nbytes
        if size >= _GATHERED_BYTES:
            yield _by_bucket(gathered)
            gathered, size = [], 0
    if gathered:
        yield _by_bucket(gathered)


def unpackages(schema: pa.Schema, batches: Batches) -> Batches:
    """The rows of packages in the column `ROWS`, in batches of about `_UNPACKED_ROWS`."""
    gathered: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        for package in batch.column(batch.schema.get_field_index(ROWS)):
            gathered.append(pa.ipc.read_record_batch(package.as_buffer(), schema))
            rows += gathered[-1].num_rows
            if rows >= _UNPACKED_ROWS:
                yield pa.concat_batches(gathered)
                gathered, rows = [], 0
    if gathered:
        yield pa.concat_batches(gathered)


def lists_of(schema: pa.Schema, package: bytes) -> list[list[Any]]:
    """The columns of a package as Python values."""
    return [_values(column) for column in pa.ipc.read_record_batch(pa.py_buffer(package), schema).columns]


def result_packages(schema: pa.Schema, rows: Iterator[tuple[Any, ...]]) -> Iterator[bytes]:
    """Packages of rows, which must have the fields of the schema."""
    package: list[tuple[Any, ...]] = []
    for row in rows:
        package.append(row)
        if len(package) == _RESULT_ROWS:
            yield _package(schema, package)
            package = []
    if package:
        yield _package(schema, package)


def _package(schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> bytes:
    columns = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), schema.types, strict=True)]
    data: bytes = pa.RecordBatch.from_arrays(columns, schema=schema).serialize().to_pybytes()
    return data


def _by_bucket(gathered: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Rows keep their order within a bucket."""
    whole = pa.concat_batches(gathered)
    buckets = whole.column(0).to_numpy()
    order = np.argsort(buckets, kind="stable")
    ordered = buckets[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    schema = _rows_schema(whole.schema)
    columns = [column.cast(kind) for column, kind in zip(whole.columns[1:], schema.types, strict=True)]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema).take(pa.array(order))
    most = max(1, _PACKAGE_BYTES * len(order) // max(1, rows.nbytes))
    found: list[int] = []
    data: list[pa.Buffer] = []
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
        for first in range(start, end, most):
            found.append(int(ordered[start]))
            data.append(rows.slice(first, min(most, end - first)).serialize())
    blobs = pa.array([memoryview(one) for one in data], pa.binary())
    return pa.RecordBatch.from_arrays([pa.array(found, pa.int32()), blobs], names=[BUCKET, ROWS])


@lru_cache(maxsize=8)
def _rows_schema(schema: pa.Schema) -> pa.Schema:
    """Without the bucket, and as `arrow_schema` has it: Spark may be set to send large types."""
    kinds = [pa.binary() if pa.types.is_large_binary(field.type) else field.type for field in schema]
    return pa.schema([(field.name, kind) for field, kind in zip(schema, kinds, strict=True)][1:])


def _values(column: pa.Array) -> list[Any]:
    """As `to_pylist`, which makes an object of Arrow's for each value."""
    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_binary(column.type):
        _, ends, data = column.buffers()
        places = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1].tolist()
        whole = data.to_pybytes() if data is not None else b""
        values = [whole[start:end] for start, end in pairwise(places)]
        if column.null_count:
            for index in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
                values[index] = None
        return values
    values_of: Callable[[], list[Any]] = column.to_pylist if column.null_count else column.to_numpy().tolist
    return values_of()


def _map_in_arrow(frame: DataFrame, function: Callable[[Batches], Batches], schema: StructType) -> DataFrame:
    """The same as `DataFrame.mapInArrow`, which insists on pandas when the query is built."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    udf = UserDefinedFunction(
        function, returnType=schema, name="packing", evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    column: Any = udf(*[frame[name] for name in frame.columns])
    internal: Any = frame
    return DataFrame(internal._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)
