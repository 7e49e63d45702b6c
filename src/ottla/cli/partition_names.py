"""Topics and partitions as arguments: `orders` is all its partitions, `orders:3` one of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.cli.output import counted
from ottla.cli.session import CommandError

if TYPE_CHECKING:
    from ottla.client.administer import AsyncAdmin, PartitionDescription, TopicDescription


def parse_name(text: str) -> tuple[str, int | None]:
    """The topic, and the partition if one is named. A topic name cannot contain a colon."""
    topic, colon, index = text.partition(":")
    if not topic or (colon and not index.isdecimal()):
        raise CommandError(f"{text!r} is not of the form TOPIC or TOPIC:PARTITION, for example orders or orders:3")
    return topic, int(index) if colon else None


async def described_topics(
    admin: AsyncAdmin, names: Iterable[str], *, include_internal: bool = True
) -> list[TopicDescription]:
    """These topics, or all, with or without internal ones; an unknown one raises with a hint."""
    from ottla.client.administer import SomeRefusedError
    from ottla.client.errors import UnknownTopicError

    wanted = list(dict.fromkeys(names))
    if not wanted:
        return await admin.list_topics(include_internal=include_internal)
    try:
        return list((await admin.describe_topics(wanted)).values())
    except SomeRefusedError as error:
        for name, failure in error.errors.items():
            if failure.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownTopicError(name) from None
        raise


async def described_partitions(
    admin: AsyncAdmin, texts: Iterable[str] | None
) -> dict[TopicPartition, PartitionDescription]:
    """The partitions that these arguments name, or all."""
    chosen: dict[str, set[int] | None] = {}
    for text in texts or ():
        topic, index = parse_name(text)
        indexes = chosen.setdefault(topic, set() if index is not None else None)
        if index is None:
            chosen[topic] = None
        elif indexes is not None:
            indexes.add(index)
    found: dict[TopicPartition, PartitionDescription] = {}
    for one in await described_topics(admin, chosen):
        wanted = chosen.get(one.name)
        for partition in one.partitions:
            if wanted is None or partition.index in wanted:
                found[TopicPartition(one.name, partition.index)] = partition
        for index in sorted(wanted or ()):
            if TopicPartition(one.name, index) not in found:
                has = counted(len(one.partitions), "partition")
                raise CommandError(f"topic {one.name} has no partition {index}: it has {has}, numbered from 0")
    return found
