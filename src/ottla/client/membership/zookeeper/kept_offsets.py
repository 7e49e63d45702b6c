"""Offsets of a ZooKeeper group: stored in ZooKeeper, by the coordinator, or both (`offsets.storage`).

A commit to ZooKeeper needs no fencing of its own. It is sent in the session that claimed the partition, and ZooKeeper
refuses it once that session is over; a release in the same session comes after its commits. A commit to the coordinator
is not fenced: the coordinator does not know the members of this group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Self

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.errors import ClientError, CommitFailedError
from ottla.client.membership.commits import GroupCommits
from ottla.client.membership.ledger import AskedCommit
from ottla.client.membership.metadata import GroupMetadata
from ottla.client.membership.zookeeper.group_tree import GroupTree
from ottla.client.offsets import OffsetAndMetadata


class OffsetNodes:
    """Offsets as Kafka 0.8 stores them: one node per partition that contains only the offset. `is_owned` says whether
    this member is the only one that may commit the partition now."""

    def __init__(self, tree: GroupTree, is_owned: Callable[[TopicPartition], bool]) -> None:
        self._tree = tree
        self._is_owned = is_owned
        self._written: dict[TopicPartition, int] = {}
        """What need not be written again: many consumers are idle, and each write costs the whole ensemble."""

    def forget_written(self) -> None:
        """Must be called when partitions change hands."""
        self._written.clear()

    async def write(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, BaseException]:
        """Writes each offset, and returns the errors of those that could not be written."""
        news = {one: offset for one, offset in offsets.items() if self._written.get(one) != offset}
        for partition in news:
            self._written.pop(partition, None)
        answers = await asyncio.gather(*(self._tree.write_offset(*one) for one in news.items()), return_exceptions=True)
        failures = {one: error for one, error in zip(news, answers, strict=True) if isinstance(error, BaseException)}
        self._written |= {one: at for one, at in news.items() if one not in failures and self._is_owned(one)}
        return failures

    async def read(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        found = await self._tree.read_offsets(partitions)
        # Negative numbers mean that there is no offset.
        return {one: None if at is None or at < 0 else OffsetAndMetadata(at) for one, at in found.items()}


class ZooKeeperOffsets(GroupCommits):
    """Offsets stored in ZooKeeper."""

    _nodes: OffsetNodes

    def use(self, nodes: OffsetNodes) -> Self:
        """Must be called before anything else."""
        self._nodes = nodes
        return self

    async def _commit_once(
        self, sent: Mapping[TopicPartition, AskedCommit], left: dict[TopicPartition, AskedCommit]
    ) -> None:
        self._committer()
        for partition, asked in sent.items():
            if asked.offsets[partition].metadata:
                raise ClientError(
                    f"{self._subject(partition, asked.offsets[partition])}: ZooKeeper keeps no metadata with an "
                    "offset; commit it without, or set offsets.storage=kafka"
                )
        failures = await self._nodes.write({one: asked.offsets[one].offset for one, asked in sent.items()})
        for partition, asked in sent.items():
            if partition not in failures:
                self._ledger.succeeded(asked, partition)
                left.pop(partition, None)
        for failure in failures.values():
            raise failure

    async def _committed_once(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return await self._nodes.read(partitions)


class CoordinatorOffsets(GroupCommits):
    """Offsets stored by the coordinator, like those of a consumer that is not a member there."""

    def _committer(self) -> GroupMetadata:
        super()._committer()
        return GroupMetadata(self._coordinator.group_id)

    def _refusal(
        self, member: GroupMetadata, partition: TopicPartition, code: ErrorCode, offset: OffsetAndMetadata
    ) -> ClientError:
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
            return CommitFailedError(
                f"{self._subject(partition, offset)}: consumers with another group.protocol are in the group; give all "
                "of them group.protocol=zookeeper, or use a different group.id"
            )
        return super()._refusal(member, partition, code, offset)


class DualOffsets(CoordinatorOffsets):
    """Offsets stored in both, for a group that migrates from one to the other: the higher offset counts.

    ZooKeeper is written first: if the coordinator then fails, both are tried again.
    """

    _nodes: OffsetNodes

    def use(self, nodes: OffsetNodes) -> Self:
        """Must be called before anything else."""
        self._nodes = nodes
        return self

    async def _commit_once(
        self, sent: Mapping[TopicPartition, AskedCommit], left: dict[TopicPartition, AskedCommit]
    ) -> None:
        self._committer()
        failures = await self._nodes.write({one: asked.offsets[one].offset for one, asked in sent.items()})
        for failure in failures.values():
            raise failure
        await super()._commit_once(sent, left)

    async def _committed_once(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        found = await super()._committed_once(partitions)
        for partition, old in (await self._nodes.read(partitions)).items():
            new = found[partition]
            if old is not None and (new is None or old.offset > new.offset):
                found[partition] = old
        return found
