"""The options of a query for the source or the sink: checked and typed, with the names of Spark's own connector. Pure.

PySpark passes options in lower case. An unknown option is an error that names the closest one; one that belongs to the
other direction is ignored, because jobs share their options between reading and writing. An option that begins with
`kafka.` is passed to the client without the prefix: Java's names, if our clients know them.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ottla.base.config import ConfigError, ConfigSchema
from ottla.base.errors import OttlaError
from ottla.base.ids import TopicPartition
from ottla.client.config import ADMIN_CONFIG, CONSUMER_CONFIG, PRODUCER_CONFIG, ConsumerConfig, ProducerConfig
from ottla.client.config_keys.elsewhere import OWNERS
from ottla.spark.exactly_once.settings import ExactlyOnceOptions
from ottla.spark.offsets import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AtOffsets,
    AtTime,
    AtTimes,
    Earliest,
    Latest,
    Position,
    parse_offsets,
    parse_partitions,
    parse_times,
)
from ottla.spark.option_keys import READ_OPTIONS, SPARKS_OWN, WRITE_OPTIONS, duration_ms

T = TypeVar("T")

_PREFIX: Final = "kafka."
_NAMES: Final = {key.name.lower(): key.name for schema in (READ_OPTIONS, WRITE_OPTIONS) for key in schema}
_WAYS_TO_CHOOSE: Final = ("subscribe", "subscribePattern", "assign")

_NOT_FOR_READING: Final = {
    "auto.offset.reset": "the query manages its own offsets: use startingOffsets",
    "enable.auto.commit": "the query manages its own offsets: use commitGroup to show them in a group",
    "interceptor.classes": "interceptors could change records",
    "key.deserializer": "keys are binary: decode them in the DataFrame",
    "value.deserializer": "values are binary: decode them in the DataFrame",
}
_ID: Final = "transactional.id"
_NOT_FOR_WRITING: Final = {
    _ID: "tasks need an id each: set exactlyOnce, and transactionalIdPrefix if ids need a prefix",
    "key.serializer": "keys are written as they are in the column, binary or string",
    "value.serializer": "values are written as they are in the column, binary or string",
}


_TRANSACTION_TIMEOUT_MS: Final = "900000"
"""As long as Kafka's brokers allow: the driver may have to be restarted within this time."""


class OptionError(ConfigError, OttlaError):
    """An option that does not exist, or an invalid value."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"option {option}", reason)


@dataclass(frozen=True, slots=True)
class Topics:
    """All partitions of these topics."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of topics whose names contain a match of the expression."""

    expression: str


@dataclass(frozen=True, slots=True)
class Partitions:
    """Exactly these partitions."""

    partitions: tuple[TopicPartition, ...]


