"""Empties topics and keeps their partitions and configs.

Records are deleted up to the end. Brokers refuse that for topics that are only compacted, so these are deleted and
created again, with the same number of partitions, replicas and configs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.client.administer import AsyncAdmin, NewTopic

_ATTEMPTS: Final = 100
_PAUSE_S: Final = 0.2
_NONE: Final[Mapping[str, NewTopic]] = {}


@dataclass(frozen=True, slots=True)
class TopicToEmpty:
    """A topic as it is."""

    name: str
    records: int
    """At most: offsets between its start and its end."""
    as_new: NewTopic
    is_created_again: bool

    @property
    def how(self) -> dict[str, Any]:
        """All but the name of `as_new`, as JSON can hold it."""
        new = self.as_new
        return {
            "partitions": new.partitions,
            "replication_factor": new.replication_factor,
            "configs": dict(new.configs),
        }


async def look_at(
    admin: AsyncAdmin, names: Sequence[str], deleted: Mapping[str, NewTopic] = _NONE
) -> list[TopicToEmpty]:
    """Raises if one does not exist, unless it is one of those that an interrupted reset may have deleted."""
    from ottla.client.administer import EARLIEST, LATEST, ConfigResource, ConfigSource, NewTopic, SomeRefusedError

    if not names:
        return []
    try:
        described = await admin.describe_topics(list(names))
    except SomeRefusedError as error:
        missing = {name for name, one in error.errors.items() if one.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        if not missing or not missing <= deleted.keys():
            raise
        gone = [TopicToEmpty(name, 0, deleted[name], is_created_again=True) for name in sorted(missing)]
        return gone + await look_at(admin, [name for name in names if name not in missing])
    configs = await admin.describe_configs([ConfigResource.topic(name) for name in names])
    partitions = [TopicPartition(name, one.index) for name in names for one in described[name].partitions]
    first = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    end = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    found = []
    for name in names:
        entries = configs[ConfigResource.topic(name)]
        own = {one.name: one.value or "" for one in entries.values() if one.source is ConfigSource.TOPIC}
        replicas = max((len(one.replicas) for one in described[name].partitions), default=1)
        policy = (entries["cleanup.policy"].value or "").split(",")
        found.append(
            TopicToEmpty(
                name,
                sum((end[one].offset or 0) - (first[one].offset or 0) for one in partitions if one.topic == name),
                NewTopic(name, len(described[name].partitions), replicas, configs=own),
                is_created_again="delete" not in policy,
            )
        )
    return found


async def empty(admin: AsyncAdmin, topic: TopicToEmpty) -> None:
    from ottla.client.administer import LATEST

    if topic.is_created_again:
        await _delete(admin, topic.name)
        await _create(admin, topic.as_new)
        return
    partitions = [TopicPartition(topic.name, index) for index in range(topic.as_new.partitions or 0)]
    end = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    await admin.delete_records({one: end[one].offset or 0 for one in partitions})


async def _delete(admin: AsyncAdmin, name: str) -> None:
    from ottla.client.administer import SomeRefusedError

    try:
        await admin.delete_topics([name])
    except SomeRefusedError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise


async def _create(admin: AsyncAdmin, topic: NewTopic) -> None:
    """Waits until the old topic is gone: Kafka deletes topics in the background."""
    from ottla.client.errors import RefusedError

    for _ in range(_ATTEMPTS):
        try:
            await admin.create_topics([topic])
            return
        except RefusedError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        await asyncio.sleep(_PAUSE_S)
    await admin.create_topics([topic])
