"""Topics as streams and as tables.

Both functions only describe a DataFrame. Nothing is read before a query starts, except that `table` asks a broker
whether the topic is compacted.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

from pyspark.sql import Column
from pyspark.sql import functions as F

from ottla.base.error_codes import ErrorCode
from ottla.client.administer import Admin
from ottla.client.administer.configs import ConfigResource
from ottla.client.errors import RefusedError
from ottla.spark.options import ReadOptions
from ottla.spark.streams.frames import COLUMNS, KEY, VALUE, StreamError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NullKeys = Literal["skip", "fail"]

_OWN_OPTIONS: Final = ("subscribe", "subscribePattern", "assign")


_readings: Final[dict[str, list[str]]] = {}
"""How this program reads each topic as a table, in the order of the first calls."""


class NotCompactedWarning(UserWarning):
    """The topic of a table is not compacted, so its records expire."""


def stream(
    spark: SparkSession,
    topic: str,
    options: Mapping[str, str],
    *,
    key: Column | str = KEY,
    value: Column | str = VALUE,
    streaming: bool = True,
) -> DataFrame:
    """The records of a topic (or several, separated by commas), each a fact of its own.

    `key` and `value` are expressions that decode these columns: `value="CAST(value AS STRING)"`; or pass the result to
    `decode_json` or `decode_avro`. `options` are those of `format("ottla")`, such as `kafka.bootstrap.servers`. Without
    `startingOffsets`, a stream starts at the earliest record. `streaming=False` reads what there is now.
    """
    for option in options:
        if option.lower() in {name.lower() for name in _OWN_OPTIONS}:
            raise StreamError(f"option {option} cannot be set: pass the topics as the second argument")
    if not any(name.lower().startswith("starting") for name in options):
        options = {**options, "startingOffsets": "earliest"}
    reader = spark.readStream.format("ottla") if streaming else spark.read.format("ottla")
    records = reader.options(**options, subscribe=topic).load()
    return records.select(
        _expression(key).alias(KEY),
        _expression(value).alias(VALUE),
        *COLUMNS[2:],
        *[name for name in records.columns if name == "headers"],
    )


def table(
    spark: SparkSession,
    topic: str,
    options: Mapping[str, str],
    *,
    key: Column | str = KEY,
    value: Column | str = VALUE,
    null_keys: NullKeys = "skip",
    streaming: bool = True,
) -> DataFrame:
    """The changes of a table, from a compacted topic: the last record of a key is its value, and a null value deletes
    the key.

    Arguments as for `stream`. Records without a key belong to no row: they are skipped and counted (the observed metric
    `ottla.table.TOPIC`, `skipped_null_keys`), or fail the query with `null_keys="fail"`. If a program reads a topic as
    several tables, with other arguments, the metric of the second one is `ottla.table.TOPIC.2`.

    Warns with `NotCompactedWarning` if the topic is not compacted. With `streaming=False`, the result has all changes
    that are still in the topic; `latest` reduces them to the rows of the table.
    """
    if null_keys not in ("skip", "fail"):
        raise StreamError(f"null_keys must be 'skip' or 'fail', not {null_keys!r}")
    if "," in topic:
        raise StreamError(f"a table has one topic, not {topic!r}: merge several tables with merge()")
    _warn_unless_compacted(topic, options)
    changes = stream(spark, topic, options, key=key, value=value, streaming=streaming)
    if null_keys == "fail":
        words = F.format_string(
            f"table {topic}: the record at offset %d of partition %d has no key. Write it with a key, or skip such "
            "records with null_keys='skip'",
            F.col("offset"),
            F.col("partition"),
        )
        checked = F.when(F.col(KEY).isNull(), F.raise_error(words)).otherwise(F.col(KEY))
        return changes.withColumn(KEY, checked).where(F.col(KEY).isNotNull())
    name = _metric_name(topic, f"{sorted(options.items())} {key} {value} {streaming}")
    counted = changes.observe(name, F.count_if(F.col(KEY).isNull()).alias("skipped_null_keys"))
    return counted.where(F.col(KEY).isNotNull())


def _metric_name(topic: str, reading: str) -> str:
    """Spark wants different names in a query, unless the DataFrames are the same."""
    readings = _readings.setdefault(topic, [])
    if reading not in readings:
        readings.append(reading)
    number = readings.index(reading) + 1
    return f"ottla.table.{topic}" if number == 1 else f"ottla.table.{topic}.{number}"


def _expression(given: Column | str) -> Column:
    return F.expr(given) if isinstance(given, str) else given


def _warn_unless_compacted(topic: str, options: Mapping[str, str]) -> None:
    settings = ReadOptions.parse({**options, "subscribe": topic}).admin_settings
    resource = ConfigResource.topic(topic)
    with Admin(settings) as admin:
        try:
            configs = admin.describe_configs([resource], keys=["cleanup.policy"])
        except RefusedError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                create = f"ottla topics create {topic} --config cleanup.policy=compact"
                raise StreamError(f"table {topic}: the topic does not exist. Create it with `{create}`") from None
            raise StreamError(f"table {topic}: cannot read the config of the topic: {error}") from None
    policy = configs[resource]["cleanup.policy"].value or ""
    if "compact" not in policy.split(","):
        warnings.warn(
            f"table {topic}: the topic has cleanup.policy={policy}, so the broker deletes records by age or size, and "
            "a query that starts later does not see the rows whose last record is gone. Set cleanup.policy=compact.",
            NotCompactedWarning,
            stacklevel=3,
        )
