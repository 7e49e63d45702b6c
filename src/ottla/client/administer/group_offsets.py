"""Committed offsets of groups: list, alter, delete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.administer.coordinators import CoordinatedArea
from ottla.client.administer.outcomes import NOT_THERE, by_topic, known, refusal, results_of, version_of
from ottla.client.errors import RefusedError, raise_if_refused
from ottla.client.offsets import OffsetAndMetadata
from ottla.wire.messages.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchGroupTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
)

_LAST_BY_NAME: Final = 9
"""Later versions of the requests name topics only by id, but a deleted topic has none."""
_SEVERAL_GROUPS_SINCE: Final = 8
_STABLE_SINCE: Final = 7
_NO_EPOCH: Final = -1


class GroupOffsetsArea(CoordinatedArea):
    """Operations on committed offsets."""

    async def list_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of the group: for these partitions, or for all. Partitions without an offset are left
        out. `require_stable` waits for pending transactions."""
        wanted = None if partitions is None else by_topic(partitions)

        async def attempt() -> dict[TopicPartition, OffsetAndMetadata | RefusedError]:
            connection = await self._cluster.connection(await self._coordinator(group_id))
            since = _STABLE_SINCE if require_stable else 0
            why = "wait for offsets of pending transactions"
            version = version_of(connection, OffsetFetchRequest, since=since, why=why, at_most=_LAST_BY_NAME)
            request = _fetch_request(group_id, wanted, version, require_stable=require_stable)
            answer = await connection.send(request, OffsetFetchResponse, version=version)
            raise_if_refused(answer.error_code, f"group {group_id}")
            for group in answer.groups:
                raise_if_refused(group.error_code, f"group {group_id}")
            topics = [(topic.name, topic.partitions) for topic in answer.topics]
            topics += [(topic.name, topic.partitions) for group in answer.groups for topic in group.topics]
            found: dict[TopicPartition, OffsetAndMetadata | RefusedError] = {}
            for name, answered in topics:
                for one in answered:
                    partition = TopicPartition(name, one.partition_index)
                    refused = refusal(one.error_code, f"offset of {partition} in group {group_id}")
                    if refused is not None and refused.retriable and refused.code not in NOT_THERE:
                        raise refused
                    if refused is not None:
                        found[partition] = refused
                    elif one.committed_offset >= 0:
                        epoch = known(one.committed_leader_epoch)
                        found[partition] = OffsetAndMetadata(one.committed_offset, one.metadata or "", epoch)
            return found

        return results_of(await self._cluster.retry(attempt))

    async def alter_consumer_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> None:
        """Sets offsets of a group without members; creates the group if necessary."""

        async def attempt(some: list[TopicPartition]) -> dict[TopicPartition, RefusedError | None]:
            connection = await self._cluster.connection(await self._coordinator(group_id))
            version = version_of(connection, OffsetCommitRequest, at_most=_LAST_BY_NAME)
            topics: dict[str, OffsetCommitTopic] = {}
            for partition in some:
                topic = topics.setdefault(partition.topic, OffsetCommitTopic(name=partition.topic))
                topic.partitions.append(_commit(partition.partition, offsets[partition]))
            request = OffsetCommitRequest(group_id=group_id, topics=list(topics.values()))
            answer = await connection.send(request, OffsetCommitResponse, version=version)
            return {
                (partition := TopicPartition(topic.name, one.partition_index)): refusal(
                    one.error_code,
                    f"offset of {partition} in group {group_id}",
                    _HAS_MEMBERS if one.error_code == ErrorCode.UNKNOWN_MEMBER_ID else None,
                )
                for topic in answer.topics
                for one in topic.partitions
            }

        await self._settle(offsets, attempt)

    async def delete_consumer_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Deletes the group's offsets for partitions that no member is subscribed to."""

        async def attempt(some: list[TopicPartition]) -> dict[TopicPartition, RefusedError | None]:
            topics = [
                OffsetDeleteTopic(
                    name=topic, partitions=[OffsetDeletePartition(partition_index=index) for index in indexes]
                )
                for topic, indexes in by_topic(some).items()
            ]
            request = OffsetDeleteRequest(group_id=group_id, topics=topics)
            answer = await self._ask(await self._coordinator(group_id), request, OffsetDeleteResponse)
            raise_if_refused(answer.error_code, f"group {group_id}")
            return {
                (partition := TopicPartition(topic.name, one.partition_index)): refusal(
                    one.error_code, f"offset of {partition} in group {group_id}"
                )
                for topic in answer.topics
                for one in topic.partitions
            }

        await self._settle(partitions, attempt)


_HAS_MEMBERS: Final = "the group has members; stop them before you alter its offsets"


def _fetch_request(
    group_id: str, wanted: Mapping[str, list[int]] | None, version: int, *, require_stable: bool
) -> OffsetFetchRequest:
    if version < _SEVERAL_GROUPS_SINCE:
        topics = None
        if wanted is not None:
            topics = [OffsetFetchTopic(name=topic, partition_indexes=indexes) for topic, indexes in wanted.items()]
        return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=require_stable)
    group = OffsetFetchGroup(group_id=group_id, topics=None)
    if wanted is not None:
        group.topics = [
            OffsetFetchGroupTopic(name=topic, partition_indexes=indexes) for topic, indexes in wanted.items()
        ]
    return OffsetFetchRequest(groups=[group], require_stable=require_stable)


def _commit(index: int, offset: int | OffsetAndMetadata) -> OffsetCommitPartition:
    if isinstance(offset, int):
        offset = OffsetAndMetadata(offset)
    return OffsetCommitPartition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=_NO_EPOCH if offset.leader_epoch is None else offset.leader_epoch,
        committed_metadata=offset.metadata,
    )
