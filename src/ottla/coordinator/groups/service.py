"""The group coordinator of a broker: the runtime, the parts that live on each of its shards, and a method for each API.

Every method takes a request and returns the response, errors included. Those that clients call all the time return the
response itself if it need not wait, and a coroutine otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from typing import Any, TypeVar

from ottla.base.clock import Clock
from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.groups.classic.apis import ClassicApis
from ottla.coordinator.groups.classic.protocol import ClassicProtocol
from ottla.coordinator.groups.consumer.apis import ConsumerApis
from ottla.coordinator.groups.consumer.classic_members import ClassicInConsumerGroups
from ottla.coordinator.groups.consumer.protocol import ConsumerProtocol
from ottla.coordinator.groups.group import GroupSettings, TopicImage
from ottla.coordinator.groups.offsets import fetch as offset_fetch
from ottla.coordinator.groups.offsets.commit import (
    commit_in_transaction,
    commit_offsets,
    refused_commit,
    refused_in_transaction,
)
from ottla.coordinator.groups.offsets.store import OffsetStore
from ottla.coordinator.groups.shard import GroupShard
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.seams import Caller, CoordinatorTopic, Timers
from ottla.coordinator.shards import ShardContext
from ottla.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.wire.messages.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchGroupResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from ottla.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

R = TypeVar("R")


class ServedShard(GroupShard):
    """A shard with all its parts."""

    def __init__(self, context: ShardContext, settings: GroupSettings, topics: TopicImage) -> None:
        super().__init__(context, settings, topics)
        self.offsets = OffsetStore(self)
        self.classic = ClassicProtocol(self, self.offsets)
        self.consumer = ConsumerProtocol(self)
        self.classic.in_consumer_groups = ClassicInConsumerGroups(self, self.consumer)


class GroupCoordinatorService:
    """See the module. Owned by the loop."""

    def __init__(
        self, log: CoordinatorTopic, clock: Clock, timers: Timers, settings: GroupSettings, topics: TopicImage
    ) -> None:
        def make_shard(context: ShardContext) -> ServedShard:
            return ServedShard(context, settings, topics)

        self.settings = settings
        self.runtime = CoordinatorRuntime("group coordinator", log, clock, timers, make_shard)
        self.classic = ClassicApis(self.runtime)
        self.consumer = ConsumerApis(self.runtime)

    # --- partitions and topics --------------------------------------------------------------------------------------

    def lead(self, index: int, leader_epoch: int) -> None:
        """Called when this broker becomes the leader of that partition of `__consumer_offsets`."""
        self.runtime.lead(index, leader_epoch)

    def resign(self, index: int) -> None:
        """Called when this broker no longer leads the partition."""
        self.runtime.unload(index)

    def topics_deleted(self, topics: Collection[str]) -> None:
        for shard in self.runtime.all_shards() if topics else ():
            shard.offsets.topics_deleted(frozenset(topics))

    def close(self) -> None:
        """Answers every waiting request."""
        self.runtime.close()

    # --- offsets ----------------------------------------------------------------------------------------------------

    def commit_offsets(
        self, request: OffsetCommitRequest, caller: Caller
    ) -> OffsetCommitResponse | Coroutine[Any, Any, OffsetCommitResponse]:
        version = caller.version
        try:
            answer = self.runtime.write_now(request.group_id, lambda shard: commit_offsets(shard, request, version))
        except CoordinatorError as error:
            return refused_commit(request, error.code)
        if not isinstance(answer, Coroutine):
            return answer
        return _or_else(answer, lambda error: refused_commit(request, error))

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, caller: Caller
    ) -> TxnOffsetCommitResponse | Coroutine[Any, Any, TxnOffsetCommitResponse]:
        """The offsets are appended when this returns, if they can be; only the answer may have to wait."""
        version = caller.version
        try:
            answer = self.runtime.write_now(
                request.group_id, lambda shard: commit_in_transaction(shard, request, version)
            )
        except CoordinatorError as error:
            return self.refuse_in_transaction(request, error.code, caller)
        if not isinstance(answer, Coroutine):
            return answer
        return _or_else(answer, lambda error: self.refuse_in_transaction(request, error, caller))

    def refuse_in_transaction(
        self, request: TxnOffsetCommitRequest, error: ErrorCode, caller: Caller
    ) -> TxnOffsetCommitResponse:
        return refused_in_transaction(request, error, caller.version)

    def fetch_offsets(
        self, request: OffsetFetchRequest, caller: Caller
    ) -> OffsetFetchResponse | Coroutine[Any, Any, OffsetFetchResponse]:
        version = caller.version
        answers = [
            self._fetch_of_group(group, version, require_stable=request.require_stable)
            for group in offset_fetch.groups_of(request, version)
        ]
        if not any(isinstance(answer, Coroutine) for answer in answers):
            return offset_fetch.response_of(answers, request, version)  # type: ignore[arg-type]  # none is a coroutine

        async def gather() -> OffsetFetchResponse:
            groups = [await answer if isinstance(answer, Coroutine) else answer for answer in answers]
            return offset_fetch.response_of(groups, request, version)

        return gather()

    def _fetch_of_group(
        self, asked: OffsetFetchGroup, version: int, *, require_stable: bool
    ) -> OffsetFetchGroupResponse | Coroutine[Any, Any, OffsetFetchGroupResponse]:
        def refused(code: ErrorCode) -> OffsetFetchGroupResponse:
            # Older consumers do not retry on COORDINATOR_NOT_AVAILABLE.
            told = ErrorCode.NOT_COORDINATOR if code is ErrorCode.COORDINATOR_NOT_AVAILABLE else code
            return OffsetFetchGroupResponse(group_id=asked.group_id, error_code=told)

        def fetch(shard: ServedShard) -> OffsetFetchGroupResponse:
            return offset_fetch.fetch_offsets(shard, shard.offsets, asked, version, require_stable=require_stable)

        try:
            answer = self.runtime.read_now(asked.group_id, fetch)
        except CoordinatorError as error:
            return refused(error.code)
        return _or_else(answer, refused) if isinstance(answer, Coroutine) else answer

    async def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        try:
            _check_group_id(request.group_id)
            return await self.runtime.write(request.group_id, lambda shard: shard.offsets.delete(request))
        except CoordinatorError as error:
            return OffsetDeleteResponse(error_code=error.code)


async def _or_else(answer: Coroutine[Any, Any, R], refused: Callable[[ErrorCode], R]) -> R:
    """The answer, or the response that reports its error."""
    try:
        return await answer
    except CoordinatorError as error:
        return refused(error.code)


def _check_group_id(group_id: str) -> None:
    """An empty group id is allowed for offsets only, for old clients."""
    if not group_id:
        raise CoordinatorError(ErrorCode.INVALID_GROUP_ID, "The group id must not be empty.")
