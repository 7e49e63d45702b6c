"""A table as a compacted topic, which any Python process reads with `ottla.client.TableView`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from ottla.base.error_codes import ErrorCode
from ottla.client.administer import Admin, NewTopic
from ottla.client.administer.configs import ConfigResource
from ottla.client.config import ADMIN_CONFIG
from ottla.client.errors import RefusedError
from ottla.spark.options import WriteOptions
from ottla.spark.streams.frames import KEY, VALUE, StreamError, check_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_POLICY: Final = "cleanup.policy"


def queryable(
    table: DataFrame,
    topic: str,
    options: Mapping[str, str],
    *,
    partitions: int | None = None,
    replication_factor: int | None = None,
    configs: Mapping[str, str] | None = None,
) -> DataStreamWriter:
    """A stream writer that keeps the topic equal to the table: set `checkpointLocation`, and start it.

    Creates the topic with cleanup.policy=compact if it does not exist, with these numbers (by default, those of the
    brokers) and topic configs; an existing one must be compacted. `options` are those of the sink: with
    `exactlyOnce`, no view sees a row that a failed micro-batch wrote. Key and value must be strings or bytes.
    """
    check_frame(table, "table")
    types = {field.name: field.dataType.simpleString() for field in table.schema.fields}
    for name in (KEY, VALUE):
        if types[name] not in ("string", "binary"):
            raise StreamError(f"column {name} of table must be string or binary, not {types[name]}: encode it first")
    given = {**options, "topic": topic}
    all_configs = {_POLICY: "compact", **(configs or {})}
    _ensure(topic, given, NewTopic(topic, partitions, replication_factor, configs=all_configs))
    rows = table.where(F.col(KEY).isNotNull()).select(KEY, VALUE, "timestamp")
    return rows.writeStream.format("ottla").options(**given)


def _ensure(topic: str, options: Mapping[str, str], new: NewTopic) -> None:
    resource = ConfigResource.topic(topic)
    settings = WriteOptions.parse(options).client_settings
    with Admin({key: value for key, value in settings.items() if key in ADMIN_CONFIG}) as admin:
        try:
            admin.create_topics([new])
        except RefusedError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise StreamError(f"topic {topic} of a queryable table cannot be created: {error}") from None
        else:
            return
        policy = admin.describe_configs([resource], keys=[_POLICY])[resource][_POLICY].value or ""
    if "compact" not in policy.split(","):
        words = f"topic {topic} has {_POLICY}={policy}, so rows would disappear from the table"
        raise StreamError(f"{words}: set {_POLICY}=compact, or choose another topic")
