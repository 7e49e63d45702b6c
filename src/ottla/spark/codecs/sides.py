"""What all codecs share: the good and bad rows of a decoding, and the columns involved."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

if TYPE_CHECKING:
    from pyspark.sql._typing import UserDefinedFunctionLike

OnError = Literal["set_aside", "fail"]

ERROR: Final = "error"
"""The column of bad rows that contains the reason."""


class Decoded(NamedTuple):
    """The rows that could be decoded, and those that could not: `good, bad = decode_json(…)`."""

    good: DataFrame
    """With the decoded values in place of the bytes; all other columns are unchanged. A null stays null."""
    bad: DataFrame
    """All columns unchanged, including the bytes, and `error`."""


def check_on_error(on_error: OnError) -> None:
    if on_error not in get_args(OnError):
        raise ValueError(f"on_error must be 'set_aside' or 'fail', not {on_error!r}")


def raised(frame: DataFrame, why: Column) -> Column:
    """An expression that stops the query, and says which record it was, as far as the frame has its position."""
    place: list[Column] = []
    for words, name in (("at offset ", "offset"), (" of partition ", "partition"), (" of topic ", "topic")):
        if name in frame.columns:
            place += [F.lit(words), F.coalesce(F.col(name).cast("string"), F.lit("unknown"))]
    return F.raise_error(F.concat(F.lit("a record cannot be decoded "), *place, F.lit(": "), why))


def empty_bad(frame: DataFrame) -> DataFrame:
    """The bad rows where there cannot be any."""
    return frame.where(F.lit(False)).withColumn(ERROR, F.lit(None).cast("string"))


def check_bytes_column(frame: DataFrame, column: str) -> None:
    """Raises `ValueError` for a column that cannot be decoded."""
    check_columns(frame, [column])
    found = frame.schema[column].dataType
    if not isinstance(found, BinaryType | StringType):
        raise ValueError(f"column {column!r} must be binary or string, not {found.simpleString()}")
    if ERROR in frame.columns:
        raise ValueError(f"the column {ERROR!r} already exists, but the bad records need it: rename it first")


def check_columns(frame: DataFrame, names: Sequence[str]) -> None:
    """Raises `ValueError` for a column that does not exist."""
    for name in names:
        if name not in frame.columns:
            close = difflib.get_close_matches(name, frame.columns, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"the columns are {', '.join(frame.columns) or 'none'}"
            raise ValueError(f"unknown column {name!r}: {hint}")


def with_packed(frame: DataFrame, columns: Sequence[str], into: str) -> tuple[DataFrame, DataType]:
    """Returns the frame with the value to encode in the column `into`, and its type; the packed columns are removed.

    Several columns become a struct, and so does a single column that is not one; a single struct is taken as it is. No
    columns mean all.
    """
    check_columns(frame, columns)
    names = list(columns) or list(frame.columns)
    lone = frame.schema[names[0]].dataType if len(names) == 1 else None
    packed = F.col(_quoted(names[0])) if isinstance(lone, StructType) else F.struct(*map(_quoted, names))
    others = [_quoted(name) for name in frame.columns if name not in names and name != into]
    result = frame.select(*others, packed.alias(into))
    return result, result.schema[into].dataType


def batchwise(function: Callable[..., pa.Array], result: DataType) -> UserDefinedFunctionLike:
    """Turns a function of Arrow columns into one of Spark columns, called once per batch."""
    make: Any = arrow_udf  # its stubs require a kind, but it reads the kind from the function's type hints
    udf: UserDefinedFunctionLike = make(function, result)
    return udf


def _quoted(name: str) -> str:
    """Quotes a column name, so that a dot in it does not select a field."""
    return "`" + name.replace("`", "``") + "`"