Selection = Topics | SubscribePattern | Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What to read, and how. Created by `parse`."""

    selection: Selection
    starting: Position | None
    """None: the default, which differs between a batch and a stream."""
    ending: Position | None
    latest_if_none_is_newer: bool
    fail_on_data_loss: bool
    include_headers: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    commit_group: str | None
    """None: progress is not committed."""
    ask_attempts: int
    ask_interval_ms: int
    partitions_age_max_ms: int | None
    client_settings: Mapping[str, str]
    """The config of a consumer without a group."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Checks what applies to batches and streams; `batch_ends` and `stream_start` check what applies to one."""
        values, given, settings = _split(options, READ_OPTIONS, CONSUMER_CONFIG, _NOT_FOR_READING)
        selection = _selection(values)
        low, high = values["minOffsetsPerTrigger"], values["maxOffsetsPerTrigger"]
        if low is not None and high is not None and low > high:
            raise OptionError("minOffsetsPerTrigger", f"{low} is greater than maxOffsetsPerTrigger, which is {high}")
        group_id = settings.pop("group.id", None)
        _check_client(ConsumerConfig.parse, settings)
        if "kafkaConsumer.pollTimeoutMs" in given:
            settings.setdefault("default.api.timeout.ms", str(values["kafkaConsumer.pollTimeoutMs"]))
        group = values["commitGroup"] or group_id or f"{values['groupIdPrefix']}-{_digest(selection)}"
        ttl_ms = values["partition.metadata.cache.ttl.ms"]
        return cls(
            selection=selection,
            starting=_position(values, "starting"),
            ending=_position(values, "ending"),
            latest_if_none_is_newer=values["startingOffsetsByTimestampStrategy"].lower() == "latest",
            fail_on_data_loss=values["failOnDataLoss"],
            include_headers=values["includeHeaders"],
            min_partitions=values["minPartitions"],
            max_records_per_partition=values["maxRecordsPerPartition"],
            max_offsets_per_trigger=high,
            min_offsets_per_trigger=low,
            max_trigger_delay_ms=duration_ms(values["maxTriggerDelay"]),
            commit_group=group if values["commitOffsets"] else None,
            ask_attempts=values["fetchOffset.numRetries"],
            ask_interval_ms=values["fetchOffset.retryIntervalMs"],
            partitions_age_max_ms=None if ttl_ms == -1 else ttl_ms,
            client_settings=settings,
        )

    @property
    def is_read_committed(self) -> bool:
        return self.client_settings.get("isolation.level", "").strip() == "read_committed"

    @property
    def admin_settings(self) -> dict[str, str]:
        """The config of the driver's client, which has fewer keys."""
        return {key: value for key, value in self.client_settings.items() if key in ADMIN_CONFIG}

    def batch_ends(self) -> tuple[Position, Position]:
        """Returns where a batch begins and ends."""
        starting, ending = self.starting or Earliest(), self.ending or Latest()
        if isinstance(starting, Latest) or _stands_at(starting, LATEST_OFFSET):
            raise OptionError(
                "startingOffsets", "a batch query cannot start at latest (-1): there would be nothing to read"
            )
        if isinstance(ending, Earliest) or _stands_at(ending, EARLIEST_OFFSET):
            raise OptionError(
                "endingOffsets", "a batch query cannot end at earliest (-2): there would be nothing to read"
            )
        _check_order(starting, ending)
        return starting, ending

    def stream_start(self) -> Position:
        """Returns where a stream without a checkpoint begins."""
        if self.ending is not None:
            reason = (
                "a streaming query has no end: do not set endingOffsets, endingTimestamp or endingOffsetsByTimestamp"
            )
            raise OptionError("endingOffsets", reason)
        return self.starting or Latest()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where to write rows. Created by `parse`."""

    topic: str | None
    """None: a column contains the topic of each row."""
    results_path: str | None
    client_settings: Mapping[str, str]
    """The config of a producer."""
    exactly_once: ExactlyOnceOptions | None = None
    """None: at least once."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        values, _, settings = _split(options, WRITE_OPTIONS, PRODUCER_CONFIG, _NOT_FOR_WRITING)
        if values["topic"] == "":
            raise OptionError("topic", "is empty: set a topic, or omit it and add a column topic")
        exactly_once = None
        if values["exactlyOnce"]:
            exactly_once = _exactly_once(values, settings)
        else:
            _check_client(ProducerConfig.parse, settings)
        return cls(
            topic=values["topic"],
            results_path=values["resultsPath"] or None,
            client_settings=settings,
            exactly_once=exactly_once,
        )


