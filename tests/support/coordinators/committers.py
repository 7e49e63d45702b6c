"""Whoever commits and fetches offsets, over a coordinator whose log and time a test holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from typing import Any, TypeVar

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.groups.fast.fast_commit import FastCommit, commit_fast, commit_reader
from ottla.coordinator.groups.group import GroupSettings
from ottla.coordinator.groups.offsets.commit import commit_in_transaction
from ottla.coordinator.groups.service import GroupCoordinatorService, ServedShard
from ottla.records import encode_transaction_marker
from ottla.wire.codec import decode, encode
from ottla.wire.messages.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)
from ottla.wire.messages.offset_delete import OffsetDeletePartition, OffsetDeleteRequest, OffsetDeleteTopic
from ottla.wire.messages.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchGroupResponse,
    OffsetFetchGroupTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)
from support.coordinators.classic_members import ClassicMembers, FakeCaller
from support.coordinators.consumer_members import Coordinated
from support.coordinators.fake_log import FakeLog
from support.coordinators.simulated_time import SimulatedTime
from support.coordinators.topics import FakeTopics

T = TypeVar("T")
Offsets = Mapping[tuple[str, int], int]
"""By topic and partition."""


async def awaited(answer: T | Coroutine[Any, Any, T]) -> T:
    return await answer if isinstance(answer, Coroutine) else answer


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 30))

    return run


class Committers:
    """One partition of `__consumer_offsets`, and topics t and u of four partitions; or those of a coordinator that is
    there already."""

    def __init__(
        self,
        log: FakeLog | None = None,
        settings: GroupSettings | None = None,
        beside: ClassicMembers | Coordinated | None = None,
    ) -> None:
        if beside is not None:
            self.log, self.time, self.coordinator = beside.log, beside.time, beside.coordinator
            self.topics = FakeTopics(t=4, u=4)
            return
        self.log = log or FakeLog()
        self.time = SimulatedTime()
        self.topics = FakeTopics(t=4, u=4)
        self.coordinator = GroupCoordinatorService(
            self.log, self.time, self.time, settings or GroupSettings(), self.topics
        )
        self.coordinator.lead(0, 0)

    @property
    def shard(self) -> ServedShard:
        return self.coordinator.runtime.active_shards()[0]

    def loading_again(self) -> Committers:
        """Another coordinator, which begins to load what the log holds now."""
        return Committers(self.log.copy(), self.coordinator.settings)

    async def loaded_again(self) -> Committers:
        other = self.loading_again()
        while other.coordinator.runtime.is_loading:
            await asyncio.sleep(0)
        return other

    # --- requests ---------------------------------------------------------------------------------------------------

    def start_commit(
        self, offsets: Offsets, version: int = 9, **fields: Any
    ) -> OffsetCommitResponse | Coroutine[Any, Any, OffsetCommitResponse]:
        """With `metadata`, that of each. Read as a broker reads it, so that bare ones take the fast path."""
        metadata = fields.pop("metadata", "")
        topics: dict[str, OffsetCommitTopic] = {}
        for (name, index), offset in offsets.items():
            topic_id = self.topics.topic_id(name)
            topic = topics.setdefault(name, OffsetCommitTopic(name=name, partitions=[]))
            if topic_id is not None:
                topic.topic_id = topic_id
            topic.partitions.append(
                OffsetCommitPartition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
            )
        request = OffsetCommitRequest(**{"group_id": "g", "topics": list(topics.values())} | fields)
        read = commit_reader(version)(memoryview(encode(request, version)))
        if isinstance(read, FastCommit):
            answer: asyncio.Future[bytes | OffsetCommitResponse] = asyncio.get_running_loop().create_future()
            read.answer = answer.set_result
            if commit_fast(self.coordinator, read):
                return self._fast_answer(answer, version)
        return self.coordinator.commit_offsets(request, FakeCaller(version))

    async def _fast_answer(
        self, answer: asyncio.Future[bytes | OffsetCommitResponse], version: int
    ) -> OffsetCommitResponse:
        self.time.advance_ms(0)
        response = await answer
        if isinstance(response, OffsetCommitResponse):
            return response
        return decode(OffsetCommitResponse, version, response)

    async def commit(self, offsets: Offsets, version: int = 9, **fields: Any) -> list[ErrorCode]:
        """The error of each partition."""
        response = await awaited(self.start_commit(offsets, version, **fields))
        return [ErrorCode(each.error_code) for topic in response.topics for each in topic.partitions]

    async def fetch(self, group_id: str = "g", *, version: int = 9, **fields: Any) -> OffsetFetchGroupResponse:
        """All of a group's."""
        require_stable = fields.pop("require_stable", False)
        asked = OffsetFetchGroup(**{"group_id": group_id, "topics": None} | fields)
        request = OffsetFetchRequest(groups=[asked], require_stable=require_stable)
        response: OffsetFetchResponse = await awaited(self.coordinator.fetch_offsets(request, FakeCaller(version)))
        (group,) = response.groups
        return group

    async def offsets(self, group_id: str = "g") -> dict[tuple[str, int], int]:
        found = await self.fetch(group_id)
        assert found.error_code == ErrorCode.NONE
        return {
            (topic.name, each.partition_index): each.committed_offset
            for topic in found.topics
            for each in topic.partitions
        }

    async def errors_of(self, topic: str, *partitions: int, **fields: Any) -> list[ErrorCode]:
        """Of fetching certain partitions."""
        asked = [OffsetFetchGroupTopic(name=topic, partition_indexes=list(partitions))]
        found = await self.fetch(topics=asked, **fields)
        return [ErrorCode(each.error_code) for each in found.topics[0].partitions]

    async def delete(self, *places: tuple[str, int], group_id: str = "g") -> ErrorCode | list[ErrorCode]:
        """The error of all, or of each."""
        topics = [
            OffsetDeleteTopic(name=name, partitions=[OffsetDeletePartition(partition_index=index)])
            for name, index in places
        ]
        response = await self.coordinator.delete_offsets(OffsetDeleteRequest(group_id=group_id, topics=topics))
        if response.error_code:
            return ErrorCode(response.error_code)
        return [ErrorCode(each.error_code) for topic in response.topics for each in topic.partitions]

    # --- transactions -----------------------------------------------------------------------------------------------

    async def commit_in_transaction(self, producer_id: int, offsets: Offsets, **fields: Any) -> list[ErrorCode]:
        topics = [
            TxnOffsetCommitTopic(
                name=name, partitions=[TxnOffsetCommitPartition(partition_index=index, committed_offset=offset)]
            )
            for (name, index), offset in offsets.items()
        ]
        values: dict[str, Any] = {
            "group_id": "g",
            "producer_id": producer_id,
            "producer_epoch": 0,
            "topics": topics,
        } | fields
        request = TxnOffsetCommitRequest(**values)
        response = await self.coordinator.runtime.write(
            request.group_id, lambda shard: commit_in_transaction(shard, request, 3)
        )
        return [ErrorCode(each.error_code) for topic in response.topics for each in topic.partitions]

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """As a transaction's coordinator does it: a marker is appended, and told."""
        marker = encode_transaction_marker(
            producer_id=producer_id,
            producer_epoch=0,
            committed=committed,
            coordinator_epoch=0,
            timestamp_ms=self.time.now_ms(),
        )
        end = self.log.put(0, marker)
        self.coordinator.runtime.end_transaction(0, end, producer_id, committed=committed)
