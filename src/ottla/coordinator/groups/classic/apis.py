"""Passes requests of the classic group protocol, and those about all groups, to their shards.

Every method takes a request and returns the response, errors included.
"""

from __future__ import annotations

from collections.abc import Coroutine
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


S = TypeVar("S", bound=ClassicShard)


class ClassicApis(Generic[S]):
    """See the module. Owned by the loop."""

    def __init__(self, runtime: CoordinatorRuntime[S]) -> None:
        self._runtime = runtime

    async def join_group(self, request: JoinGroupRequest, caller: Caller) -> JoinGroupResponse:
        try:
            answer = await self._runtime.write(request.group_id, lambda shard: shard.classic.join(request, caller))
        except CoordinatorError as error:
            answer = JoinGroupResponse(error_code=error.code, member_id=request.member_id)
        if answer.error_code and caller.version >= _PROTOCOL_MAY_BE_NULL_SINCE:
            answer.protocol_name = None
        return answer

    async def sync_group(self, request: SyncGroupRequest, caller: Caller) -> SyncGroupResponse:
        try:
            return await self._runtime.write(request.group_id, lambda shard: shard.classic.sync(request, caller))
        except CoordinatorError as error:
            return SyncGroupResponse(error_code=error.code)

    def heartbeat(
        self, request: HeartbeatRequest, caller: Caller
    ) -> HeartbeatResponse | Coroutine[Any, Any, HeartbeatResponse]:
        """The most frequent request of members: returns the response itself if it need not wait."""
        try:
            answer = self._runtime.write_now(request.group_id, lambda shard: shard.classic.heartbeat(request, caller))
        except CoordinatorError as error:
            return _refused_heartbeat(error)
        return _later_heartbeat(answer) if isinstance(answer, Coroutine) else answer

    async def leave_group(self, request: LeaveGroupRequest, caller: Caller) -> LeaveGroupResponse:
        try:
            return await self._runtime.write(request.group_id, lambda shard: shard.classic.leave(request, caller))
        except CoordinatorError as error:
            return LeaveGroupResponse(error_code=error.code)

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


async def _later_heartbeat(answer: Coroutine[Any, Any, HeartbeatResponse]) -> HeartbeatResponse:
    try:
        return await answer
    except CoordinatorError as error:
        return _refused_heartbeat(error)


def _refused_heartbeat(error: CoordinatorError) -> HeartbeatResponse:
    """While the group is loading, its members count as alive."""
    is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error.code)
