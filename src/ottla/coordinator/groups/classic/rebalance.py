"""How a classic group gets from one generation to the next, and which members are removed on the way.

A rebalance has two phases, each limited by the longest rebalance timeout of the members. *Join*: all members send
JoinGroup and wait for each other; a member that does not join in time is removed, unless it is static. The first
rebalance of an empty group waits for `group.initial.rebalance.delay.ms` instead, and again while more members join.
*Sync*: all members ask for their assignment; a member that does not ask in time is removed, and the group rebalances.

Independently, a member without a heartbeat for its session timeout is removed. A heartbeat only moves the end of the
session; the timer compares, and waits again.
"""

from __future__ import annotations

import logging
import math
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.groups.classic.group import ClassicGroup, ClassicState
from ottla.coordinator.groups.classic.member import ClassicMember
from ottla.coordinator.groups.shard import GroupShard
from ottla.coordinator.key_values import KeyValue
from ottla.coordinator.shards import WriteOutcome
from ottla.wire.messages.join_group import JoinGroupMember, JoinGroupResponse
from ottla.wire.messages.sync_group import SyncGroupResponse

_logger = logging.getLogger(__name__)

Records = list[KeyValue]

_NOBODY_JOINED_MS: Final = 1_000
"""The minimum wait if no member joined: the members' rebalance timeouts may be 0."""


