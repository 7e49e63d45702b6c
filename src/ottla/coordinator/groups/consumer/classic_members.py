"""Serves members of a consumer group that use the classic protocol, while the group moves from one to the other.

Such a member rebalances as in a classic group: a heartbeat tells it to rejoin, it sends JoinGroup, then SyncGroup. But
there is no leader and no waiting for other members: its generation is its member epoch, and its assignment is what it
has reached of its target assignment.
"""

from __future__ import annotations

import logging
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import format_uuid, random_uuid
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.groups.classic.group import CONSUMER
from ottla.coordinator.groups.classic.member import protocols_of
from ottla.coordinator.groups.consumer.conversion import assignment_blob, partitions_named, read_subscription
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.consumer.member import (
    ClassicFace,
    ConsumerMember,
    MemberState,
    MemberSubscription,
    Standing,
)
from ottla.coordinator.groups.consumer.protocol import ConsumerProtocol, static_member
from ottla.coordinator.groups.shard import GroupShard
from ottla.coordinator.seams import Caller
from ottla.coordinator.shards import WriteOutcome
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.leave_group import (
    LeaveGroupMember,
    LeaveGroupMemberResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_logger = logging.getLogger(__name__)

_MEMBER_ID_REQUIRED_SINCE: Final = 4
_SEVERAL_LEAVE_SINCE: Final = 3


class ClassicInConsumerGroups:
    """Handles requests for consumer groups that have members. Responses carry the errors."""

    def __init__(self, shard: GroupShard, protocol: ConsumerProtocol) -> None:
        self._shard = shard
        self._protocol = protocol
        self._timers = protocol.timers

    # --- JoinGroup --------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, caller: Caller) -> WriteOutcome[JoinGroupResponse]:
        try:
            return self._join(self._group(request.group_id), request, caller)
        except CoordinatorError as error:
            return WriteOutcome(JoinGroupResponse(member_id=request.member_id, error_code=error.code))

    def _join(self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller) -> WriteOutcome[JoinGroupResponse]:
        settings = self._shard.settings
        if not settings.session_timeout_min_ms <= request.session_timeout_ms <= settings.session_timeout_max_ms:
            raise CoordinatorError(ErrorCode.INVALID_SESSION_TIMEOUT)
        member_id = request.member_id or format_uuid(random_uuid())
        instance_id = request.group_instance_id
        self._protocol.check_room(group, member_id)
        protocols = protocols_of(request.protocols)
        if request.protocol_type != CONSUMER or not group.supports_classic(protocols):
            raise CoordinatorError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not request.member_id and instance_id is None and caller.version >= _MEMBER_ID_REQUIRED_SINCE:
            return WriteOutcome(JoinGroupResponse(member_id=member_id, error_code=ErrorCode.MEMBER_ID_REQUIRED))
        said = _read(next(iter(protocols.values())))
        known, replaced = _place_of(group, request, member_id)
        change = self._protocol.change(group)
        standing = Standing() if known is None else known.standing
        if replaced is not None:
            standing = change.replace(replaced, member_id)
        before = None if known is None else known.subscription
        after = MemberSubscription(
            instance_id=instance_id,
            rack_id=said.rack_id,
            client_id=caller.client_id or "",
            client_host=f"/{caller.client_host}",
            topics=frozenset(said.topics),
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            classic=ClassicFace(request.session_timeout_ms, tuple(protocols.items())),
        )
        if replaced is not None and self._protocol.conversion.goes_back_without(group, [replaced], after):
            return self._join_classic_group(group, replaced, member_id, after)
        change.come(member_id, before, after, None if replaced is None else replaced.member_id)
        owned = partitions_named(said.owned_partitions, self._shard.topics)
        reached = change.step(standing, change.target(self._protocol.assignors[0]), owned)
        watch = self._protocol.when_appended(change, member_id, after, standing, reached)

        def appended() -> None:
            watch()
            self._timers.expect_sync(group.group_id, member_id, request.rebalance_timeout_ms)

        return WriteOutcome(_joined(member_id, reached.epoch, after), change.records, appended)

    def _join_classic_group(
        self, group: ConsumerGroup, replaced: ConsumerMember, member_id: str, subscription: MemberSubscription
    ) -> WriteOutcome[JoinGroupResponse]:
        """The last member of the consumer protocol returned with the classic protocol."""
        generation, records, appended = self._protocol.go_back_by_replacement(group, replaced, member_id, subscription)
        return WriteOutcome(_joined(member_id, generation, subscription), records, appended)

    # --- SyncGroup and Heartbeat ------------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest, caller: Caller) -> WriteOutcome[SyncGroupResponse]:  # noqa: ARG002
        try:
            group = self._group(request.group_id)
            member, face = _classic_member(group, request.member_id, request.group_instance_id)
            _check_generation(member, request.generation_id)
            if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, face.protocol_name):
                raise CoordinatorError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            standing = member.standing
            # A member that still has to revoke partitions has joined already, and revokes first.
            if group.epoch > standing.epoch and standing.state is not MemberState.UNREVOKED_PARTITIONS:
                self._expect_join(group, member)
                raise CoordinatorError(ErrorCode.REBALANCE_IN_PROGRESS)
        except CoordinatorError as error:
            return WriteOutcome(SyncGroupResponse(error_code=error.code))
        self._timers.synced(group.group_id, member.member_id)
        self._timers.keep_alive(group, member.member_id, face.session_timeout_ms)
        return WriteOutcome(
            SyncGroupResponse(
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignment=assignment_blob(member.standing.assigned, face, self._shard.topics),
            )
        )

    def heartbeat(self, request: HeartbeatRequest, caller: Caller) -> WriteOutcome[HeartbeatResponse]:  # noqa: ARG002
        try:
            group = self._group(request.group_id)
            member, face = _classic_member(group, request.member_id, request.group_instance_id)
            _check_generation(member, request.generation_id)
        except CoordinatorError as error:
            return WriteOutcome(HeartbeatResponse(error_code=error.code))
        self._timers.keep_alive(group, member.member_id, face.session_timeout_ms)
        if not _must_join(group, member):
            return WriteOutcome(HeartbeatResponse())
        self._expect_join(group, member)
        return WriteOutcome(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))

    def _expect_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        self._timers.expect_join(group.group_id, member.member_id, member.subscription.rebalance_timeout_ms)

    # --- LeaveGroup -------------------------------------------------------------------------------------------------

    def leave(self, request: LeaveGroupRequest, caller: Caller) -> WriteOutcome[LeaveGroupResponse]:
        """Removes members of either protocol, as tools do."""
        group = self._group(request.group_id)
        several = caller.version >= _SEVERAL_LEAVE_SINCE
        leaving = request.members if several else [LeaveGroupMember(member_id=request.member_id)]
        found: dict[str, ConsumerMember] = {}
        answers = []
        for each in leaving:
            answer = LeaveGroupMemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id)
            try:
                member = _member(group, each.member_id, each.group_instance_id)
                found[member.member_id] = member
                _logger.info("Group %s: member %s leaves (%s).", group.group_id, member.member_id, each.reason or "")
            except CoordinatorError as error:
                answer.error_code = error.code
            answers.append(answer)
        response = LeaveGroupResponse(members=answers)
        if not several:
            response = LeaveGroupResponse(error_code=answers[0].error_code)
        if not found:
            return WriteOutcome(response)
        return WriteOutcome(response, *self._protocol.removal(group, list(found.values())))

    def _group(self, group_id: str) -> ConsumerGroup:
        group = self._shard.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group


