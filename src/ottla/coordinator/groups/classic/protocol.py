"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup; describing, listing and deleting groups.

Members agree on an assignment protocol, one of them (the leader) assigns the partitions, and the coordinator passes the
assignment on. It reads the members' metadata only to know the subscribed topics. `group` has the states, `join` handles
JoinGroup, `rebalance` the phases of a rebalance and their timeouts.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.groups.classic.group import ClassicGroup, ClassicState
from ottla.coordinator.groups.classic.join import ClassicJoin
from ottla.coordinator.groups.classic.rebalance import ClassicRebalance, assignment_of
from ottla.coordinator.groups.records import key_of, value_of
from ottla.coordinator.groups.shard import GroupShard
from ottla.coordinator.key_values import KeyValue
from ottla.coordinator.pending import PendingAnswer
from ottla.coordinator.seams import Caller
from ottla.coordinator.shards import WriteOutcome
from ottla.wire.messages.delete_groups import DeleteGroupsResult
from ottla.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from ottla.wire.messages.group_records import GroupMetadataKey, GroupMetadataValue
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.leave_group import (
    LeaveGroupMember,
    LeaveGroupMemberResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
)
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsRequest
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_logger = logging.getLogger(__name__)

_GROUP_METADATA: Final = 2
_PROTOCOL_REQUIRED_SINCE: Final = 5
_SEVERAL_LEAVE_SINCE: Final = 3
_NOT_FOUND_SINCE: Final = 6
_DEAD: Final = "Dead"
"""The state of a group that does not exist, in older versions of DescribeGroups."""


class ClassicMembers(Protocol):
    """Serves members of consumer groups that use the classic protocol."""

    def join(self, request: JoinGroupRequest, caller: Caller) -> WriteOutcome[JoinGroupResponse]: ...
    def sync(self, request: SyncGroupRequest, caller: Caller) -> WriteOutcome[SyncGroupResponse]: ...
    def heartbeat(self, request: HeartbeatRequest, caller: Caller) -> WriteOutcome[HeartbeatResponse]: ...
    def leave(self, request: LeaveGroupRequest, caller: Caller) -> WriteOutcome[LeaveGroupResponse]: ...


class DeletableOffsets(Protocol):
    """What deleting a group needs of its offsets."""

    def tombstones(self, group_id: str) -> list[KeyValue]:
        """Tombstones for all offsets of the group."""
        ...


