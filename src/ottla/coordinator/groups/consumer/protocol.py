"""The consumer protocol (KIP-848): with ConsumerGroupHeartbeat a member joins, stays, leaves, and gets its assignment.

The coordinator assigns, and members follow at their own pace, so members that keep their partitions never wait for
others. `group` has the state, `change` the consequences of a change, `reconciliation` a member's way to its target, and
`timers` the timeouts. In a stable group a heartbeat compares a few numbers and writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import format_uuid, random_uuid
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.consumer import records as records_of
from ottla.coordinator.groups.consumer.assignors import ASSIGNORS
from ottla.coordinator.groups.consumer.assignors.members import Partitions
from ottla.coordinator.groups.consumer.change import GroupChange, matcher_of
from ottla.coordinator.groups.consumer.conversion import Conversion
from ottla.coordinator.groups.consumer.description import describe_group
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
    MemberSubscription,
    Standing,
)
from ottla.coordinator.groups.consumer.records import by_topic
from ottla.coordinator.groups.consumer.replay import ConsumerReplay
from ottla.coordinator.groups.consumer.timers import ConsumerTimers
from ottla.coordinator.groups.shard import GroupShard
from ottla.coordinator.key_values import KeyValue
from ottla.coordinator.pattern_syntax import PatternError
from ottla.coordinator.seams import Caller
from ottla.coordinator.shards import WriteOutcome
from ottla.wire.messages.consumer_group_describe import DescribedConsumerGroup
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)

_logger = logging.getLogger(__name__)

_MEMBER_ID_BY_CLIENT: Final = 1
"""Since this version members generate their own ids (KIP-1082)."""
_INTERVAL_OF_WAITING_MS: Final = 500


class ConsumerProtocol:
    """The consumer protocol on a shard. Raises `CoordinatorError` if it refuses a request."""

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard
        self._settings = shard.settings
        self.timers = ConsumerTimers(shard, self.fence)
        self.conversion = Conversion(shard)
        self.assignors = tuple(filter(ASSIGNORS.__contains__, shard.settings.consumer_assignors)) or tuple(ASSIGNORS)
        """The assignors that members may ask for; the first is the default. All, if no configured one is known."""
        shard.replayers.update(ConsumerReplay(shard.groups).replayers)
        shard.on_loaded.append(self._loaded)

    def _loaded(self) -> None:
        for group in self._shard.groups.values():
            if isinstance(group, ConsumerGroup):
                self._take_up(group)

    def _take_up(self, group: ConsumerGroup) -> None:
        """Starts the sessions of a group that was made from records."""
        for member_id, member in group.members.items():
            self._watch(group, member_id, member.subscription, Standing(), member.standing)

    def _watch(
        self,
        group: ConsumerGroup,
        member_id: str,
        subscription: MemberSubscription,
        before: Standing,
        standing: Standing,
    ) -> None:
        """Restarts the session of a member that sent a heartbeat, and watches its new state."""
        if subscription.classic is None:
            self._keep_alive(group, member_id)
            self.timers.excuse(group.group_id, member_id)
            if standing is not before:
                self.timers.follow(group.group_id, member_id, standing, subscription.rebalance_timeout_ms)
        else:
            self.timers.keep_alive(group, member_id, subscription.classic.session_timeout_ms)

    def _keep_alive(self, group: ConsumerGroup, member_id: str) -> None:
        self.timers.keep_alive(group, member_id, self._settings.consumer_times_of(group.group_id).session_timeout_ms)

    # --- heartbeats -------------------------------------------------------------------------------------------------

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> WriteOutcome[ConsumerGroupHeartbeatResponse]:
        self._check(request, caller.version)
        if request.member_epoch < JOIN_EPOCH:
            return self._leave(request)
        if request.member_epoch == JOIN_EPOCH:
            return self._join(request, caller)
        return self._stay(request, caller)

    def _check(self, request: ConsumerGroupHeartbeatRequest, version: int) -> None:
        epoch = request.member_epoch
        if not request.group_id.strip():
            raise _invalid("GroupId can't be empty.")
        needs_member_id = version >= _MEMBER_ID_BY_CLIENT or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH
        if needs_member_id and not request.member_id.strip():
            raise _invalid("MemberId can't be empty.")
        if request.instance_id is not None and not request.instance_id.strip():
            raise _invalid("InstanceId can't be empty.")
        if request.rack_id is not None and not request.rack_id.strip():
            raise _invalid("RackId can't be empty.")
        if epoch == JOIN_EPOCH:
            if request.rebalance_timeout_ms == -1:
                raise _invalid("RebalanceTimeoutMs must be provided in first request.")
            if request.topic_partitions is None or request.topic_partitions:
                raise _invalid("TopicPartitions must be empty when (re-)joining.")
            if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
                raise _invalid("SubscribedTopicNames or SubscribedTopicRegex must be set when (re-)joining.")
        elif epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
        elif epoch < STATIC_LEAVE_EPOCH:
            raise _invalid("MemberEpoch is invalid.")
        if request.server_assignor is not None and request.server_assignor not in self.assignors:
            reason = f"ServerAssignor {request.server_assignor} is not supported. Supported: {self.assignors}."
            raise CoordinatorError(ErrorCode.UNSUPPORTED_ASSIGNOR, reason)

    def _stay(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> WriteOutcome[ConsumerGroupHeartbeatResponse]:
        group, member_id = self._group(request.group_id), request.member_id
        if request.instance_id is None:
            member = group.member(member_id)
        else:
            member = static_member(group, request.instance_id, member_id)
        _check_epoch(member, request)
        before, standing = member.subscription, member.standing
        after = _subscription_after(before, request, caller)
        if (
            after is before
            and group.topics_version == self._shard.topics.version
            and group.epoch == group.target_epoch
            and member.is_reconciled_to(group.target_epoch)
        ):
            self._keep_alive(group, member_id)
            return WriteOutcome(self._response(request, member_id, standing, standing))
        change = self.change(group)
        change.come(member_id, before, after)
        return self._advance(change, request, member_id, after, standing)

    def _join(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> WriteOutcome[ConsumerGroupHeartbeatResponse]:
        """A member joins or rejoins: it owns nothing, but the coordinator keeps its former partitions for it."""
        group, conversion = self._group_to_join(request.group_id)
        member_id = request.member_id or format_uuid(random_uuid())
        self.check_room(group, member_id)
        known = group.members.get(member_id)
        change = self.change(group, conversion)
        standing = Standing() if known is None else known.standing
        static = None if request.instance_id is None else group.static_member(request.instance_id)
        if static is not None:
            if static.subscription.classic is None and static.standing.epoch != STATIC_LEAVE_EPOCH:
                reason = (
                    f"Static member {member_id} with instance id {request.instance_id} cannot join the group because "
                    f"the instance id is owned by member {static.member_id}."
                )
                raise CoordinatorError(ErrorCode.UNRELEASED_INSTANCE_ID, reason)
            known, standing = static, change.replace(static, member_id)
        before = None if known is None else known.subscription
        after = _subscription_after(before or MemberSubscription(), request, caller)
        change.come(member_id, before, after, None if static is None else static.member_id)
        _logger.info("Group %s: member %s joins with the consumer protocol.", group.group_id, member_id)
        return self._advance(change, request, member_id, after, standing)

    def _advance(
        self,
        change: GroupChange,
        request: ConsumerGroupHeartbeatRequest,
        member_id: str,
        subscription: MemberSubscription,
        before: Standing,
    ) -> WriteOutcome[ConsumerGroupHeartbeatResponse]:
        owned = _partitions(request.topic_partitions)
        standing = change.step(before, change.target(self.assignors[0]), owned)
        appended = self.when_appended(change, member_id, subscription, before, standing)
        return WriteOutcome(self._response(request, member_id, before, standing), change.records, appended)

    def when_appended(
        self,
        change: GroupChange,
        member_id: str,
        subscription: MemberSubscription,
        before: Standing,
        standing: Standing,
    ) -> Callable[[], None]:
        """Updates the soft state after a member joined or stayed."""

        def appended() -> None:
            group = self._group(change.group_id)
            if change.is_conversion:
                self._take_up(group)
            if change.replaces is not None and change.replaces != member_id:
                self.timers.forget(change.group_id, change.replaces)
            group.topics_version = change.topics_version
            self._watch(group, member_id, subscription, before, standing)

        return appended

    def _response(
        self, request: ConsumerGroupHeartbeatRequest, member_id: str, before: Standing, now: Standing
    ) -> ConsumerGroupHeartbeatResponse:
        """Contains the assignment if it changed, or if the member may not know it, because it sent a full request."""
        says_all = request.member_epoch == JOIN_EPOCH or (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        assignment = None
        if says_all or now.assigned != before.assigned:
            assignment = HeartbeatAssignment(
                topic_partitions=[
                    HeartbeatTopicPartitions(topic_id=topic_id, partitions=indexes)
                    for topic_id, indexes in by_topic(now.assigned).items()
                ]
            )
        return ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=now.epoch,
            heartbeat_interval_ms=self._interval_ms(request.group_id, now),
            assignment=assignment,
        )

    def _interval_ms(self, group_id: str, standing: Standing) -> int:
        """A member that waits for others to revoke partitions sends its next heartbeat soon: nothing else wakes it."""
        interval_ms = self._settings.consumer_times_of(group_id).heartbeat_interval_ms
        waits = standing.state is MemberState.UNRELEASED_PARTITIONS
        return min(interval_ms, _INTERVAL_OF_WAITING_MS) if waits else interval_ms

    # --- leaving ----------------------------------------------------------------------------------------------------

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> WriteOutcome[ConsumerGroupHeartbeatResponse]:
        group, member_id = self._group(request.group_id), request.member_id
        response = ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch)
        if request.instance_id is None:
            member = group.member(member_id)
        else:
            member = static_member(group, request.instance_id, member_id)
            if request.member_epoch == STATIC_LEAVE_EPOCH:
                _logger.info("Group %s: static member %s leaves temporarily.", group.group_id, member_id)
                away = records_of.standing_record(group.group_id, member_id, _away(member.standing))
                return WriteOutcome(response, [away])
        _logger.info("Group %s: member %s leaves.", group.group_id, member_id)
        records, appended = self.removal(group, [member])
        return WriteOutcome(response, records, appended)

    def fence(self, group: ConsumerGroup, member: ConsumerMember, reason: str) -> WriteOutcome[None]:
        _logger.info("Group %s: removed member %s: %s.", group.group_id, member.member_id, reason)
        return WriteOutcome(None, *self.removal(group, [member]))

    def removal(
        self, group: ConsumerGroup, members: Sequence[ConsumerMember]
    ) -> tuple[list[KeyValue], Callable[[], None]]:
        """The records that remove members, and what to do after they are written. If only members of the classic
        protocol are left, converts the group to it."""
        if self.conversion.goes_back_without(group, members):
            return self.conversion.downgrade(group, members, self._forgetting(group, group.members))
        change = self.change(group)
        change.leave(members)
        return change.records, self._forgetting(group, [member.member_id for member in members])

    def go_back_by_replacement(
        self, group: ConsumerGroup, old: ConsumerMember, member_id: str, subscription: MemberSubscription
    ) -> tuple[int, list[KeyValue], Callable[[], None]]:
        """The last member of the consumer protocol is static and returns with the classic one: converts the group.
        Returns the generation, the records, and what to do after they are written."""
        forget = self._forgetting(group, group.members)
        return self.conversion.downgrade_by_replacement(group, old, member_id, subscription, forget)

    def _forgetting(self, group: ConsumerGroup, member_ids: Iterable[str]) -> Callable[[], None]:
        """A function that stops the timers of these members once they are gone."""
        group_id, gone = group.group_id, list(member_ids)

        def forget() -> None:
            for member_id in gone:
                self.timers.forget(group_id, member_id)

        return forget

    # --- what is told -----------------------------------------------------------------------------------------------

    def describe(self, group_id: str) -> DescribedConsumerGroup:
        return describe_group(self._group(group_id), self._shard.topics, self.assignors[0])

    # --- groups -----------------------------------------------------------------------------------------------------

    def _group(self, group_id: str) -> ConsumerGroup:
        group = self._shard.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} does not exist.")
        return group

    def _group_to_join(self, group_id: str) -> tuple[ConsumerGroup, list[KeyValue]]:
        """The group, created if needed, and the records that create it."""
        group = self._shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group, []
        if group is None:
            return ConsumerGroup(group_id), []
        if group.is_empty:
            return ConsumerGroup(group_id), group.deletion_records()
        if isinstance(group, ClassicGroup) and self.conversion.may_upgrade(group):
            return self.conversion.upgrade(group)
        raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")

    def change(self, group: ConsumerGroup, conversion: Sequence[KeyValue] = ()) -> GroupChange:
        return GroupChange(group, self._shard.topics, self._shard.context.clock.now_ms(), conversion)

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        limit = self._settings.consumer_max_size
        if len(group.members) >= limit and member_id not in group.members:
            reason = f"The consumer group has reached its maximum capacity of {limit} members."
            raise CoordinatorError(ErrorCode.GROUP_MAX_SIZE_REACHED, reason)


def static_member(group: ConsumerGroup, instance_id: str, member_id: str | None) -> ConsumerMember:
    """The member with this instance id; if a member id is given, it must match."""
    member = group.static_member(instance_id)
    if member is None:
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member_id is not None and member.member_id != member_id:
        reason = f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
        raise CoordinatorError(ErrorCode.FENCED_INSTANCE_ID, reason)
    return member


def _away(standing: Standing) -> Standing:
    """For a static member that left temporarily: its partitions are older than any epoch that it will return with."""
    epochs = dict.fromkeys(standing.assigned, JOIN_EPOCH)
    return replace(standing, epoch=STATIC_LEAVE_EPOCH, revoking=frozenset(), assignment_epochs=epochs)


def _check_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """Accepts the previous epoch too, if a response was lost and the member owns nothing that it should not."""
    standing, epoch = member.standing, request.member_epoch
    if epoch == standing.epoch:
        return
    if epoch < standing.epoch and epoch == standing.previous_epoch:
        owned = _partitions(request.topic_partitions)
        if owned is not None and owned <= standing.assigned:
            return
    raise CoordinatorError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The member has epoch {epoch}, but the coordinator has {standing.epoch}. "
        "The member must abandon all its partitions and rejoin.",
    )


def _subscription_after(
    before: MemberSubscription, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> MemberSubscription:
    """The subscription with the changes in the request; the same object if nothing changed."""
    changes: dict[str, object] = {}
    client_id, client_host = caller.client_id or "", f"/{caller.client_host}"
    if client_id != before.client_id:
        changes["client_id"] = client_id
    if client_host != before.client_host:
        changes["client_host"] = client_host
    if before.classic is not None:
        changes["classic"] = None
    if request.instance_id is not None and request.instance_id != before.instance_id:
        changes["instance_id"] = request.instance_id
    if request.rack_id is not None and request.rack_id != before.rack_id:
        changes["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms not in (-1, before.rebalance_timeout_ms):
        changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.server_assignor is not None and request.server_assignor != before.server_assignor:
        changes["server_assignor"] = request.server_assignor
    if request.subscribed_topic_names is not None:
        topics = frozenset(request.subscribed_topic_names)
        if topics != before.topics:
            changes["topics"] = topics
    if request.subscribed_topic_regex is not None:
        pattern = request.subscribed_topic_regex or None
        if pattern != before.pattern:
            _check_pattern(pattern)
            changes["pattern"] = pattern
    return replace(before, **changes) if changes else before  # type: ignore[arg-type]  # each is of its field's type


def _check_pattern(pattern: str | None) -> None:
    try:
        if pattern is not None:
            matcher_of(pattern)
    except PatternError as error:
        reason = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}."
        raise CoordinatorError(ErrorCode.INVALID_REGULAR_EXPRESSION, reason) from None


def _partitions(topics: Sequence[HeartbeatTopicPartitions] | None) -> Partitions | None:
    if topics is None:
        return None
    return frozenset((topic.topic_id, index) for topic in topics for index in topic.partitions)


def _invalid(reason: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.INVALID_REQUEST, reason)
