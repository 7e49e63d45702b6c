"""Dead letters: records that could not be decoded or processed, as rows for a topic of their own.

They have the original key, value and timestamp, and headers with the names of KIP-1034, which Kafka Streams writes as
well: why the record failed, and where it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from ottla.spark.codecs.sides import ERROR, check_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HEADER_PREFIX: Final = "__streams.errors."
DECODE_ERROR: Final = "DecodeError"
"""What the header `exception` says of records that could not be decoded."""

_PLACE: Final = ("topic", "partition", "offset")


def dead_letters(bad: DataFrame, topic: str) -> DataFrame:
    """The bad rows of `decode_json` or `decode_avro`, as rows for `format("ottla")`: set no option `topic` there.

    Headers that the records had, if they were read with `includeHeaders`, come before those of the error.
    """
    check_columns(bad, ["value", ERROR])
    parts = {"exception": F.lit(DECODE_ERROR), "message": F.col(ERROR)}
    parts |= {name: F.col(name) for name in _PLACE if name in bad.columns}
    headers = error_headers(parts)
    if "headers" in bad.columns:
        headers = F.concat(F.coalesce("headers", F.array().cast(bad.schema["headers"].dataType)), headers)
    kept = [name for name in ("key", "value", "timestamp") if name in bad.columns]
    return bad.select(*kept, F.lit(topic).alias("topic"), headers.alias("headers"))


def error_headers(parts: Mapping[str, Column]) -> Column:
    """The headers of a dead letter, by the last part of their names."""
    return F.array(
        *[
            F.struct(F.lit(f"{HEADER_PREFIX}{name}").alias("key"), value.cast("string").cast("binary").alias("value"))
            for name, value in parts.items()
        ]
    )
