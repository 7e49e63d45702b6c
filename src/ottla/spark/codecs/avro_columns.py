"""Avro, read and written by the client's serializers over Arrow batches, in Spark's Python workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from ottla.client.serializers import AvroDeserializer, AvroSchema, AvroSerializer
from ottla.spark.codecs.avro_types import has_uuids, spark_type, without_uuids
from ottla.spark.codecs.sides import (
    ERROR,
    Decoded,
    OnError,
    batchwise,
    check_bytes_column,
    check_on_error,
    empty_bad,
    raised,
    with_packed,
)

if TYPE_CHECKING:
    from ottla.client.serializers import AvroFraming
    from ottla.client.serializers.avro_schemas import SchemaSource

_BOTH: Final = "__ottla_decoded"
_DECODED: Final = "decoded"


def decode_avro(
    frame: DataFrame,
    schema: SchemaSource,
    *,
    reader_schema: SchemaSource | None = None,
    framing: AvroFraming | None = None,
    column: str = "value",
    on_error: OnError = "set_aside",
) -> Decoded:
    """Decodes the Avro objects in a column, in its place; also returns the rows that cannot be read.

    `schema` is the schema that wrote the bytes. `reader_schema`, if given, is the schema of the result, by Avro's rules
    of evolution. With a `framing` the bytes name the schema that wrote them, and `schema` is the schema of the result.
    A schema is a dict, JSON text, or a `pathlib.Path`. A record becomes a struct. Works with streams.

    With `on_error="fail"`, a bad row stops the query with an error that names the record, and `bad` is empty.

    Raises `ValueError` for an invalid schema, or one that Spark has no type for.
    """
    check_on_error(on_error)
    check_bytes_column(frame, column)
    if framing is not None and reader_schema is not None:
        raise ValueError(
            "with a framing, records identify their writer's schema: pass only `schema`, the reader's schema"
        )
    wanted = AvroSchema(schema if reader_schema is None else reader_schema)
    written_with = schema if framing is None else None
    deserializer = AvroDeserializer(wanted, written_with=written_with, framing=framing)
    held = spark_type(wanted.parsed)
    result = StructType([StructField(_DECODED, held), StructField(ERROR, StringType())])
    decode = _decoding(
        deserializer, to_arrow_type(held, timezone="UTC"), framing is not None or has_uuids(wanted.parsed)
    )
    topic = F.col("topic") if "topic" in frame.columns else F.lit("")
    # Spark moves deterministic functions through filters, and would decode twice.
    udf = batchwise(decode, result).asNondeterministic()
    both = frame.withColumn(_BOTH, udf(F.col(column).cast("binary"), topic))
    is_bad = F.col(f"{_BOTH}.{ERROR}").isNotNull()
    if on_error == "fail":
        checked = F.when(is_bad, raised(frame, F.col(f"{_BOTH}.{ERROR}"))).otherwise(F.col(f"{_BOTH}.{_DECODED}"))
        return Decoded(both.withColumn(column, checked).drop(_BOTH), empty_bad(frame))
    good = both.where(~is_bad).withColumn(column, F.col(f"{_BOTH}.{_DECODED}")).drop(_BOTH)
    bad = both.where(is_bad).withColumn(ERROR, F.col(f"{_BOTH}.{ERROR}")).drop(_BOTH)
    return Decoded(good, bad)


def encode_avro(
    frame: DataFrame,
    schema: SchemaSource,
    *columns: str,
    framing: AvroFraming | None = None,
    into: str = "value",
) -> DataFrame:
    """Encodes columns as one Avro object per row, in the column `into`; the other columns stay.

    Without `columns`, all of them; a single struct column is written as it is. A row that does not match the schema
    fails the query with the reason: nothing is lost silently.
    """
    serializer = AvroSerializer(schema, framing)
    spark_type(serializer.schema.parsed)
    packed, _ = with_packed(frame, columns, into)
    topic = F.col("topic") if "topic" in packed.columns else F.lit("")
    return packed.withColumn(into, batchwise(_encoding(serializer), BinaryType())(F.col(into), topic))


def _decoding(deserializer: AvroDeserializer, held: pa.DataType, may_have_uuids: bool) -> Any:
    def decode(values: pa.Array, topics: pa.Array) -> pa.Array:
        decoded: list[Any] = []
        errors: list[str | None] = []
        for data, topic in zip(values.to_pylist(), topics.to_pylist(), strict=True):
            value, error = None, None
            if data is not None:
                try:
                    value = deserializer(topic, data)
                except Exception as failure:  # invalid bytes can raise anything in an Avro reader
                    error = _sentence(failure)
            decoded.append(without_uuids(value) if may_have_uuids else value)
            errors.append(error)
        return pa.StructArray.from_arrays(
            [_array(decoded, errors, held), pa.array(errors, pa.string())], [_DECODED, ERROR]
        )

    return decode


def _array(decoded: list[Any], errors: list[str | None], held: pa.DataType) -> pa.Array:
    """Creates a column. A value that Arrow cannot hold, such as a decimal with too many digits, becomes an error."""
    try:
        return pa.array(decoded, held)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        for index, value in enumerate(decoded):
            try:
                pa.array([value], held)
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as failure:
                decoded[index], errors[index] = None, _sentence(failure)
        return pa.array(decoded, held)


def _encoding(serializer: AvroSerializer) -> Any:
    def encode(values: pa.Array, topics: pa.Array) -> pa.Array:
        rows = values.to_pylist(maps_as_pydicts="strict")
        encoded: list[bytes | None] = []
        for row, topic in zip(rows, topics.to_pylist(), strict=True):
            try:
                encoded.append(None if row is None else serializer(topic or "", row))
            except Exception as failure:  # fastavro's exceptions have no common base class
                raise ValueError(
                    f"encode_avro: a row does not match {serializer.schema.name}: {_sentence(failure)}"
                ) from None
        return pa.array(encoded, pa.binary())

    return encode


def _sentence(failure: Exception) -> str:
    text = str(failure).strip()
    if isinstance(failure, EOFError):
        return "ends too early"
    return text if isinstance(failure, ValueError) and text else f"{type(failure).__name__}: {text}".rstrip(": ")