class ClassicProtocol:
    """The classic protocol on a shard. Responses carry the errors."""

    def __init__(self, shard: GroupShard, offsets: DeletableOffsets) -> None:
        self._shard = shard
        self._offsets = offsets
        self._rebalance = ClassicRebalance(shard)
        self._join = ClassicJoin(shard, self._rebalance)
        self.in_consumer_groups: ClassicMembers
        """Set by the code that makes the shard."""
        shard.make_simple_group = lambda group_id: ClassicGroup(group_id, shard.context.clock)
        shard.replayers[_GROUP_METADATA] = self._replay
        shard.on_loaded.append(self._loaded)
        shard.on_unload.append(self._unload)

    # --- members ----------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, caller: Caller) -> WriteOutcome[JoinGroupResponse]:
        group = self._shard.groups.get(request.group_id)
        if group is not None and not isinstance(group, ClassicGroup) and not group.is_empty:
            return self.in_consumer_groups.join(request, caller)
        return self._join.join(request, caller)

    def sync(self, request: SyncGroupRequest, caller: Caller) -> WriteOutcome[SyncGroupResponse]:
        """The response waits for the leader's assignment, which is written to the log first."""
        if not request.group_id:
            return WriteOutcome(SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        lacks_protocol = request.protocol_type is None or request.protocol_name is None
        if lacks_protocol and caller.version >= _PROTOCOL_REQUIRED_SINCE:
            return WriteOutcome(SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        group = self._shard.groups.get(request.group_id)
        if group is None or group.is_empty:
            return WriteOutcome(SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        if not isinstance(group, ClassicGroup):
            return self.in_consumer_groups.sync(request, caller)
        try:
            _check_sync(group, request)
        except CoordinatorError as error:
            return WriteOutcome(SyncGroupResponse(error_code=error.code))
        return self._sync(group, request)

    def _sync(self, group: ClassicGroup, request: SyncGroupRequest) -> WriteOutcome[SyncGroupResponse]:
        member = group.members[request.member_id]
        if group.state is ClassicState.PREPARING:
            return WriteOutcome(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        if group.state is ClassicState.STABLE:
            group.pending_syncs.discard(member.member_id)
            return WriteOutcome(assignment_of(group, member))
        answer: PendingAnswer[SyncGroupResponse] = PendingAnswer()
        if group.leader_id != member.member_id:
            group.pending_syncs.discard(member.member_id)
            group.await_sync(member, answer)
            return WriteOutcome(answer)

        def assigned() -> None:
            group.pending_syncs.discard(member.member_id)
            group.await_sync(member, answer)
            self._rebalance.hand_out(group)

        assignments = {each.member_id: each.assignment for each in request.assignments}
        records = [group.record(assignments)]
        return WriteOutcome(
            answer, records, assigned, on_failed=lambda error: self._rebalance.not_assigned(group, error)
        )

    def heartbeat(self, request: HeartbeatRequest, caller: Caller) -> WriteOutcome[HeartbeatResponse]:
        group = self._shard.groups.get(request.group_id)
        if not isinstance(group, ClassicGroup):
            if not request.group_id:
                return WriteOutcome(HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID))
            if group is None:
                return WriteOutcome(HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
            return self.in_consumer_groups.heartbeat(request, caller)
        try:
            group.check_member(request.member_id, request.group_instance_id)
        except CoordinatorError as error:
            # A group with an empty id can have offsets, but never members.
            return WriteOutcome(
                HeartbeatResponse(error_code=error.code if request.group_id else ErrorCode.INVALID_GROUP_ID)
            )
        if request.generation_id != group.generation:
            return WriteOutcome(HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION))
        self._rebalance.keep_alive(group, group.members[request.member_id])
        is_due = group.state is ClassicState.PREPARING
        return WriteOutcome(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if is_due else ErrorCode.NONE))

    def leave(self, request: LeaveGroupRequest, caller: Caller) -> WriteOutcome[LeaveGroupResponse]:
        if not request.group_id:
            return WriteOutcome(LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        group = self._shard.groups.get(request.group_id)
        if group is not None and not isinstance(group, ClassicGroup):
            return self.in_consumer_groups.leave(request, caller)
        leaving = request.members
        if caller.version < _SEVERAL_LEAVE_SINCE:
            leaving = [LeaveGroupMember(member_id=request.member_id)]
        errors = [self._leave(group, each) for each in leaving]
        records: list[KeyValue] = []
        if group is not None and not all(errors) and not group.is_empty:
            records = self._rebalance.begin_or_go_on(group, "members leave")
        if caller.version < _SEVERAL_LEAVE_SINCE:
            return WriteOutcome(LeaveGroupResponse(error_code=errors[0]), records)
        members = [
            LeaveGroupMemberResponse(
                member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=error
            )
            for each, error in zip(leaving, errors, strict=True)
        ]
        return WriteOutcome(LeaveGroupResponse(members=members), records)

    def _leave(self, group: ClassicGroup | None, leaving: LeaveGroupMember) -> ErrorCode:
        """A static member can be removed by its instance id alone."""
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id, instance_id = leaving.member_id, leaving.group_instance_id
        if not member_id:
            known_id = None if instance_id is None else group.static_members.get(instance_id)
            if known_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = known_id
        elif member_id not in group.pending_joins:
            try:
                group.check_member(member_id, instance_id)
            except CoordinatorError as error:
                return error.code
        reason = f" ({leaving.reason})" if leaving.reason else ""
        _logger.info("Group %s: member %s leaves%s.", group.group_id, member_id, reason)
        self._rebalance.forget(group, member_id)
        return ErrorCode.NONE

    # --- what is told of groups, and their end ----------------------------------------------------------------------

    def describe(self, group_id: str, version: int) -> DescribedGroup:
        group = self._shard.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            described = DescribedGroup(group_id=group_id, group_state=_DEAD)
            if version >= _NOT_FOUND_SINCE:
                described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                described.error_message = f"Classic group {group_id!r} does not exist."
            return described
        protocol = group.protocol if group.state is ClassicState.STABLE else None
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            protocol_type=group.protocol_type,
            protocol_data=protocol or "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=b"" if protocol is None else member.protocols[protocol],
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ],
        )

    def list_groups(self, request: ListGroupsRequest) -> list[ListedGroup]:
        """Groups of both protocols. Filters ignore case."""
        states = {state.strip().lower() for state in request.states_filter}
        types = {each.strip().lower() for each in request.types_filter}
        return [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state_name,
                group_type=group.type_name,
            )
            for group in self._shard.groups.values()
            if (not states or group.state_name.lower() in states) and (not types or group.type_name.lower() in types)
        ]

    def delete(self, group_id: str) -> WriteOutcome[DeleteGroupsResult]:
        """Deletes an empty group of either protocol, with its offsets."""
        group = self._shard.groups.get(group_id)
        if group is None:
            return WriteOutcome(DeleteGroupsResult(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND))
        if not group.is_empty:
            return WriteOutcome(DeleteGroupsResult(group_id=group_id, error_code=ErrorCode.NON_EMPTY_GROUP))
        records = [*self._offsets.tombstones(group_id), *group.deletion_records()]
        return WriteOutcome(DeleteGroupsResult(group_id=group_id), records)

    # --- the log ----------------------------------------------------------------------------------------------------

    def _replay(self, key: bytes, value: bytes | None, _offset: int, _producer_id: int) -> None:
        group_id = key_of(GroupMetadataKey, key).group
        group = self._shard.groups.get(group_id)
        if value is None:
            if isinstance(group, ClassicGroup):
                del self._shard.groups[group_id]
                self._rebalance.drop(group)
            return
        if not isinstance(group, ClassicGroup):
            group = self._shard.groups[group_id] = ClassicGroup(group_id, self._shard.context.clock)
        group.replay(value_of(GroupMetadataValue, value))

    def _loaded(self) -> None:
        for group in self._shard.groups.values():
            if isinstance(group, ClassicGroup):
                self._rebalance.take_up(group)
                if len(group.members) > self._shard.settings.max_size:
                    # No member waits yet, so there is nothing to write.
                    self._rebalance.begin(group, "loaded with more members than group.max.size allows")

    def _unload(self) -> None:
        for group in self._shard.groups.values():
            if isinstance(group, ClassicGroup):
                group.answer_all(ErrorCode.NOT_COORDINATOR)


def _check_sync(group: ClassicGroup, request: SyncGroupRequest) -> None:
    group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION)
    if request.protocol_type not in (None, group.type_of_protocol) or request.protocol_name not in (
        None,
        group.protocol,
    ):
        raise CoordinatorError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
