"""Stream processing on topics: tables, joins and aggregations that Spark lacks, as functions on DataFrames.

A *stream* is a DataFrame of records, a *table* a DataFrame of changes: the last row of a key is its value, and a null
value deletes the key. Both have the columns `key`, `value`, `timestamp`, `topic`, `partition` and `offset`. See
docs/decisions/0018-streams.md. Exported names are loaded on first use, as in `ottla.spark`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.spark.streams.aggregates import aggregate as aggregate
    from ottla.spark.streams.aggregates import aggregate_table as aggregate_table
    from ottla.spark.streams.aggregates import cogroup as cogroup
    from ottla.spark.streams.aggregates import count as count
    from ottla.spark.streams.aggregates import reduce as reduce
    from ottla.spark.streams.buckets import CheckpointError as CheckpointError
    from ottla.spark.streams.frames import StreamError as StreamError
    from ottla.spark.streams.global_tables import GlobalTable as GlobalTable
    from ottla.spark.streams.global_tables import global_table as global_table
    from ottla.spark.streams.global_tables import join_global_table as join_global_table
    from ottla.spark.streams.joins import join_foreign as join_foreign
    from ottla.spark.streams.joins import join_stream_table as join_stream_table
    from ottla.spark.streams.joins import join_tables as join_tables
    from ottla.spark.streams.joins import latest as latest
    from ottla.spark.streams.routes import Through as Through
    from ottla.spark.streams.routes import branch as branch
    from ottla.spark.streams.routes import merge as merge
    from ottla.spark.streams.routes import through as through
    from ottla.spark.streams.sources import NotCompactedWarning as NotCompactedWarning
    from ottla.spark.streams.sources import stream as stream
    from ottla.spark.streams.sources import table as table
    from ottla.spark.streams.windows import SlidingWindows as SlidingWindows
    from ottla.spark.streams.windows import until_window_closes as until_window_closes

_PLACES = {
    "CheckpointError": "ottla.spark.streams.buckets",
    "GlobalTable": "ottla.spark.streams.global_tables",
    "NotCompactedWarning": "ottla.spark.streams.sources",
    "SlidingWindows": "ottla.spark.streams.windows",
    "StreamError": "ottla.spark.streams.frames",
    "Through": "ottla.spark.streams.routes",
    "aggregate": "ottla.spark.streams.aggregates",
    "aggregate_table": "ottla.spark.streams.aggregates",
    "branch": "ottla.spark.streams.routes",
    "cogroup": "ottla.spark.streams.aggregates",
    "count": "ottla.spark.streams.aggregates",
    "global_table": "ottla.spark.streams.global_tables",
    "join_foreign": "ottla.spark.streams.joins",
    "join_global_table": "ottla.spark.streams.global_tables",
    "join_stream_table": "ottla.spark.streams.joins",
    "join_tables": "ottla.spark.streams.joins",
    "latest": "ottla.spark.streams.joins",
    "merge": "ottla.spark.streams.routes",
    "reduce": "ottla.spark.streams.aggregates",
    "stream": "ottla.spark.streams.sources",
    "table": "ottla.spark.streams.sources",
    "through": "ottla.spark.streams.routes",
    "until_window_closes": "ottla.spark.streams.windows",
}

__all__ = [
    "CheckpointError",
    "GlobalTable",
    "NotCompactedWarning",
    "SlidingWindows",
    "StreamError",
    "Through",
    "aggregate",
    "aggregate_table",
    "branch",
    "cogroup",
    "count",
    "global_table",
    "join_foreign",
    "join_global_table",
    "join_stream_table",
    "join_tables",
    "latest",
    "merge",
    "reduce",
    "stream",
    "table",
    "through",
    "until_window_closes",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
