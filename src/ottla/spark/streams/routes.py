"""Divides streams, unites them, and leads them through internal topics."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

from ottla.base.error_codes import ErrorCode
from ottla.client.administer import Admin, NewTopic
from ottla.client.errors import RefusedError
from ottla.spark.options import ReadOptions
from ottla.spark.streams.cores.changes import LANE_SHIFT, LANES
from ottla.spark.streams.frames import KEY, OFFSET, TIMESTAMP, TOPIC, VALUE, StreamError, check_frame
from ottla.spark.streams.sources import stream as read_stream
from ottla.spark.streams.values import packed, packed_key, unpacked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_INTERNAL: Final = {"cleanup.policy": "delete", "retention.ms": "-1"}
"""As for the repartition topics of Kafka Streams, except that nothing is deleted once it was read."""


class Through(NamedTuple):
    """A stream that goes through a topic: two queries."""

    writer: DataStreamWriter
    """Writes the stream to the topic. Start it with a checkpoint of its own."""
    frame: DataFrame
    """Reads the topic: the same rows, for another query."""


def branch(frame: DataFrame, *conditions: Column | str) -> list[DataFrame]:
    """Divides a stream or a table: each row goes to the first condition that it meets. The last DataFrame of the result
    has the rows that meet none. A condition that is null is not met.

    A table divided by its values is not a table any more: a tombstone meets no condition on the value.
    """
    if not conditions:
        raise StreamError("branch needs at least one condition")
    remaining = F.lit(True)
    parts: list[DataFrame] = []
    for condition in conditions:
        met = F.coalesce(F.expr(condition) if isinstance(condition, str) else condition, F.lit(False))
        parts.append(frame.where(remaining & met))
        remaining = remaining & ~met
    return [*parts, frame.where(remaining)]


def merge(*frames: DataFrame) -> DataFrame:
    """All rows of several streams, or of tables that have no keys in common. They must have the same types."""
    if not frames:
        raise StreamError("merge needs at least one DataFrame")
    for number, frame in enumerate(frames, 1):
        check_frame(frame, f"frame {number}")
        for name in (KEY, VALUE):
            kind, first = (one.schema[name].dataType.simpleString() for one in (frame, frames[0]))
            if kind != first:
                raise StreamError(f"the {name} of frame {number} is {kind}, but that of the first one {first}: cast it")
    parts = [_own_lanes(frame, number) for number, frame in enumerate(frames)]
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), parts)


def _own_lanes(frame: DataFrame, number: int) -> DataFrame:
    """Changes the lanes of results, so that those of one key in several frames are merged by time."""
    lane = (F.shiftright(F.col(OFFSET), LANE_SHIFT) * 5 + number) % LANES
    place = F.col(OFFSET).bitwiseAND((1 << LANE_SHIFT) - 1)
    moved = F.shiftleft(lane, LANE_SHIFT).bitwiseOR(place)
    return frame.withColumn(OFFSET, F.when(F.col(TOPIC).isNull(), moved).otherwise(F.col(OFFSET)))


def through(
    frame: DataFrame,
    topic: str,
    options: Mapping[str, str],
    *,
    partitions: int | None = None,
    configs: Mapping[str, str] | None = None,
    exactly_once: bool = False,
) -> Through:
    """Leads a stream or a table through an internal topic, partitioned by its key.

    The topic is created if it does not exist, with `partitions` (or the broker's default), and is kept forever unless
    `configs` says otherwise: `{"cleanup.policy": "compact"}` for a table. If it exists with another number of
    partitions, this raises `StreamError`: rows of a key would not stay in one partition.

    Keys and values that are neither binary nor strings are written as JSON. `options` are those of `format("ottla")`.
    With `exactly_once`, the writer sets `exactlyOnce`, and the frame reads only committed records.
    """
    check_frame(frame, "frame")
    client = {name: text for name, text in options.items() if name.lower().startswith("kafka.")}
    _prepare_topic(topic, client, partitions, {**_INTERNAL, **(configs or {})})
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    rows = frame.select(
        packed_key(F.col(KEY), kinds[KEY], "the key").alias(KEY),
        packed(F.col(VALUE), kinds[VALUE], "the value").alias(VALUE),
        TIMESTAMP,
    )
    writer = rows.writeStream.format("ottla").options(**client, topic=topic)
    if exactly_once:
        writer = writer.option("exactlyOnce", "true")
        options = {**options, "kafka.isolation.level": "read_committed"}
    read = read_stream(frame.sparkSession, topic, options)
    decoded = read.withColumns({KEY: unpacked(F.col(KEY), kinds[KEY]), VALUE: unpacked(F.col(VALUE), kinds[VALUE])})
    return Through(writer, decoded)


def _prepare_topic(topic: str, options: Mapping[str, str], partitions: int | None, configs: Mapping[str, str]) -> None:
    settings = ReadOptions.parse({**options, "subscribe": topic}).admin_settings
    with Admin(settings) as admin:
        try:
            admin.create_topics([NewTopic(topic, partitions, configs=configs)])
        except RefusedError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise StreamError(f"internal topic {topic!r} cannot be created: {error}") from None
            found = len(admin.describe_topics([topic])[topic].partitions)
            if partitions is not None and found != partitions:
                words = f"internal topic {topic!r} has {found} partitions, not {partitions}"
                raise StreamError(
                    f"{words}: rows of a key that were written before are in another partition. Keep the number, or "
                    "use a new topic and new checkpoints"
                ) from None
