"""Global tables: a whole table in the memory of every worker, for joins by any column, without a shuffle.

Each Python worker of Spark keeps one `TableView` per global table, which follows the topic in the background. Before a
worker joins a batch of rows (up to 10,000), it waits until its view has everything that the topic had at that moment.
So a row is joined with a table that is at least as new as the beginning of its batch, and may be newer: unlike other
tables, a global one is not part of the checkpoint, and timestamps do not matter.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType

from ottla.base.errors import OttlaError
from ottla.client.tables import TableView
from ottla.spark.codecs.sides import batchwise
from ottla.spark.options import ReadOptions
from ottla.spark.streams.frames import VALUE, StreamError, check_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MAX_BYTES: Final = 1 << 30

_ROW, _RIGHT, _DECODED = "__ottla_row", "__ottla_right", "__ottla_decoded"


@dataclass(frozen=True)
class GlobalTable:
    """A table that every worker has. Created by `global_table`; sent to the workers."""

    topic: str
    settings: Mapping[str, str]
    value: str
    max_bytes: int


def global_table(
    topic: str, options: Mapping[str, str], *, value: str = VALUE, max_bytes: int = MAX_BYTES
) -> GlobalTable:
    """A table for `join_global_table`. `value` is an expression that decodes the bytes of the column `value`.

    Every Python worker keeps the whole table: on `local[4]` up to four times, on a cluster as often per executor as it
    has cores. If it needs more than `max_bytes` (default: 1 GiB) in a worker, the query fails.
    """
    settings = ReadOptions.parse({**options, "subscribe": topic}).client_settings
    return GlobalTable(topic, dict(settings), value, max_bytes)


def join_global_table(stream: DataFrame, table: GlobalTable, on: Column | str, how: str = "inner") -> DataFrame:
    """Each record of a stream with the row of a global table whose key is `on`, an expression on the stream's columns.

    `on` must be a string or binary, as the keys of the topic are. The result is a stream with the key of the record,
    and a struct of `left` and `right` as value. As in Kafka Streams, records without a value are skipped.
    """
    check_frame(stream, "stream")
    if how not in ("inner", "left"):
        raise StreamError(f"how must be 'inner' or 'left', not {how!r}")
    expression = F.expr(on) if isinstance(on, str) else on
    kind = stream.select(expression).schema.fields[0].dataType
    if not isinstance(kind, StringType | BinaryType):
        raise StreamError(f"the keys of a global table are bytes or strings, but on is {kind.simpleString()}: cast it")
    lookup: Any = batchwise(_lookup_of(table), BinaryType())
    found = lookup.asNondeterministic()(expression.cast("binary"))  # evaluated once per row
    rows = stream.where(F.col(VALUE).isNotNull()).select(F.struct(*stream.columns).alias(_ROW), found.alias(VALUE))
    if how == "inner":
        rows = rows.where(F.col(VALUE).isNotNull())
    decoded = rows.select(_ROW, F.expr(table.value).alias(_DECODED))
    both = F.struct(F.col(f"{_ROW}.{VALUE}").alias("left"), F.col(_DECODED).alias("right")).alias(VALUE)
    return decoded.select(*[both if name == VALUE else F.col(f"{_ROW}.{name}") for name in stream.columns])


# In the workers.

_Key = tuple[str, int, frozenset[tuple[str, str]]]
_views: dict[_Key, TableView[bytes, bytes]] = {}
_lock: Final = threading.Lock()


def view_of(table: GlobalTable) -> TableView[bytes, bytes]:
    """With everything that the topic has now. A view that has failed is replaced, because workers live longer than
    queries: the topic may exist, or be smaller, by the time of the next one."""
    key = table.topic, table.max_bytes, frozenset(table.settings.items())
    with _lock:
        view = _views.get(key)
        is_new = view is None
        if view is None:
            view = _views[key] = TableView(table.topic, table.settings, max_bytes=table.max_bytes)
    try:
        view.wait_until_caught_up()
    except OttlaError:
        with _lock:
            if _views.get(key) is view:
                del _views[key]
        view.close()
        if is_new:
            raise
        return view_of(table)
    return view


def _lookup_of(table: GlobalTable) -> Callable[..., pa.Array]:
    def lookup(keys: pa.Array) -> pa.Array:
        view = view_of(table)
        encoded = keys.dictionary_encode()
        values = [None if key is None else view.get(key) for key in encoded.dictionary.to_pylist()]
        return pa.array(values, pa.binary()).take(encoded.indices)

    return lookup