def _place_of(
    group: ConsumerGroup, request: JoinGroupRequest, member_id: str
) -> tuple[ConsumerMember | None, ConsumerMember | None]:
    """The known member, and the one it replaces if a static member joins without a member id."""
    instance_id = request.group_instance_id
    if instance_id is None:
        return group.members.get(member_id), None
    if request.member_id:
        return static_member(group, instance_id, request.member_id), None
    known = group.static_member(instance_id)
    return known, known


def _must_join(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether the member has to rejoin: its target changed, it revokes partitions, or those it waited for are free."""
    standing = member.standing
    waits = standing.state is MemberState.UNRELEASED_PARTITIONS
    return standing.epoch < group.epoch or (waits and not group.waits_for_others(member))


def _member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """The instance id alone is enough for a static member."""
    return group.member(member_id) if instance_id is None else static_member(group, instance_id, member_id or None)


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicFace]:
    member = _member(group, member_id, instance_id)
    face = member.subscription.classic
    if face is None:
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID, "The member does not use the classic protocol.")
    return member, face


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if member.standing.epoch != generation:
        raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION)


def _read(blob: bytes) -> ConsumerProtocolSubscription:
    try:
        return read_subscription(blob)
    except ProtocolError as error:
        raise CoordinatorError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from None


def _joined(member_id: str, generation: int, subscription: MemberSubscription) -> JoinGroupResponse:
    """Without a leader: the coordinator assigns."""
    name = None if subscription.classic is None else subscription.classic.protocol_name
    return JoinGroupResponse(member_id=member_id, generation_id=generation, protocol_type=CONSUMER, protocol_name=name)
