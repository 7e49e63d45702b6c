"""JoinGroup of the classic protocol: who may join or rejoin, and the rebalance that follows."""

from __future__ import annotations

import uuid
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.groups.classic.group import ClassicGroup, ClassicState, chosen_protocol
from ottla.coordinator.groups.classic.member import ClassicMember, protocols_of
from ottla.coordinator.groups.classic.rebalance import ClassicRebalance, generation_for
from ottla.coordinator.groups.shard import GroupShard
from ottla.coordinator.pending import PendingAnswer
from ottla.coordinator.seams import Caller
from ottla.coordinator.shards import WriteOutcome
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

Joined = WriteOutcome[JoinGroupResponse]
Answer = PendingAnswer[JoinGroupResponse]

_MEMBER_ID_REQUIRED_SINCE: Final = 4
_SKIP_ASSIGNMENT_SINCE: Final = 9


class ClassicJoin:
    """Works on the classic groups of a shard."""

    def __init__(self, shard: GroupShard, rebalance: ClassicRebalance) -> None:
        self._shard = shard
        self._rebalance = rebalance

    def join(self, request: JoinGroupRequest, caller: Caller) -> Joined:
        """The response usually waits for the other members. A member without an id can create the group."""
        settings = self._shard.settings
        if not request.group_id:
            return WriteOutcome(refused(ErrorCode.INVALID_GROUP_ID, request.member_id))
        if not settings.session_timeout_min_ms <= request.session_timeout_ms <= settings.session_timeout_max_ms:
            return WriteOutcome(refused(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id))
        answer: Answer = PendingAnswer()
        group = self._shard.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return self._join(group, request, caller, answer)
        return self._join_new_group(request, caller, answer)

    def _join_new_group(self, request: JoinGroupRequest, caller: Caller, answer: Answer) -> Joined:
        """Writes the group's record first, which creates it, or replaces an empty consumer group."""
        if request.member_id:
            return WriteOutcome(refused(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
        made = ClassicGroup(request.group_id, self._shard.context.clock)
        if not made.supports(request.protocol_type, protocols_of(request.protocols)):
            return WriteOutcome(refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        other = self._shard.groups.get(request.group_id)
        records = [] if other is None else other.deletion_records()

        def join() -> WriteOutcome[None]:
            group = self._shard.groups[request.group_id]
            if not isinstance(group, ClassicGroup):
                raise TypeError(f"The record of classic group {request.group_id!r} made a {type(group).__name__}.")
            joined = self._join(group, request, caller, answer)
            return WriteOutcome(None, joined.records, joined.on_appended, on_failed=joined.on_failed)

        def join_or_refuse() -> WriteOutcome[None]:
            try:
                return join()
            except Exception:
                if not answer.is_answered:  # The group's record is written, so nothing else answers the request.
                    answer.answer(refused(ErrorCode.UNKNOWN_SERVER_ERROR, request.member_id))
                raise

        return WriteOutcome(answer, [*records, made.record()], lambda: self._shard.context.write(join_or_refuse))

    def _join(self, group: ClassicGroup, request: JoinGroupRequest, caller: Caller, answer: Answer) -> Joined:
        member_id = request.member_id
        protocols = protocols_of(request.protocols)
        if not self._has_room(group, member_id):
            self._rebalance.forget(group, member_id)
            answer.answer(refused(ErrorCode.GROUP_MAX_SIZE_REACHED))
            return WriteOutcome(answer, self._rebalance.go_on(group))
        if not group.supports(request.protocol_type, protocols):
            answer.answer(refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
            return WriteOutcome(answer)
        if not member_id:
            return self._join_without_id(group, request, caller, answer)
        if member_id in group.pending_joins and request.group_instance_id is None:
            return self._add(group, _new_member(member_id, request, caller), request, answer)
        try:
            group.check_member(member_id, request.group_instance_id)
        except CoordinatorError as error:
            answer.answer(refused(error.code, member_id))
            return WriteOutcome(answer)
        return self._rejoin(group, group.members[member_id], request, caller, answer)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """While members join, only those that have joined count: the last to rejoin an oversized group are refused."""
        limit = self._shard.settings.max_size
        if group.state is ClassicState.EMPTY:
            return True
        if group.state is ClassicState.PREPARING:
            member = group.members.get(member_id)
            return (member is not None and member.joining is not None) or group.joining_count < limit
        return member_id in group.members or len(group.members) < limit

    def _join_without_id(
        self, group: ClassicGroup, request: JoinGroupRequest, caller: Caller, answer: Answer
    ) -> Joined:
        instance_id = request.group_instance_id
        # Kafka uses "null" for clients without an id.
        named_after = instance_id if instance_id is not None else caller.client_id or "null"
        member = _new_member(f"{named_after}-{uuid.uuid4()}", request, caller)
        if instance_id is not None and instance_id in group.static_members:
            return self._return_static(group, member, request, caller, answer)
        if instance_id is None and caller.version >= _MEMBER_ID_REQUIRED_SINCE:
            # Otherwise a client whose connection breaks while it waits leaves a member behind each time (KIP-394).
            self._rebalance.expect(group, member.member_id, request.session_timeout_ms)
            answer.answer(refused(ErrorCode.MEMBER_ID_REQUIRED, member.member_id))
            return WriteOutcome(answer)
        return self._add(group, member, request, answer)

    def _add(self, group: ClassicGroup, member: ClassicMember, request: JoinGroupRequest, answer: Answer) -> Joined:
        member.is_new = True
        if group.state is ClassicState.PREPARING:
            group.members_came = True
        group.add(member, request.protocol_type)
        group.await_join(member, answer)
        self._rebalance.keep_alive(group, member, self._shard.settings.new_member_join_timeout_ms)
        why = f"member {member.member_id} joins{_reason(request)}"
        return WriteOutcome(answer, self._rebalance.begin_or_go_on(group, why))

    def _rejoin(
        self, group: ClassicGroup, member: ClassicMember, request: JoinGroupRequest, caller: Caller, answer: Answer
    ) -> Joined:
        protocols = protocols_of(request.protocols)
        # The leader of a stable group rejoins because something else changed, such as the partitions of a topic.
        is_led = group.leader_id != member.member_id
        if member.tells_the_same(protocols) and (
            group.state is ClassicState.COMPLETING or (group.state is ClassicState.STABLE and is_led)
        ):
            answer.answer(generation_for(group, member))
            return WriteOutcome(answer)
        group.change(member, protocols)
        member.rebalance_timeout_ms = _rebalance_timeout_ms(request, caller)
        member.session_timeout_ms = request.session_timeout_ms
        group.await_join(member, answer)
        why = f"member {member.member_id} rejoins{_reason(request)}"
        return WriteOutcome(answer, self._rebalance.begin_or_go_on(group, why))

    def _return_static(
        self, group: ClassicGroup, new: ClassicMember, request: JoinGroupRequest, caller: Caller, answer: Answer
    ) -> Joined:
        """A static member returns with a new member id: it replaces the old one, which is fenced. If the group is
        stable and its protocol stays the same, there is no rebalance."""
        old = group.members[group.static_members[new.instance_id or ""]]
        new.client_id, new.client_host = old.client_id, old.client_host
        new.assignment = old.assignment
        if group.state is ClassicState.STABLE and chosen_protocol(group.members_with(old, new)) == group.protocol:
            leader_before = group.leader_id or ""

            def back() -> None:
                self._rebalance.fence(group, old)
                group.pending_syncs.discard(old.member_id)
                member = group.members[new.member_id]
                group.change(member, new.protocols)
                self._rebalance.keep_alive(group, member)
                answer.answer(_unchanged(group, member, leader_before, caller.version))

            return WriteOutcome(answer, [group.record_with(old, new)], back)
        self._rebalance.fence(group, old)
        group.put_in_place_of(old, new)
        group.await_join(new, answer)
        self._rebalance.keep_alive(group, new)
        why = f"static member {new.instance_id} returns{_reason(request)}"
        return WriteOutcome(answer, self._rebalance.begin_or_go_on(group, why))


def _unchanged(group: ClassicGroup, member: ClassicMember, leader_before: str, version: int) -> JoinGroupResponse:
    """The unchanged generation, for a static member that returns. A leader must not assign again: since v9 the response
    says so (KIP-814), before v9 it does not name it as the leader."""
    response = generation_for(group, member)
    if version >= _SKIP_ASSIGNMENT_SINCE:
        response.skip_assignment = group.leader_id == member.member_id
    else:
        response.leader = leader_before
        response.members = []
    return response


def _new_member(member_id: str, request: JoinGroupRequest, caller: Caller) -> ClassicMember:
    return ClassicMember(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=caller.client_id or "",
        client_host=f"/{caller.client_host}",
        rebalance_timeout_ms=_rebalance_timeout_ms(request, caller),
        session_timeout_ms=request.session_timeout_ms,
        protocols=protocols_of(request.protocols),
    )


def _rebalance_timeout_ms(request: JoinGroupRequest, caller: Caller) -> int:
    return request.session_timeout_ms if caller.version == 0 else request.rebalance_timeout_ms


def _reason(request: JoinGroupRequest) -> str:
    return f" ({request.reason})" if request.reason else ""


def refused(error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, member_id=member_id)