def _exactly_once(values: Mapping[str, Any], settings: Mapping[str, str]) -> ExactlyOnceOptions:
    own = dict(settings)

    def parsed() -> ProducerConfig:
        try:
            return ProducerConfig.parse({**own, _ID: values["transactionalIdPrefix"]})
        except ConfigError as error:
            option = "exactlyOnce" if error.key == _ID else f"{_PREFIX}{error.key}"
            raise OptionError(option, error.reason) from None

    config = parsed()
    if not config.transaction_two_phase_commit_enable:
        own.setdefault("transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS)
        config = parsed()
    if not values["commitTopic"]:
        raise OptionError("commitTopic", "is empty: set a topic, or omit it")
    if values["exactlyOnceId"] is not None and values["exactlyOnceJob"] is not None:
        raise OptionError("exactlyOnceJob", "is for batch jobs, and exactlyOnceId for foreachBatch: omit one of them")
    return ExactlyOnceOptions(
        name=values["exactlyOnceId"],
        job=values["exactlyOnceJob"],
        topic=values["commitTopic"],
        prefix=values["transactionalIdPrefix"],
        fail_on_data_loss=values["failOnDataLoss"],
        timeout_ms=config.transaction_timeout_ms,
        is_two_phase=config.transaction_two_phase_commit_enable,
        client_settings=own,
    )


# Names.


def _split(
    options: Mapping[str, str], schema: ConfigSchema, client: ConfigSchema, refused: Mapping[str, str]
) -> tuple[dict[str, Any], set[str], dict[str, str]]:
    """Returns the values of this direction's options, which of them were given, and the client's config."""
    given: dict[str, str] = {}
    settings: dict[str, str] = {}
    for spelled, text in options.items():
        lower = spelled.lower()
        name = _NAMES.get(lower, "")
        if lower.startswith(_PREFIX):
            settings[lower.removeprefix(_PREFIX)] = text
        elif name in schema:
            given[name] = text
        elif not name and lower not in SPARKS_OWN:
            raise OptionError(spelled, _unknown(lower, client))
    for key, reason in refused.items():
        if key in settings:
            raise OptionError(f"{_PREFIX}{key}", f"cannot be set: {reason}")
    if not settings.get("bootstrap.servers"):
        raise OptionError(
            "kafka.bootstrap.servers", "is required: set the address of a broker, for example localhost:9092"
        )
    others = [one for one in (CONSUMER_CONFIG, PRODUCER_CONFIG, ADMIN_CONFIG) if one is not client]
    for key in settings:
        if key not in client and key not in OWNERS and not any(key in one for one in others):
            raise OptionError(f"{_PREFIX}{key}", _unknown(f"{_PREFIX}{key}", client))
    values = {key.name: key.default for key in schema}
    values |= {name: _of(name, schema[name].parse, text) for name, text in given.items()}
    own = {key: text for key, text in settings.items() if key in client or not any(key in one for one in others)}
    return values, set(given), own


def _unknown(lower: str, client: ConfigSchema) -> str:
    candidates = {**_NAMES, **{f"{_PREFIX}{key.name}": f"{_PREFIX}{key.name}" for key in client}}
    likely = [f"{_PREFIX}{lower}"] if lower in client else difflib.get_close_matches(lower, candidates, n=1)
    hint = f"; did you mean {candidates[likely[0]]}?" if likely else "; client configs start with kafka."
    return f"unknown option{hint}"


def _check_client(parse: Callable[[Mapping[str, object]], T], settings: Mapping[str, str]) -> T:
    try:
        return parse(settings)
    except ConfigError as error:
        raise OptionError(f"{_PREFIX}{error.key}", error.reason) from None


# Values.


def _of(option: str, parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ConfigError as error:
        raise OptionError(option, error.reason) from None
    except ValueError as error:
        raise OptionError(option, str(error)) from None


def _selection(values: Mapping[str, Any]) -> Selection:
    chosen = [name for name in _WAYS_TO_CHOOSE if values[name] is not None]
    if not chosen:
        raise OptionError("subscribe", "is not set: set one of subscribe, subscribePattern and assign")
    if len(chosen) > 1:
        raise OptionError(chosen[1], f"cannot be combined with {chosen[0]}")
    option = chosen[0]
    text: str = values[option]
    if option == "assign":
        return Partitions(_of(option, parse_partitions, text))
    if option == "subscribe":
        names = tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
        if not names:
            raise OptionError(option, f"{text!r} names no topic")
        return Topics(names)
    if not text:
        raise OptionError(option, "is empty: every topic would match")
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(option, f"{text!r} is not a regular expression: {error}") from None
    return SubscribePattern(text)


def _position(values: Mapping[str, Any], which: str) -> Position | None:
    """Returns the position; options with precedence come first, as in Spark's connector."""
    by_time, offsets = f"{which}OffsetsByTimestamp", f"{which}Offsets"
    if values[f"{which}Timestamp"] is not None:
        return AtTime(values[f"{which}Timestamp"])
    if values[by_time] is not None:
        return AtTimes(_of(by_time, parse_times, values[by_time]))
    text: str | None = values[offsets]
    if text is None:
        return None
    if text.lower() == "earliest":
        return Earliest()
    if text.lower() == "latest":
        return Latest()
    if not text.startswith("{"):
        raise OptionError(offsets, f"{text!r} must be earliest, latest, or offsets as JSON")
    return AtOffsets(_of(offsets, parse_offsets, text))


def _stands_at(position: Position, offset: int) -> bool:
    return isinstance(position, AtOffsets) and offset in position.offsets.values()


def _check_order(starting: Position, ending: Position) -> None:
    """Checks what can be checked without asking a broker."""
    if isinstance(starting, AtOffsets) and isinstance(ending, AtOffsets):
        first, last, option, what = starting.offsets, ending.offsets, "endingOffsets", "offset"
    elif isinstance(starting, AtTimes) and isinstance(ending, AtTimes):
        first, last, option, what = starting.times_ms, ending.times_ms, "endingOffsetsByTimestamp", "time"
    else:
        return
    if first.keys() != last.keys():
        raise OptionError(option, "must name the same partitions as the start of the batch")
    for partition, begin in first.items():
        if begin > last[partition] >= 0:
            raise OptionError(option, f"{what} {last[partition]} of {partition} is before its start, {begin}")


def _digest(selection: Selection) -> str:
    """The same text at every start for queries that read the same."""
    match selection:
        case Topics(names):
            said: object = ["subscribe", sorted(names)]
        case SubscribePattern(expression):
            said = ["subscribePattern", expression]
        case Partitions(partitions):
            said = ["assign", [list(one) for one in partitions]]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:12]
