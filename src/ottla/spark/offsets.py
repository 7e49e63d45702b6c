"""Offsets of partitions, and the positions that options specify; as JSON, in the form of Spark's connector.

Offsets of a stream, in checkpoints and progress: `{"@id:topic:ID": {}, "topic": {"0": 23, "1": 17}}`, where 23 is the
next to be read. The ids distinguish a topic from an earlier one with the same name. Checkpoints without them can be
read as well, and Spark's own connector can read checkpoints with them: it sees topics without partitions, with names
that no topic can have. In options, -2 means the earliest offset and -1 the latest. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.base.ids import TopicPartition

EARLIEST_OFFSET: Final = -2
LATEST_OFFSET: Final = -1

PartitionOffsets = dict[TopicPartition, int]
TopicIds = dict[str, str]
JsonOffsets = dict[str, dict[str, Any]]

_ID_MARK: Final = "@id:"

_OFFSETS_EXAMPLE: Final = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_TIMES_EXAMPLE: Final = '{"topicA":{"0":1700000000000,"1":1700000000000}}'
_PARTITIONS_EXAMPLE: Final = '{"topicA":[0,1],"topicB":[2,4]}'


# Positions.


@dataclass(frozen=True, slots=True)
class Earliest:
    """The start of every partition."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end of every partition, after its last record."""


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition, which may be -2 or -1."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimes:
    """In each partition, the first record at or after its time."""

    times_ms: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTime:
    """In every partition, the first record at or after one time."""

    time_ms: int


Position = Earliest | Latest | AtOffsets | AtTimes | AtTime


# Parsing options. Each function raises a ValueError that says what is wrong with the text, and what would be right.


def parse_offsets(text: str) -> PartitionOffsets:
    """Offsets for each partition, including -2 and -1."""
    offsets = _numbers(text, _OFFSETS_EXAMPLE)
    for partition, offset in offsets.items():
        if offset < EARLIEST_OFFSET:
            raise ValueError(f"{offset} of {partition} is not an offset; use -2 for the earliest and -1 for the latest")
    return offsets


def parse_times(text: str) -> PartitionOffsets:
    """Times in milliseconds for each partition."""
    times_ms = _numbers(text, _TIMES_EXAMPLE)
    for partition, time_ms in times_ms.items():
        if time_ms < 0:
            raise ValueError(f"{time_ms} of {partition} is not a timestamp in milliseconds since the epoch")
    return times_ms


def parse_partitions(text: str) -> tuple[TopicPartition, ...]:
    """Partitions, sorted and without duplicates."""
    found: set[TopicPartition] = set()
    for topic, indexes in _topics(text, _PARTITIONS_EXAMPLE).items():
        if not isinstance(indexes, list) or not all(type(index) is int and index >= 0 for index in indexes):
            raise ValueError(f"topic {topic!r} needs a list of partitions, for example {_PARTITIONS_EXAMPLE}")
        found.update(TopicPartition(topic, index) for index in indexes)
    if not found:
        raise ValueError(f"names no partition; use, for example, {_PARTITIONS_EXAMPLE}")
    return tuple(sorted(found))


def _numbers(text: str, example: str) -> PartitionOffsets:
    found: PartitionOffsets = {}
    for topic, by_index in _topics(text, example).items():
        if not isinstance(by_index, dict):
            raise ValueError(f"topic {topic!r} needs a number for each of its partitions, for example {example}")
        for index, number in by_index.items():
            if not index.isascii() or not index.isdecimal() or type(number) is not int:
                wrong = f"{json.dumps(index)}: {json.dumps(number)} of topic {topic!r}"
                raise ValueError(f"{wrong} is not a partition and a number, for example {example}")
            found[TopicPartition(topic, int(index))] = number
    return found


def _topics(text: str, example: str) -> dict[str, object]:
    try:
        topics = json.loads(text)
    except ValueError:
        topics = None
    if not isinstance(topics, dict):
        raise ValueError(f"{text!r} is not a JSON object such as {example}")
    return topics


# Offsets of a stream.


def to_json(offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, str] | None = None) -> JsonOffsets:
    """In the order of topics and partitions: Spark compares offsets as text. Contains only the ids of the named
    topics."""
    ids = topic_ids or {}
    topics = sorted({topic for topic, _ in offsets} & ids.keys())
    found: JsonOffsets = {f"{_ID_MARK}{topic}:{ids[topic]}": {} for topic in topics}
    for (topic, index), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(index)] = offset
    return found


def from_json(topics: Mapping[str, Mapping[str, Any]]) -> PartitionOffsets:
    return {
        TopicPartition(topic, int(index)): offset
        for topic, by_index in topics.items()
        for index, offset in by_index.items()
    }


def ids_from_json(topics: Mapping[str, Mapping[str, Any]]) -> TopicIds:
    """The ids of the topics that have one: old brokers and older checkpoints have none."""
    marked = (key[len(_ID_MARK) :].rsplit(":", 1) for key in topics if key.startswith(_ID_MARK))
    return {found[0]: found[1] for found in marked if len(found) == 2}


def recreated(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    """Topics that had another id before."""
    return {topic for topic in before.keys() & after.keys() if before[topic] != after[topic]}


def named(partitions: Iterable[TopicPartition], most: int = 10) -> str:
    """Partitions for a message, with a limit on their number."""
    ordered = sorted(partitions)
    more = f" and {len(ordered) - most} more" if len(ordered) > most else ""
    return ", ".join(map(str, ordered[:most])) + more
