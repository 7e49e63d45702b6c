"""The columns of records when reading and writing, with the names and types of Spark's own connector."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.base.errors import OttlaError

if TYPE_CHECKING:
    import pyarrow as pa

HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

READ_TYPES: Final[Mapping[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}
"""In their default order."""


class ColumnError(OttlaError, ValueError):
    """A column that does not exist, or that has the wrong type."""


def read_schema(*, include_headers: bool) -> StructType:
    """The schema of a query that names no columns."""
    names = [name for name in READ_TYPES if include_headers or name != "headers"]
    return StructType([StructField(name, READ_TYPES[name]) for name in names])


@dataclass(frozen=True)
class ReadColumns:
    """The columns that a query wants, in this order. Created by `of`; sent from the driver to the tasks."""

    schema: StructType

    @classmethod
    def of(cls, schema: StructType) -> ReadColumns:
        """Some or all of the available columns, each with its own type."""
        if not schema.fields:
            raise ColumnError(f"the schema names no column; use {', '.join(READ_TYPES)}")
        names = [field.name for field in schema.fields]
        for field in schema.fields:
            expected = READ_TYPES.get(field.name)
            if expected is None:
                raise ColumnError(f"records have no column {field.name!r}{_hint(field.name)}")
            if not _is_same(field.dataType, expected):
                words = f"column {field.name} is of type {expected.simpleString()}, not {field.dataType.simpleString()}"
                raise ColumnError(f"{words}: convert it in the DataFrame")
            if names.count(field.name) > 1:
                raise ColumnError(f"column {field.name} is {names.count(field.name)} times in the schema")
        return cls(schema)

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.schema.fields]

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """Exactly what Spark expects, including nullability."""
        return arrow_schema_of(self.schema)

    def __getstate__(self) -> dict[str, Any]:
        return {"schema": self.schema}


def arrow_schema_of(schema: StructType) -> pa.Schema:
    """The schema that Spark exchanges with its Python workers."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def _is_same(given: DataType, expected: DataType) -> bool:
    """Compares types, ignoring nullability."""
    return given.simpleString() == expected.simpleString()


def _hint(name: str) -> str:
    likely = difflib.get_close_matches(name.lower(), [one.lower() for one in READ_TYPES], n=1)
    if likely:
        return "; did you mean " + next(one for one in READ_TYPES if one.lower() == likely[0]) + "?"
    return f"; use {', '.join(READ_TYPES)}"
