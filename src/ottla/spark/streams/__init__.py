"""Stream processing on topics: tables, joins and aggregations that Spark lacks, as functions on DataFrames.

A *stream* is a DataFrame of records, a *table* a DataFrame of changes: the last row of a key is its value, and a null
value deletes the key. Both have the columns `key`, `value`, `timestamp`, `topic`, `partition` and `offset`. See
docs/decisions/0018-streams.md. Exported names are loaded on first use, as in `ottla.spark`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.spark.streams.buckets import CheckpointError as CheckpointError
    from ottla.spark.streams.frames import StreamError as StreamError
    from ottla.spark.streams.joins import join_foreign as join_foreign
    from ottla.spark.streams.joins import join_stream_table as join_stream_table
    from ottla.spark.streams.joins import join_tables as join_tables
    from ottla.spark.streams.joins import latest as latest
    from ottla.spark.streams.sources import NotCompactedWarning as NotCompactedWarning
    from ottla.spark.streams.sources import stream as stream
    from ottla.spark.streams.sources import table as table

_PLACES = {
    "CheckpointError": "ottla.spark.streams.buckets",
    "NotCompactedWarning": "ottla.spark.streams.sources",
    "StreamError": "ottla.spark.streams.frames",
    "join_foreign": "ottla.spark.streams.joins",
    "join_stream_table": "ottla.spark.streams.joins",
    "join_tables": "ottla.spark.streams.joins",
    "latest": "ottla.spark.streams.joins",
    "stream": "ottla.spark.streams.sources",
    "table": "ottla.spark.streams.sources",
}

__all__ = [
    "CheckpointError",
    "NotCompactedWarning",
    "StreamError",
    "join_foreign",
    "join_stream_table",
    "join_tables",
    "latest",
    "stream",
    "table",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
