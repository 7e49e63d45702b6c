"""Converts groups between the two protocols while their members work (`group.consumer.migration.policy`).

A classic group of consumers becomes a consumer group when the first member of the consumer protocol joins.
`classic_members` serves its remaining classic members. When the last member of the consumer protocol leaves and others
remain, the group becomes a classic group and rebalances.

Subscriptions and assignments of classic members are blobs in the format of `wire.messages.consumer_protocol`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.groups.classic.group import CONSUMER, ClassicGroup, chosen_protocol
from ottla.coordinator.groups.classic.member import ClassicMember
from ottla.coordinator.groups.classic.rebalance import ClassicRebalance
from ottla.coordinator.groups.consumer import records as records_of
from ottla.coordinator.groups.consumer.assignors.members import Partition, Partitions
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.consumer.member import (
    ClassicFace,
    ConsumerMember,
    MemberState,
    MemberSubscription,
    Standing,
)
from ottla.coordinator.groups.consumer.replay import ConsumerReplay
from ottla.coordinator.groups.group import Group, TopicImage
from ottla.coordinator.groups.shard import GroupShard
from ottla.coordinator.key_values import KeyValue
from ottla.coordinator.shards import WriteOutcome
from ottla.wire.codec import decode_from, encode_versioned
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolPartitions,
    ConsumerProtocolSubscription,
)

_logger = logging.getLogger(__name__)

M = TypeVar("M", ConsumerProtocolAssignment, ConsumerProtocolSubscription)
_UP: Final = ("upgrade", "bidirectional")
_DOWN: Final = ("downgrade", "bidirectional")


class Conversion:
    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard
        self._rebalance = ClassicRebalance(shard)

    # --- to the consumer protocol -----------------------------------------------------------------------------------

    def may_upgrade(self, group: ClassicGroup) -> bool:
        settings = self._shard.settings
        return (
            settings.consumer_migration_policy.lower() in _UP
            and group.type_of_protocol == CONSUMER
            and len(group.members) <= settings.consumer_max_size
        )

    def upgrade(self, group: ClassicGroup) -> tuple[ConsumerGroup, list[KeyValue]]:
        """A draft of the consumer group, and the records that convert the classic group. All members start with the
        assignment of the last generation; those that were joining must rejoin."""
        group_id, generation = group.group_id, group.generation
        try:
            members = [(each.member_id, *self._upgraded(each, generation)) for each in group.members.values()]
        except ProtocolError as error:
            reason = (
                f"Group {group_id} cannot become a consumer group: cannot read the metadata of its members: {error}"
            )
            raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, reason) from None
        made = [
            *(records_of.member_record(group_id, member_id, subscription) for member_id, subscription, _ in members),
            records_of.group_record(group_id, generation),
            *(records_of.target_record(group_id, member_id, standing.assigned) for member_id, _, standing in members),
            records_of.target_epoch_record(group_id, generation),
            *(records_of.standing_record(group_id, member_id, standing) for member_id, _, standing in members),
        ]
        drafts: dict[str, Group] = {}
        replay = ConsumerReplay(drafts)
        for record in made:
            replay.replay(record)
        draft = drafts[group_id]
        assert isinstance(draft, ConsumerGroup)
        _logger.info("Group %s: converted to the consumer protocol.", group_id)
        return draft, [*group.deletion_records(), *made]

    def _upgraded(self, member: ClassicMember, generation: int) -> tuple[MemberSubscription, Standing]:
        said = read_subscription(next(iter(member.protocols.values())))
        subscription = MemberSubscription(
            instance_id=member.instance_id,
            rack_id=said.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            topics=frozenset(said.topics),
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicFace(member.session_timeout_ms, tuple(member.protocols.items())),
        )
        assigned: Partitions = frozenset()
        if member.assignment:
            given = _read(ConsumerProtocolAssignment, member.assignment)
            assigned = partitions_named(given.assigned_partitions, self._shard.topics)
        epochs = dict.fromkeys(assigned, generation)
        standing = Standing(generation, generation, MemberState.STABLE, assigned, assignment_epochs=epochs)
        return subscription, standing

    # --- back to the classic one ------------------------------------------------------------------------------------

    def goes_back_without(
        self, group: ConsumerGroup, going: Sequence[ConsumerMember], coming: MemberSubscription | None = None
    ) -> bool:
        """Whether these are the last members of the consumer protocol, others stay, and the policy allows it."""
        settings = self._shard.settings
        left = len(group.members) - len(going) + (coming is not None)
        classic_left = group.classic_member_count - sum(each.subscription.classic is not None for each in going)
        return (
            0 < left <= settings.max_size
            and classic_left + (coming is not None) == left
            and any(each.subscription.classic is None for each in going)
            and settings.consumer_migration_policy.lower() in _DOWN
        )

    def downgrade(
        self, group: ConsumerGroup, going: Sequence[ConsumerMember], forget: Callable[[], None]
    ) -> tuple[list[KeyValue], Callable[[], None]]:
        """The records that convert the group without these members, and what to do after they are written; `forget`
        stops the timers of the consumer protocol. A rebalance starts, because the assignment was made for more
        members."""
        group_id = group.group_id
        gone = {member.member_id for member in going}
        staying = [
            _downgraded(member, member.subscription, group.target_of(member_id), self._shard.topics)
            for member_id, member in group.members.items()
            if member_id not in gone
        ]
        draft = self._classic_draft(group, staying)

        def appended() -> None:
            forget()
            made = self._taken_up(group_id, staying)
            reason = "the last member of the consumer protocol left"
            self._shard.context.write(lambda: WriteOutcome(None, self._rebalance.begin(made, reason)))

        _logger.info("Group %s: converted to the classic protocol.", group_id)
        return [*group.deletion_records(), draft.record()], appended

    def downgrade_by_replacement(
        self,
        group: ConsumerGroup,
        old: ConsumerMember,
        member_id: str,
        subscription: MemberSubscription,
        forget: Callable[[], None],
    ) -> tuple[int, list[KeyValue], Callable[[], None]]:
        """Like `downgrade`, when the last member of the consumer protocol is static and returns with the classic one:
        it keeps its partitions, so there is no rebalance. Also returns the generation."""
        group_id = group.group_id
        members = []
        for each_id, member in group.members.items():
            if member is old:
                joined = ConsumerMember(member_id, subscription, old.standing)
                members.append(_downgraded(joined, subscription, group.target_of(each_id), self._shard.topics))
            else:
                target = group.target_of(each_id)
                members.append(_downgraded(member, member.subscription, target, self._shard.topics))
        draft = self._classic_draft(group, members)

        def appended() -> None:
            forget()
            self._taken_up(group_id, members)

        _logger.info("Group %s: converted to the classic protocol.", group_id)
        return draft.generation, [*group.deletion_records(), draft.record()], appended

    def _classic_draft(self, group: ConsumerGroup, members: Sequence[ClassicMember]) -> ClassicGroup:
        draft = ClassicGroup(group.group_id, self._shard.context.clock)
        draft.generation = group.epoch
        for member in members:
            draft.add(member, CONSUMER)
        draft.protocol = chosen_protocol(members)
        return draft

    def _taken_up(self, group_id: str, members: Sequence[ClassicMember]) -> ClassicGroup:
        """The group that replay made, with the members' other protocols, which its record does not contain."""
        made = self._shard.groups[group_id]
        assert isinstance(made, ClassicGroup)
        for member in members:
            made.change(made.members[member.member_id], member.protocols)
        self._rebalance.take_up(made)
        return made


