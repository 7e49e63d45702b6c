"""What all codecs share: the two sides of a decoding, and which columns it is about."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

if TYPE_CHECKING:
    from pyspark.sql._typing import UserDefinedFunctionLike

ERROR: Final = "error"
"""The column of the bad side that says why."""


class Decoded(NamedTuple):
    """The rows that could be read, and those that could not: `good, bad = decode_json(…)`."""

    good: DataFrame
    """What was decoded stands in the place of its bytes; all other columns are as they were. A null stays a null."""
    bad: DataFrame
    """All columns as they came, the bytes among them, and `error`."""


def check_bytes_column(frame: DataFrame, column: str) -> None:
    """Raises `ValueError` for a column that cannot be decoded."""
    check_columns(frame, [column])
    found = frame.schema[column].dataType
    if not isinstance(found, BinaryType | StringType):
        raise ValueError(f"column {column!r} must be binary or string, not {found.simpleString()}")
    if ERROR in frame.columns:
        raise ValueError(f"the column {ERROR!r} already exists, but the bad records need it: rename it first")


def check_columns(frame: DataFrame, names: Sequence[str]) -> None:
    """Raises `ValueError` for a column that is not there."""
    for name in names:
        if name not in frame.columns:
            close = difflib.get_close_matches(name, frame.columns, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"the columns are {', '.join(frame.columns) or 'none'}"
            raise ValueError(f"unknown column {name!r}: {hint}")


def with_packed(frame: DataFrame, columns: Sequence[str], into: str) -> tuple[DataFrame, DataType]:
    """What is to be encoded, as the column `into`, and its type; columns that go into it are gone.

    Several columns become a struct, and so does a single plain one; a single struct is taken as it is. No columns mean
    all.
    """
    check_columns(frame, columns)
    names = list(columns) or list(frame.columns)
    lone = frame.schema[names[0]].dataType if len(names) == 1 else None
    packed = F.col(_quoted(names[0])) if isinstance(lone, StructType) else F.struct(*map(_quoted, names))
    others = [_quoted(name) for name in frame.columns if name not in names and name != into]
    result = frame.select(*others, packed.alias(into))
    return result, result.schema[into].dataType


def batchwise(function: Callable[..., pa.Array], result: DataType) -> UserDefinedFunctionLike:
    """A function of Arrow columns as one of Spark's columns, called once a batch."""
    make: Any = arrow_udf  # its stubs want the kind, which it would rather read from the function's own hints
    udf: UserDefinedFunctionLike = make(function, result)
    return udf


def _quoted(name: str) -> str:
    """So that a dot in a column's name is not taken for a field."""
    return "`" + name.replace("`", "``") + "`"
