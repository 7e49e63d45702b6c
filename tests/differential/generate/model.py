"""What the generator believes to be true on a broker, so that most of what it asks makes sense.

It never sees an answer: dialogues depend on the seed alone. Where it is wrong, a request asks for something that is not
there, which is worth asking as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from differential.dialogue import Step

T = TypeVar("T")
Range = tuple[int, int]


@dataclass
class Partition:
    """Its batches: first offset and bytes of each, as far as appends succeed."""

    batches: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0
    start: int = 0

    def append(self, count: int, size: int) -> None:
        self.batches.append((self.end, size))
        self.end += count


@dataclass
class Topic:
    key: str
    partitions: list[Partition]
    config: dict[str, str]
    exists: bool = True

    @property
    def name(self) -> str:
        return f"$topic:{self.key}"

    @property
    def id(self) -> str:
        return f"$id:{self.key}"

    @property
    def recompresses(self) -> bool:
        return self.config.get("compression.type", "producer") != "producer"


@dataclass
class Producer:
    name: str
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)
    epoch: int = 0

    @property
    def id(self) -> str:
        return f"$pid:{self.name}"


@dataclass
class Member:
    """Of a group; each has a connection of its own, since joins wait."""

    name: str
    group: str
    connection: int
    instance_id: str | None = None
    is_in: bool = False
    waits: bool = False


@dataclass
class Session:
    name: str
    epoch: int
    partitions: set[tuple[str, int]]
    version: int


class Draft:
    """A dialogue in the making."""

    def __init__(self, source: Random, versions: Mapping[str, Range], *, restarts: bool = False) -> None:
        self.source = source
        self._versions = versions
        self.restarts = restarts
        self.steps: list[Step] = []
        self.topics: list[Topic] = []
        self.producers: list[Producer] = []
        self.members: list[Member] = []
        self.sessions: list[Session] = []

    # --- chance -------------------------------------------------------------------------------------------------------

    def maybe(self, share: float) -> bool:
        return self.source.random() < share

    def choose(self, options: Sequence[T]) -> T:
        return self.source.choice(options)

    def weighted(self, options: Mapping[T, float]) -> T:
        return self.source.choices(list(options), list(options.values()))[0]

    def number(self, low: int, high: int) -> int:
        return self.source.randint(low, high)

    # --- steps --------------------------------------------------------------------------------------------------------

    def serves(self, api: str) -> bool:
        return api in self._versions

    def version(self, api: str, low: int = 0, high: int = 99) -> int:
        """The newest often, any other as well."""
        first, last = self._versions[api]
        first = max(first, low)
        last = max(min(last, high), first)
        return last if self.maybe(0.4) else self.number(first, last)

    def newest(self, api: str) -> int:
        return self._versions[api][1]

    def ask(self, api: str, version: int, request: dict[str, Any], **more: Any) -> None:
        self.steps.append({"api": api, "version": version, **more, "request": request})

    # --- what there is ------------------------------------------------------------------------------------------------

    def topic(self) -> Topic:
        return self.choose(self.topics)

    def place(self) -> tuple[Topic, int]:
        """A partition, seldom one that is not there."""
        topic = self.topic()
        count = len(topic.partitions)
        return topic, self.number(0, count - 1) if self.maybe(0.97) else count + self.number(0, 2)

    def partition(self, topic: Topic, index: int) -> Partition:
        return topic.partitions[index] if index < len(topic.partitions) else Partition()

    def leader_epoch(self, topic: Topic) -> int | str:
        """To be checked by the broker: mostly not given, or right."""
        kind = self.weighted({"none": 6, "right": 2, "newer": 1, "older": 0.5})
        if kind == "none":
            return -1
        if kind == "right":
            return f"$leader:{topic.key}"
        if kind == "newer":
            return f"$leader:{topic.key}:{self.choose([1, 5])}"
        return -2 if not self.restarts else -1

    def offset(self, partition: Partition) -> int:
        """Most often one that is there; the ends, and beyond them."""
        around = [partition.start, partition.end, *(first for first, _ in partition.batches)]
        kind = self.weighted({"batch": 6, "near": 2, "start": 3, "any": 1, "far": 0.5, "negative": 0.3})
        if kind == "batch":
            return self.choose(around)
        if kind == "near":
            return max(self.choose(around) + self.choose([-1, 1]), 0)
        if kind == "start":
            return partition.start
        if kind == "any":
            return self.number(0, partition.end + 2)
        return partition.end + self.choose([1, 100, 2**40]) if kind == "far" else self.choose([-1, -2, -5])
