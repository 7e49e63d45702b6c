"""Which records `ottla consume` prints: where it starts and where it stops, for each partition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from ottla.base.ids import TopicPartition
from ottla.cli.session import CommandError
from ottla.cli.times import milliseconds

if TYPE_CHECKING:
    from ottla.client.consume import AsyncConsumer

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

Bounds = dict[TopicPartition, tuple[int, int | None]]
"""The first offset of each partition, and the end offset (exclusive); None means no end."""


@dataclass(slots=True)
class Range:
    """The parsed options."""

    start: int | str = LATEST
    """An offset; a negative one counts back from the end."""
    partitions: list[int] = field(default_factory=list)
    """All partitions if empty."""
    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def parse(cls, offset: str | None, partitions: list[int]) -> Range:
        if offset is None or offset in (EARLIEST, LATEST):
            return cls(offset or LATEST, partitions)
        try:
            return cls(int(offset), partitions)
        except ValueError:
            raise ValueError(f"--offset must be earliest, latest or an integer, not {offset!r}") from None

    @property
    def reset(self) -> str:
        """Where a group without committed offsets starts."""
        return str(self.start)

    def check_for_group(self) -> None:
        """Rejects options that contradict --group: a group has its own offsets and partitions."""
        given = {
            f"--offset {self.start}": isinstance(self.start, int),
            "--since": self.since is not None,
            "--until": self.until is not None,
            "--partition": bool(self.partitions),
        }
        for option, is_given in given.items():
            if is_given:
                raise CommandError(
                    f"{option} cannot be used with --group: the group decides which partitions and offsets its members "
                    "read. Use `ottla groups reset-offsets` to change its offsets"
                )

    async def bounds(self, consumer: AsyncConsumer, topics: Iterable[str], *, is_endless: bool) -> Bounds:
        """Looked up once, at the start."""
        chosen = [one for topic in topics for one in await self._chosen(consumer, topic)]
        first, end = await consumer.beginning_offsets(chosen), await consumer.end_offsets(chosen)
        starts = await self._starts(consumer, first, end)
        if self.until is not None:
            ends = await _at_time(consumer, self.until, end)
            return {partition: (starts[partition], ends[partition]) for partition in chosen}
        return {partition: (starts[partition], None if is_endless else end[partition]) for partition in chosen}

    async def _chosen(self, consumer: AsyncConsumer, topic: str) -> list[TopicPartition]:
        info = await consumer.partitions_for(topic)
        count = len(info.partitions)
        for index in self.partitions:
            if index >= count:
                has = "has only partition 0" if count == 1 else f"has partitions 0 to {count - 1}"
                raise CommandError(f"topic {topic} has no partition {index}: it {has}")
        wanted = self.partitions or range(count)
        return [TopicPartition(topic, one.index) for one in info.partitions if one.index in wanted]

    async def _starts(
        self, consumer: AsyncConsumer, first: dict[TopicPartition, int], end: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        if self.since is not None:
            return await _at_time(consumer, self.since, end)
        if self.start == LATEST and self.until is None:
            return end
        if isinstance(self.start, str):
            return first  # an end in the past without a start: consume from the beginning
        if self.start < 0:
            return {partition: max(first[partition], end[partition] + self.start) for partition in first}
        for partition in first:
            if not first[partition] <= self.start <= end[partition]:
                has = f"has offsets {first[partition]} to {end[partition] - 1}"
                if first[partition] == end[partition]:
                    has = f"is empty; its log end offset is {end[partition]}"
                raise CommandError(f"offset {self.start} is out of range: partition {partition} {has}")
        return dict.fromkeys(first, self.start)


async def _at_time(
    consumer: AsyncConsumer, time: datetime, end: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The first offset at or after this time; the log end offset if all records are older."""
    found = await consumer.offsets_for_times(dict.fromkeys(end, milliseconds(time)))
    return {partition: end[partition] if one is None else one.offset for partition, one in found.items()}