def _downgraded(
    member: ConsumerMember, subscription: MemberSubscription, target: Partitions, topics: TopicImage
) -> ClassicMember:
    assert subscription.classic is not None
    return ClassicMember(
        member_id=member.member_id,
        instance_id=subscription.instance_id,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        rebalance_timeout_ms=subscription.rebalance_timeout_ms,
        session_timeout_ms=subscription.classic.session_timeout_ms,
        protocols=dict(subscription.classic.protocols),
        assignment=assignment_blob(target, subscription.classic, topics),
    )


def assignment_blob(assigned: Partitions, face: ClassicFace, topics: TopicImage) -> bytes:
    """The assignment of a classic member, in the version that it uses itself."""
    named = []
    for topic_id, indexes in records_of.by_topic(assigned).items():
        name = topics.topic_name(topic_id)
        if name is not None:
            named.append(ConsumerProtocolPartitions(topic=name, partitions=indexes))
    said = int.from_bytes(face.protocols[0][1][:2], "big", signed=True)
    version = max(0, min(said, ConsumerProtocolAssignment.versions.high))
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=named), version)


def read_subscription(blob: bytes) -> ConsumerProtocolSubscription:
    """Raises `ProtocolError`."""
    return _read(ConsumerProtocolSubscription, blob)


def _read(message: type[M], blob: bytes) -> M:
    version = int.from_bytes(blob[:2], "big", signed=True)
    if len(blob) < 2 or version < 0:
        raise ProtocolError("it is too short for a version", message=message.__name__)
    # Newer versions only add fields at the end.
    return decode_from(message, min(version, message.versions.high), blob[2:])[0]


def partitions_named(named: Sequence[ConsumerProtocolPartitions], topics: TopicImage) -> Partitions:
    """Partitions of topics that exist."""
    found: list[Partition] = []
    for each in named:
        topic_id = topics.topic_id(each.topic)
        if topic_id is not None:
            found.extend((topic_id, index) for index in each.partitions)
    return frozenset(found)
