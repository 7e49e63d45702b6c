"""Pipelines on Spark: topics as DataFrames, with `format("ottla")`.

Imports the client and PySpark, never a broker: it works with any Kafka cluster. Exported names are loaded on first use,
so that importing the package needs neither PySpark nor Java.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.spark.codecs.avro_columns import decode_avro as decode_avro
    from ottla.spark.codecs.avro_columns import encode_avro as encode_avro
    from ottla.spark.codecs.json_columns import decode_json as decode_json
    from ottla.spark.codecs.json_columns import encode_json as encode_json
    from ottla.spark.codecs.sides import Decoded as Decoded
    from ottla.spark.environment import SparkUnavailableError as SparkUnavailableError
    from ottla.spark.failed_records import dead_letters as dead_letters
    from ottla.spark.sessions import session as session
    from ottla.spark.sink import WriteResult as WriteResult
    from ottla.spark.sink import write as write
    from ottla.spark.updates import write_stream as write_stream

_PLACES = {
    "Decoded": "ottla.spark.codecs.sides",
    "SparkUnavailableError": "ottla.spark.environment",
    "WriteResult": "ottla.spark.sink",
    "dead_letters": "ottla.spark.failed_records",
    "decode_avro": "ottla.spark.codecs.avro_columns",
    "decode_json": "ottla.spark.codecs.json_columns",
    "encode_avro": "ottla.spark.codecs.avro_columns",
    "encode_json": "ottla.spark.codecs.json_columns",
    "session": "ottla.spark.sessions",
    "write": "ottla.spark.sink",
    "write_stream": "ottla.spark.updates",
}

__all__ = [
    "Decoded",
    "SparkUnavailableError",
    "WriteResult",
    "dead_letters",
    "decode_avro",
    "decode_json",
    "encode_avro",
    "encode_json",
    "session",
    "write",
    "write_stream",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
