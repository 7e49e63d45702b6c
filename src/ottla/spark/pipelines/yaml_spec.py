"""The contents of a YAML pipeline: sources, transformations in SQL, sinks. Checked before Spark starts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.spark.pipelines.yaml_document import Section, Value, load

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
DROP: Final = "drop"
FAIL: Final = "fail"
ONCE: Final = "once"

_KEYS: Final = ("name", "bootstrap", "sources", "transforms", "sinks")
_TOPIC_KEYS: Final = ("topic", "pattern")
_SOURCE_KEYS: Final = (
    *_TOPIC_KEYS,
    "format",
    "path",
    "schema",
    "stream",
    "json",
    "avro",
    "bad",
    "watermark",
    "options",
)
_SINK_KEYS: Final = ("from", "topic", "format", "path", "key", "avro", "raw", "mode", "trigger", "options")
_STREAMING_FORMATS: Final = ("ottla", "kafka", "rate", "rate-micro-batch", "socket")
_GROUP_OPTIONS: Final = ("commitgroup", "commitoffsets", "groupidprefix", "kafka.group.id")
_NAME: Final = re.compile(r"\w+", re.ASCII)
_MODES: Final = ("append", "update", "complete", "overwrite")


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late rows may arrive, by the time in a column."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A view that SQL can use by its name."""

    name: str
    place: Value
    format: str
    options: Mapping[str, str]
    is_stream: bool
    path: str | None = None
    schema: str | None = None
    json: str | None = None
    avro: Path | None = None
    bad: str | None = None
    """The topic for rows that cannot be read; `drop` discards them, and `fail` stops the query."""
    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True)
class TransformSpec:
    """A view that SQL creates from earlier views."""

    name: str
    place: Value
    sql: str


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """Where to write a view."""

    name: str
    place: Value
    view: str
    format: str
    options: Mapping[str, str]
    mode: str | None
    trigger: str | None
    is_topic: bool
    path: str | None = None
    key: str | None = None
    avro: Path | None = None
    raw: bool = False


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """The whole file."""

    name: str
    sources: tuple[SourceSpec, ...]
    transforms: tuple[TransformSpec, ...]
    sinks: tuple[SinkSpec, ...]


def read_spec(file: Path, bootstrap: str | None = None) -> PipelineSpec:
    """Reads the pipeline from a file; `bootstrap` overrides the value from the file. Raises `SpecError`."""
    document = load(file)
    top = document.section(_KEYS)
    address = bootstrap or top.text("bootstrap") or DEFAULT_BOOTSTRAP
    title = top.text("name") or file.stem
    sources = tuple(_source(title, name, value, address) for name, value in _named(top, "sources"))
    transforms = tuple(
        TransformSpec(name, value, value.text())
        for name, value in (_named(top, "transforms") if "transforms" in top else ())
    )
    views = [source.name for source in sources]
    for transform in transforms:
        if transform.name in views:
            raise transform.place.error("a source already has this name")
    views += [transform.name for transform in transforms]
    # Spark ignores the case of views, and some file systems that of checkpoint directories.
    _refuse_alike([(one.name, one.place) for one in sources] + [(one.name, one.place) for one in transforms])
    found = _named(top, "sinks")
    _refuse_alike(found)
    sinks = tuple(_sink(name, value, address, views) for name, value in found)
    return PipelineSpec(title, sources, transforms, sinks)


def _named(top: Section, key: str) -> list[tuple[str, Value]]:
    value = top.get(key)
    if value is None:
        raise top.value.error(f"{key} are missing")
    found = list(value.mapping().items())
    if not found:
        raise value.error("at least one is required")
    for name, inner in found:
        if not _NAME.fullmatch(name):
            raise inner.error("a name must consist of letters, digits and _, so that it can be used in SQL")
    return found


def _refuse_alike(named: Sequence[tuple[str, Value]]) -> None:
    """Refuses names that differ only in case."""
    seen: dict[str, str] = {}
    for name, place in named:
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            raise place.error(f"differs from {other} only in case, which Spark ignores: use another name")


