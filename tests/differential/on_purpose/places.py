"""Which partition or group a difference is about, and what the dialogue did to it before."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from differential.comparison import Difference, Exchange
from differential.dialogue import Step

Batch = dict[str, Any]
_TOKEN = re.compile(r"^(.*?)((?:\[\d+\])*)$")
_TOPICS = ("name", "topic", "topic_id")
_PARTITIONS = ("partition_index", "partition", "index")


@dataclass(frozen=True)
class Place:
    """A partition. Topics have the same key by their names, by their ids and in requests."""

    topic: str
    partition: int


def topic_key(text: str) -> str:
    for start in ("$topic:", "$id:", "$-t"):
        if text.startswith(start):
            return text.removeprefix(start)
    return text


def structs(found: Difference, tree: Any = None) -> Iterator[dict[str, Any]]:
    """Those of our answer, or of another tree, on the way to the field that differs; the innermost comes last."""
    value = found.our_tree if tree is None else tree
    for part in found.path.split("/"):
        match = _TOKEN.match(part)
        if match is None or not isinstance(value, dict):
            return
        yield value
        value = value.get(match[1])
        for index in re.findall(r"\d+", match[2]):
            if not isinstance(value, list) or int(index) >= len(value):
                return
            value = value[int(index)]


def place(found: Difference) -> Place | None:
    topic, partition = None, None
    for struct in structs(found):
        topic = next((struct[key] for key in _TOPICS if isinstance(struct.get(key), str)), topic)
        partition = next((struct[key] for key in _PARTITIONS if isinstance(struct.get(key), int)), partition)
    return None if topic is None or partition is None else Place(topic_key(topic), partition)


def innermost(found: Difference, tree: Any = None) -> dict[str, Any]:
    """In which the field is, in our answer or in another tree."""
    return next(iter(deque(structs(found, tree), 1)), {})


# --- what was sent ----------------------------------------------------------------------------------------------------


def produced(step: Step) -> Iterator[tuple[Place, list[Batch] | None]]:
    """What a step sends to each partition."""
    if step.get("api") != "Produce":
        return
    for topic in step["request"]["topic_data"]:
        for each in topic["partition_data"]:
            yield Place(topic_key(topic["name"]), each["index"]), each.get("records")


def sent_here(found: Difference) -> list[Batch]:
    """By this step, to the partition that the difference is about."""
    here = place(found)
    return [batch for where, batches in produced(found.step) if where == here for batch in batches or ()]


def sent_before(found: Difference) -> list[Batch]:
    """By earlier steps, to the partition that the difference is about."""
    here = place(found)
    return [
        batch
        for exchange in found.history
        for where, batches in produced(exchange.step)
        if where == here
        for batch in batches or ()
    ]


def asked_before(found: Difference, *apis: str) -> list[Exchange]:
    return [each for each in found.history if each.api in apis]


def settings(found: Difference, topic: str) -> dict[str, set[str]]:
    """All values that the dialogue has given the configs of a topic so far."""
    values: dict[str, set[str]] = {}
    for exchange in found.history:
        for name, configs in configured(exchange):
            if topic_key(name) == topic:
                for config in configs:
                    values.setdefault(config["name"], set()).add(str(config.get("value")))
    return values


def configured(exchange: Exchange) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The topics to which a request gives configs, and these."""
    if exchange.api == "CreateTopics":
        for topic in exchange.request["topics"]:
            yield topic["name"], topic.get("configs", [])
    elif exchange.api in ("AlterConfigs", "IncrementalAlterConfigs"):
        for resource in exchange.request["resources"]:
            yield resource["resource_name"], resource["configs"]


def setting_here(found: Difference, *names: str) -> set[str]:
    """All values that any of these configs has had in the topic that the difference is about."""
    here = place(found)
    values = {} if here is None else settings(found, here.topic)
    return {value for name in names for value in values.get(name, ())}


def deleted_records_here(found: Difference) -> bool:
    here = place(found)
    return any(
        Place(topic_key(topic["name"]), each["partition_index"]) == here
        for exchange in asked_before(found, "DeleteRecords")
        for topic in exchange.request["topics"]
        for each in topic["partitions"]
    )
