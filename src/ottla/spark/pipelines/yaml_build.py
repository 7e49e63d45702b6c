"""Creates the queries of a YAML pipeline: sources and transformations as views, sinks as writers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from ottla.base.errors import OttlaError
from ottla.spark.codecs.avro_columns import decode_avro, encode_avro
from ottla.spark.codecs.json_columns import decode_json, encode_json
from ottla.spark.failed_records import dead_letters
from ottla.spark.pipelines.causes import root_cause
from ottla.spark.pipelines.yaml_spec import DROP, FAIL, ONCE, PipelineSpec, SinkSpec, SourceSpec
from ottla.spark.updates import write_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from ottla.spark.codecs.sides import OnError
    from ottla.spark.pipelines.yaml_document import Value

_VALUE: Final = "value"


def build(spec: PipelineSpec, spark: SparkSession) -> dict[str, DataStreamWriter]:
    """Returns the streaming queries by name, not started. Batch sinks are written immediately."""
    writers: dict[str, DataStreamWriter] = {}
    for source in spec.sources:
        with _told_at(source.place):
            frame, bad = _source(source, spark)
            frame.createOrReplaceTempView(source.name)
        if bad is not None and source.bad not in (DROP, FAIL):
            _send_bad(source, bad, writers)
    for transform in spec.transforms:
        with _told_at(transform.place):
            spark.sql(transform.sql).createOrReplaceTempView(transform.name)
    for sink in spec.sinks:
        with _told_at(sink.place):
            frame = _encoded(spark.table(f"`{sink.view}`"), sink)
            if frame.isStreaming:
                writers[sink.name] = _stream_writer(frame, sink)
            else:
                _write_batch(frame, sink)
    return writers


@contextmanager
def _told_at(place: Value) -> Iterator[None]:
    """Adds the place in the file to any error."""
    try:
        yield
    except (PySparkException, OttlaError, ValueError) as error:
        raise place.error(root_cause(error)) from error


def _source(source: SourceSpec, spark: SparkSession) -> tuple[DataFrame, DataFrame | None]:
    """The view, and the rows of a decoded topic that could not be read."""
    reader = spark.readStream if source.is_stream else spark.read
    reader = reader.format(source.format).options(**source.options)
    if source.schema is not None:
        reader = reader.schema(source.schema)
    frame = reader.load(source.path) if source.path is not None else reader.load()
    bad: DataFrame | None = None
    on_error: OnError = "fail" if source.bad == FAIL else "set_aside"
    if source.json is not None:
        good, bad = decode_json(frame, source.json, on_error=on_error)
        frame = _flat(good)
    elif source.avro is not None:
        good, bad = decode_avro(frame, source.avro, on_error=on_error)
        frame = _flat(good)
    if source.watermark is not None:
        frame = frame.withWatermark(source.watermark.column, source.watermark.delay)
    return frame, bad


def _flat(good: DataFrame) -> DataFrame:
    """Fields as columns; other columns of the record get the prefix `_`. Tombstones are dropped."""
    others = [F.col(name).alias(f"_{name}") for name in good.columns if name != _VALUE]
    return good.where(F.col(_VALUE).isNotNull()).select(f"{_VALUE}.*", *others)


def _send_bad(source: SourceSpec, bad: DataFrame, writers: dict[str, DataStreamWriter]) -> None:
    """Writes rows that cannot be read as dead letters."""
    rows = dead_letters(bad, source.bad or "")
    options = bad_options(source)
    with _told_at(source.place):
        if rows.isStreaming:
            writers[f"{source.name}-bad"] = rows.writeStream.format("ottla").options(**options)
        else:
            rows.write.format("ottla").options(**options).mode("append").save()


def bad_options(source: SourceSpec) -> dict[str, str]:
    """The options of the writer of bad records: the client configs of the source. What it needs to reach the cluster,
    its writer needs, too; and `kafka.max.request.size`, if records are large. The sink ignores those of consumers."""
    return {name: text for name, text in source.options.items() if name.lower().startswith("kafka.")}


def _encoded(frame: DataFrame, sink: SinkSpec) -> DataFrame:
    """Encodes rows for a topic; other sinks get them unchanged."""
    if not sink.is_topic or sink.raw:
        return frame
    columns = frame.columns
    if sink.key is not None:
        if sink.key not in columns:
            raise ValueError(f"key: unknown column {sink.key!r}; use one of {', '.join(columns)}")
        key = F.col(f"`{sink.key}`")
        packed = frame.select(
            F.struct(*(f"`{name}`" for name in columns)).alias(_VALUE), key.cast("string").alias("key")
        )
    else:
        packed = frame.select(F.struct(*(f"`{name}`" for name in columns)).alias(_VALUE))
    return encode_json(packed, _VALUE) if sink.avro is None else encode_avro(packed, sink.avro, _VALUE)


def _stream_writer(frame: DataFrame, sink: SinkSpec) -> DataStreamWriter:
    if sink.is_topic and sink.mode in ("update", "complete"):
        writer = write_stream(frame, **sink.options)
    else:
        writer = frame.writeStream.format(sink.format).options(**sink.options)
    if sink.mode == "overwrite":
        raise ValueError("mode: overwrite is for batch sinks; a stream supports append, update and complete")
    if sink.mode is not None:
        writer = writer.outputMode(sink.mode)
    if sink.path is not None:
        writer = writer.option("path", sink.path)
    if sink.trigger == ONCE:
        writer = writer.trigger(availableNow=True)
    elif sink.trigger is not None:
        writer = writer.trigger(processingTime=sink.trigger)
    return writer


def _write_batch(frame: DataFrame, sink: SinkSpec) -> None:
    mode = sink.mode or "append"
    if mode not in ("append", "overwrite"):
        raise ValueError(f"mode: {mode} is for streams; a batch sink supports append and overwrite")
    writer = frame.write.format(sink.format).options(**sink.options).mode(mode)
    if sink.path is not None:
        writer.save(sink.path)
    else:
        writer.save()