class ClassicRebalance:
    """Works on the classic groups of a shard. Each step returns the records to write."""

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard
        self._context = shard.context

    def _group(self, group_id: str) -> ClassicGroup | None:
        """None if the group was deleted or converted before its timer fired."""
        group = self._shard.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    # --- the join phase ---------------------------------------------------------------------------------------------

    def begin_or_go_on(self, group: ClassicGroup, reason: str) -> Records:
        """Called when members changed: starts a rebalance, or completes the join phase of the current one if this was
        the last change that it waited for."""
        return self.go_on(group) if group.state is ClassicState.PREPARING else self.begin(group, reason)

    def go_on(self, group: ClassicGroup) -> Records:
        """Ends the join phase if all members have joined. An initial rebalance waits for its timer instead."""
        if group.state is ClassicState.PREPARING and not group.is_initial_rebalance and group.everybody_joined:
            return self._end_join(group)
        return []

    def begin(self, group: ClassicGroup, reason: str) -> Records:
        _logger.info("Group %s: rebalance after generation %d: %s.", group.group_id, group.generation, reason)
        if group.state is ClassicState.COMPLETING:
            for member in group.members.values():
                member.assignment = b""
                if group.answer_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)):
                    self.keep_alive(group, member)
        group.pending_syncs.clear()
        self._context.cancel(_sync_timer(group.group_id))
        group.is_initial_rebalance = group.state is ClassicState.EMPTY
        group.become(ClassicState.PREPARING)
        if group.is_initial_rebalance:
            delay_ms = self._shard.settings.initial_rebalance_delay_ms
            self._wait_for_more(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
            return []
        if group.everybody_joined:
            return self._end_join(group)
        self._limit_join(group)
        return []

    def _wait_for_more(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        group.members_came = False
        group_id = group.group_id
        self._context.schedule(
            _join_timer(group_id), delay_ms / 1000, lambda: self._waited(group_id, delay_ms, remaining_ms)
        )

    def _waited(self, group_id: str, delay_ms: int, remaining_ms: int) -> WriteOutcome[None]:
        group = self._group(group_id)
        if group is None:
            return WriteOutcome(None)
        if group.members_came and remaining_ms > 0:
            next_ms = min(self._shard.settings.initial_rebalance_delay_ms, remaining_ms)
            self._wait_for_more(group, next_ms, max(remaining_ms - delay_ms, 0))
            return WriteOutcome(None)
        return WriteOutcome(None, self._end_join(group))

    def _limit_join(self, group: ClassicGroup, at_least_ms: int = 0) -> None:
        group_id = group.group_id
        limit_ms = max(group.rebalance_timeout_ms, at_least_ms)
        self._context.schedule(_join_timer(group_id), limit_ms / 1000, lambda: self._join_timed_out(group_id))

    def _join_timed_out(self, group_id: str) -> WriteOutcome[None]:
        group = self._group(group_id)
        return WriteOutcome(None, [] if group is None else self._end_join(group))

    def _end_join(self, group: ClassicGroup) -> Records:
        self._context.cancel(_join_timer(group.group_id))
        absent = [member for member in group.members.values() if member.joining is None and member.instance_id is None]
        for member in absent:
            self.forget(group, member.member_id)
        if absent:
            _logger.info("Group %s: removed %d members that did not join in time.", group.group_id, len(absent))
        if group.members and not group.elect_joined_leader():
            # Only static members, none of which joined: wait until they return or their sessions end.
            self._limit_join(group, _NOBODY_JOINED_MS)
            return []
        group.next_generation()
        if group.state is ClassicState.EMPTY:
            _logger.info("Group %s: empty since generation %d.", group.group_id, group.generation)
            return [group.record()]
        self._answer_joins(group)
        return []

    def _answer_joins(self, group: ClassicGroup) -> None:
        for member in group.members.values():
            group.answer_join(member, generation_for(group, member))
            self.keep_alive(group, member)
            member.is_new = False
        group.pending_syncs.update(group.members)
        group_id = group.group_id
        self._context.schedule(
            _sync_timer(group_id), group.rebalance_timeout_ms / 1000, lambda: self._sync_timed_out(group_id)
        )

    # --- the sync phase ---------------------------------------------------------------------------------------------

    def hand_out(self, group: ClassicGroup) -> None:
        """The group is stable: answers all members that wait for their assignment."""
        _logger.info("Group %s: generation %d with %d members.", group.group_id, group.generation, len(group.members))
        for member in group.members.values():
            if group.answer_sync(member, assignment_of(group, member)):
                self.keep_alive(group, member)

    def not_assigned(self, group: ClassicGroup, error: CoordinatorError) -> None:
        """The leader's assignment could not be written: members that wait for it get the error, and all rejoin."""
        if self._shard.groups.get(group.group_id) is not group or group.state is not ClassicState.COMPLETING:
            return  # The shard is loading again, and has answered every member.
        for member in group.members.values():
            if group.answer_sync(member, SyncGroupResponse(error_code=error.code)):
                self.keep_alive(group, member)
        reason = f"the assignment could not be written ({error.code.name})"
        self._context.write(lambda: WriteOutcome(None, self.begin_or_go_on(group, reason)))

    def _sync_timed_out(self, group_id: str) -> WriteOutcome[None]:
        group = self._group(group_id)
        if group is None or not group.pending_syncs:
            return WriteOutcome(None)
        absent = list(group.pending_syncs)
        for member_id in absent:
            self.forget(group, member_id)
        return WriteOutcome(None, self.begin(group, f"{len(absent)} members did not ask for their assignment in time"))

    # --- sessions ---------------------------------------------------------------------------------------------------

    def keep_alive(self, group: ClassicGroup, member: ClassicMember, timeout_ms: int | None = None) -> None:
        """Restarts the member's session."""
        timeout_s = (member.session_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        member.session_ends_s = ends_s = self._context.clock.monotonic_s() + timeout_s
        if ends_s < member.session_checked_s:
            self._check_session(group.group_id, member, timeout_s)

    def _check_session(self, group_id: str, member: ClassicMember, delay_s: float) -> None:
        member.session_checked_s = self._context.clock.monotonic_s() + delay_s
        member_id = member.member_id
        self._context.schedule(
            session_timer(group_id, member_id), delay_s, lambda: self._session_due(group_id, member_id)
        )

    def expect(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """Expects a member to join with this id, which was just assigned, before the timeout."""
        group.pending_joins.add(member_id)
        group_id = group.group_id
        self._context.schedule(
            session_timer(group_id, member_id), timeout_ms / 1000, lambda: self._session_due(group_id, member_id)
        )

    def _session_due(self, group_id: str, member_id: str) -> WriteOutcome[None]:
        group = self._group(group_id)
        if group is None:
            return WriteOutcome(None)
        member = group.members.get(member_id)
        if member is None:
            group.pending_joins.discard(member_id)
            return WriteOutcome(None, self.go_on(group))
        member.session_checked_s = math.inf
        remaining_s = member.session_ends_s - self._context.clock.monotonic_s()
        if remaining_s > 0:
            self._check_session(group_id, member, remaining_s)
            return WriteOutcome(None)
        if member.is_excused:
            return WriteOutcome(None)  # Its session restarts when it is answered.
        self.forget(group, member_id)
        return WriteOutcome(None, self.begin_or_go_on(group, f"the session of member {member_id} has ended"))

    def forget(self, group: ClassicGroup, member_id: str) -> None:
        """Removes a member or an expected member id, and answers its waiting requests."""
        self._context.cancel(session_timer(group.group_id, member_id))
        member = group.members.get(member_id)
        if member is not None:
            # Without a member id, so that its client joins as a new member.
            group.answer_join(member, JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
            group.answer_sync(member, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member_id)

    def fence(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Another client is the static member now."""
        self._context.cancel(session_timer(group.group_id, member.member_id))
        fenced = JoinGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID, member_id=member.member_id)
        group.answer_join(member, fenced)
        group.answer_sync(member, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))

    # --- groups come and go -----------------------------------------------------------------------------------------

    def take_up(self, group: ClassicGroup) -> None:
        """Starts the sessions of a group that was made from its record."""
        for member in group.members.values():
            self.keep_alive(group, member)

    def drop(self, group: ClassicGroup) -> None:
        """The group was deleted or converted: waiting members must rejoin."""
        group.answer_all(ErrorCode.REBALANCE_IN_PROGRESS)
        for member_id in (*group.members, *group.pending_joins):
            self._context.cancel(session_timer(group.group_id, member_id))
        self._context.cancel(_join_timer(group.group_id))
        self._context.cancel(_sync_timer(group.group_id))


def generation_for(group: ClassicGroup, member: ClassicMember) -> JoinGroupResponse:
    """The response to JoinGroup; the leader's also lists all members."""
    members = []
    if group.leader_id == member.member_id:
        protocol = group.protocol or ""
        members = [
            JoinGroupMember(
                member_id=each.member_id, group_instance_id=each.instance_id, metadata=each.protocols[protocol]
            )
            for each in group.members.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.type_of_protocol,
        protocol_name=group.protocol,
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=members,
    )


def assignment_of(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.type_of_protocol, protocol_name=group.protocol, assignment=member.assignment
    )


def _join_timer(group_id: str) -> str:
    return f"classic join {group_id}"


def _sync_timer(group_id: str) -> str:
    return f"classic sync {group_id}"


def session_timer(group_id: str, member_id: str) -> str:
    """Contains the length of the group id, so that names are unique."""
    return f"classic session {len(group_id)} {group_id} {member_id}"
