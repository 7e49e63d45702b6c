"""Passes requests of the classic group protocol, and those about all groups, to their shards.

Every method takes a request and returns the response, errors included. Those of members return the response itself if
it need not wait, so that no task is started for it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, Protocol, TypeVar

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.groups.classic.protocol import ClassicProtocol
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.seams import Caller
from ottla.coordinator.shards import Shard
from ottla.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse, DeleteGroupsResult
from ottla.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_PROTOCOL_MAY_BE_NULL_SINCE: Final = 7


class ClassicShard(Shard, Protocol):
    """A shard with the classic protocol."""

    classic: ClassicProtocol


R = TypeVar("R")
S = TypeVar("S", bound=ClassicShard)


class ClassicApis(Generic[S]):
    """See the module. Owned by the loop."""

    def __init__(self, runtime: CoordinatorRuntime[S]) -> None:
        self._runtime = runtime

    def join_group(
        self, request: JoinGroupRequest, caller: Caller
    ) -> JoinGroupResponse | Coroutine[Any, Any, JoinGroupResponse]:
        def refused(error: CoordinatorError) -> JoinGroupResponse:
            return JoinGroupResponse(error_code=error.code, member_id=request.member_id)

        def checked(answer: JoinGroupResponse) -> JoinGroupResponse:
            if answer.error_code and caller.version >= _PROTOCOL_MAY_BE_NULL_SINCE:
                answer.protocol_name = None
            return answer

        async def later(answer: Coroutine[Any, Any, JoinGroupResponse]) -> JoinGroupResponse:
            return checked(await _or_refused(answer, refused))

        try:
            answer = self._runtime.write_now(request.group_id, lambda shard: shard.classic.join(request, caller))
        except CoordinatorError as error:
            answer = refused(error)
        return later(answer) if isinstance(answer, Coroutine) else checked(answer)

    def sync_group(
        self, request: SyncGroupRequest, caller: Caller
    ) -> SyncGroupResponse | Coroutine[Any, Any, SyncGroupResponse]:
        try:
            answer = self._runtime.write_now(request.group_id, lambda shard: shard.classic.sync(request, caller))
        except CoordinatorError as error:
            return _refused_sync(error)
        return _or_refused(answer, _refused_sync) if isinstance(answer, Coroutine) else answer

    def heartbeat(
        self, request: HeartbeatRequest, caller: Caller
    ) -> HeartbeatResponse | Coroutine[Any, Any, HeartbeatResponse]:
        """The most frequent request of members."""
        try:
            answer = self._runtime.write_now(request.group_id, lambda shard: shard.classic.heartbeat(request, caller))
        except CoordinatorError as error:
            return _refused_heartbeat(error)
        return _or_refused(answer, _refused_heartbeat) if isinstance(answer, Coroutine) else answer

    def leave_group(
        self, request: LeaveGroupRequest, caller: Caller
    ) -> LeaveGroupResponse | Coroutine[Any, Any, LeaveGroupResponse]:
        try:
            answer = self._runtime.write_now(request.group_id, lambda shard: shard.classic.leave(request, caller))
        except CoordinatorError as error:
            return _refused_leave(error)
        return _or_refused(answer, _refused_leave) if isinstance(answer, Coroutine) else answer

    async def describe_groups(self, request: DescribeGroupsRequest, caller: Caller) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(groups=[await self._describe(each, caller.version) for each in request.groups])

    async def _describe(self, group_id: str, version: int) -> DescribedGroup:
        try:
            return await self._runtime.read(group_id, lambda shard: shard.classic.describe(group_id, version))
        except CoordinatorError as error:
            return DescribedGroup(group_id=group_id, error_code=error.code)

    async def list_groups(self, request: ListGroupsRequest) -> ListGroupsResponse:
        """The groups that this broker coordinates. Refused while a partition loads: the list would be incomplete."""
        if self._runtime.is_loading:
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        try:
            shares = await self._runtime.read_all(lambda shard: shard.classic.list_groups(request))
        except CoordinatorError as error:
            return ListGroupsResponse(error_code=error.code)
        return ListGroupsResponse(groups=[group for share in shares for group in share])

    async def delete_groups(self, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        names = dict.fromkeys(request.groups_names)
        return DeleteGroupsResponse(results=[await self._delete(name) for name in names])

    async def _delete(self, group_id: str) -> DeleteGroupsResult:
        try:
            return await self._runtime.write(group_id, lambda shard: shard.classic.delete(group_id))
        except CoordinatorError as error:
            return DeleteGroupsResult(group_id=group_id, error_code=error.code)


async def _or_refused(answer: Coroutine[Any, Any, R], refused: Callable[[CoordinatorError], R]) -> R:
    try:
        return await answer
    except CoordinatorError as error:
        return refused(error)


def _refused_sync(error: CoordinatorError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.code)


def _refused_leave(error: CoordinatorError) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error.code)


def _refused_heartbeat(error: CoordinatorError) -> HeartbeatResponse:
    """While the group is loading, its members count as alive."""
    is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error.code)