def _source(title: str, name: str, value: Value, bootstrap: str) -> SourceSpec:
    keys = value.section(_SOURCE_KEYS)
    kind = keys.one_of(*_TOPIC_KEYS, "format")
    if kind in _TOPIC_KEYS:
        _refuse(keys, ("path", "schema"), "belongs to a source with a format, not to a topic")
        chosen = keys.get(kind)
        text = ",".join(item.text() for item in chosen.items()) if chosen else ""
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe" if kind == "topic" else "subscribePattern": text}
        if not any(key.lower() in _GROUP_OPTIONS for key in keys.texts("options")):
            options["commitGroup"] = f"{title}-{name}"  # so that lag is visible under the pipeline's name
        source_format = "ottla"
    else:
        _refuse(keys, ("json", "avro", "bad"), "belongs to a topic, not to a source with a format")
        options, source_format = {}, keys.text("format") or ""
    stream = keys.get("stream")
    is_stream = source_format in _STREAMING_FORMATS if stream is None else stream.truth()
    return SourceSpec(
        name,
        value,
        source_format,
        options | keys.texts("options"),
        is_stream,
        _beside(keys, "path"),
        keys.text("schema"),
        keys.text("json"),
        _schema_file(keys),
        _bad(keys),
        _watermark(keys),
    )


def _bad(keys: Section) -> str | None:
    decoded = [key for key in ("json", "avro") if key in keys]
    if len(decoded) > 1:
        raise keys.value.error("only one of json and avro can be given")
    if decoded and "bad" not in keys:
        raise keys.value.error(f"bad is missing: set it to a topic for bad records, to `{DROP}`, or to `{FAIL}`")
    bad = keys.get("bad")
    if bad is not None and not decoded:
        raise bad.error("bad needs json or avro")
    return keys.text("bad")


def _watermark(keys: Section) -> Watermark | None:
    value = keys.get("watermark")
    if value is None:
        return None
    inner = value.section(("column", "delay"))
    column, delay = inner.text("column"), inner.text("delay")
    if column is None or delay is None:
        raise value.error("column and delay are required, for example {column: at, delay: 1 minute}")
    return Watermark(column, delay)


def _sink(name: str, value: Value, bootstrap: str, views: list[str]) -> SinkSpec:
    keys = value.section(_SINK_KEYS)
    is_topic = keys.one_of("topic", "format") == "topic"
    options: dict[str, str] = {}
    if is_topic:
        _refuse(keys, ("path",), "belongs to a sink with a format, not to a topic")
        options = {"kafka.bootstrap.servers": bootstrap, "topic": keys.text("topic") or ""}
    else:
        _refuse(keys, ("key", "avro", "raw"), "belongs to a topic, not to a sink with a format")
    raw = keys.get("raw")
    is_raw = raw is not None and raw.truth()
    if is_raw:
        _refuse(
            keys, ("key", "avro"), "cannot be used with raw, which writes the columns key, value and so on unchanged"
        )
    mode = keys.get("mode")
    return SinkSpec(
        name,
        value,
        _view(keys, views),
        "ottla" if is_topic else keys.text("format") or "",
        options | keys.texts("options"),
        None if mode is None else mode.choice(*_MODES),
        keys.text("trigger"),
        is_topic,
        _beside(keys, "path"),
        keys.text("key"),
        _schema_file(keys),
        is_raw,
    )


def _view(keys: Section, views: list[str]) -> str:
    """The view that a sink writes; the last one by default."""
    value = keys.get("from")
    if value is None:
        return views[-1]
    name = value.text()
    if name not in views:
        close = difflib.get_close_matches(name, views, n=1)
        hint = f"did you mean {close[0]}?" if close else f"use one of {', '.join(views)}"
        raise value.error(f"unknown source or transform {name!r}; {hint}")
    return name


def _refuse(keys: Section, names: tuple[str, ...], reason: str) -> None:
    for name in names:
        value = keys.get(name)
        if value is not None:
            raise value.error(reason)


def _beside(keys: Section, key: str) -> str | None:
    """Resolves a path relative to the directory of the file."""
    value = keys.get(key)
    if value is None:
        return None
    text = value.text()
    return text if "://" in text else str(value.file.absolute().parent / text)


def _schema_file(keys: Section) -> Path | None:
    value = keys.get("avro")
    if value is None:
        return None
    file = value.file.absolute().parent / value.text()
    if not file.is_file():
        raise value.error(f"the file {file} does not exist")
    return file
