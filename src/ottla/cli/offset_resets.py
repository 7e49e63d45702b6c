"""Offset resets of a group: what the user asked for, and the resulting offset of each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.base.ids import TopicPartition
from ottla.cli.session import CommandError

if TYPE_CHECKING:
    from ottla.client.administer import AsyncAdmin

_FIELDS: Final = 3


class Ends(NamedTuple):
    """What is known about a partition: log start and end offsets, the committed offset, and the offset for the
    requested time."""

    first: int
    end: int
    committed: int | None
    at_time: int | None


@dataclass(frozen=True, slots=True)
class PlannedOffset:
    """The new offset of a partition, and a remark if it differs from the requested one."""

    partition: TopicPartition
    committed: int | None
    new: int
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Reset:
    """Where to reset offsets to; `target` computes the offset of one partition."""

    target: Callable[[TopicPartition, Ends], int]
    time_ms: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None

    @classmethod
    def to_earliest(cls) -> Reset:
        return cls(lambda _, ends: ends.first)

    @classmethod
    def to_latest(cls) -> Reset:
        return cls(lambda _, ends: ends.end)

    @classmethod
    def to_current(cls) -> Reset:
        return cls(lambda _, ends: ends.end if ends.committed is None else ends.committed)

    @classmethod
    def to_offset(cls, offset: int) -> Reset:
        return cls(lambda _, __: offset)

    @classmethod
    def shift_by(cls, count: int) -> Reset:
        def target(partition: TopicPartition, ends: Ends) -> int:
            if ends.committed is None:
                raise CommandError(f"{partition} has no committed offset to shift")
            return ends.committed + count

        return cls(target)

    @classmethod
    def to_time(cls, time_ms: int) -> Reset:
        """The log end offset if all records are older."""
        return cls(lambda _, ends: ends.end if ends.at_time is None else ends.at_time, time_ms=time_ms)

    @classmethod
    def to_each(cls, offsets: Mapping[TopicPartition, int]) -> Reset:
        return cls(lambda partition, _: offsets[partition], offsets=offsets)


def planned(reset: Reset, partition: TopicPartition, ends: Ends) -> PlannedOffset:
    """Limits the new offset to the range of the log."""
    wanted = reset.target(partition, ends)
    new = min(max(wanted, ends.first), ends.end)
    remark = ""
    if new != wanted:
        end = "beginning" if new == ends.first else "end"
        remark = f"{wanted} is outside the log ({ends.first} to {ends.end}); using the {end}, {new}"
    return PlannedOffset(partition, ends.committed, new, remark)


async def plan(
    admin: AsyncAdmin, reset: Reset, partitions: Iterable[TopicPartition], committed: Mapping[TopicPartition, int]
) -> list[PlannedOffset]:
    """The new offset of each partition."""
    from ottla.client.administer import EARLIEST, LATEST, Place

    partitions = list(partitions)
    first = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    end = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    at_time = {}
    if reset.time_ms is not None:
        at_time = await admin.list_offsets(dict.fromkeys(partitions, Place.at_time(reset.time_ms)))
    return [
        planned(
            reset,
            one,
            Ends(
                first[one].offset or 0,
                end[one].offset or 0,
                committed.get(one),
                at_time[one].offset if one in at_time else None,
            ),
        )
        for one in partitions
    ]


def parse_topic(text: str) -> tuple[str, list[int] | None]:
    """Parses `orders` or `orders:0,3` into the topic and its partitions; None means all."""
    name, colon, rest = text.partition(":")
    if not colon:
        return name, None
    indexes = [part.strip() for part in rest.split(",")]
    if not name or not all(part.isascii() and part.isdigit() for part in indexes):
        raise CommandError(f"{text!r} is neither TOPIC nor TOPIC:PARTITION,…, for example orders:0,3")
    return name, [int(part) for part in indexes]


def read_file(path: Path) -> dict[TopicPartition, int]:
    """Parses lines of `topic,partition,offset`, optionally quoted as Kafka's tool writes them."""
    offsets: dict[TopicPartition, int] = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        fields = [field.strip().strip('"') for field in line.split(",")]
        if len(fields) != _FIELDS or not fields[0] or not all(part.isascii() and part.isdigit() for part in fields[1:]):
            raise ValueError(f"{path}, line {number}: {line.strip()!r} is not of the form topic,partition,offset")
        offsets[TopicPartition(fields[0], int(fields[1]))] = int(fields[2])
    if not offsets:
        raise ValueError(f"{path} has no lines of the form topic,partition,offset")
    return offsets
