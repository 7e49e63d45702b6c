"""A consumer group (KIP-848): its members, their target assignments, and the partitions that they own.

Three epochs describe its progress: the group epoch is bumped whenever members, subscriptions or topics change; the
target epoch is the group epoch for which the target assignment was computed; a member epoch is the target epoch that
the member has reached. In a stable group all are equal.

Only replay calls `set_…` and `drop_…`. Everything else only reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import Uuid
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.groups.consumer import records as records
from ottla.coordinator.groups.consumer.assignors.members import NO_PARTITIONS, Partition, Partitions
from ottla.coordinator.groups.consumer.member import ConsumerMember, MemberSubscription, Standing
from ottla.coordinator.groups.consumer.records import ResolvedPattern, TopicShape
from ottla.coordinator.groups.group import Group, PartitionCheck
from ottla.coordinator.key_values import KeyValue

SubscriptionKind = tuple[frozenset[str], str | None]
"""Topic names and pattern. In most groups all members have the same."""

_OFFSET_COMMIT_WITH_EPOCH = 9
_NO_EPOCH = -1


class ConsumerGroup(Group):
    __slots__ = (
        "assignor_votes",
        "classic_member_count",
        "classic_protocols",
        "epoch",
        "kinds",
        "members",
        "owners",
        "patterns",
        "session_ends_s",
        "static_members",
        "target_epoch",
        "targets",
        "topics",
        "topics_version",
    )

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.epoch = 0
        self.target_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by instance id."""
        self.targets: dict[str, Partitions] = {}
        self.topics: dict[str, TopicShape] = {}
        """The subscribed topics as they were at this epoch."""
        self.patterns: dict[str, ResolvedPattern] = {}
        # Derived from the members:
        self.owners: dict[Partition, str] = {}
        """The member that owns a partition: it was assigned to it, and is not revoked yet."""
        self.kinds: Counter[SubscriptionKind] = Counter()
        self.assignor_votes: Counter[str] = Counter()
        self.classic_member_count = 0
        self.classic_protocols: Counter[str] = Counter()
        # Soft state:
        self.topics_version: int | None = None
        """The version of the topics when the group last looked at them; None to look again."""
        self.session_ends_s: dict[str, float] = {}

    # --- as any group -----------------------------------------------------------------------------------------------

    @property
    def type_name(self) -> str:
        return "consumer"

    @property
    def protocol_type(self) -> str:
        return "consumer"

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    @property
    def is_empty(self) -> bool:
        return not self.members

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        in_transaction: bool,
        version: int,
    ) -> PartitionCheck | None:
        # Without a member: a tool, or a consumer with manually assigned partitions.
        if generation < 0 and not self.members:
            return None
        # A producer that does not send a member is checked by its transaction only.
        if in_transaction and generation == _NO_EPOCH and not member_id and instance_id is None:
            return None
        member = self.member(member_id)
        if not in_transaction and version < _OFFSET_COMMIT_WITH_EPOCH and member.subscription.classic is None:
            raise CoordinatorError(
                ErrorCode.UNSUPPORTED_VERSION,
                "Members of the consumer protocol must commit offsets with OffsetCommit version 9 or above.",
            )
        epoch = member.standing.epoch
        if generation == epoch:
            return None
        if generation > epoch:
            raise _wrong_epoch(member, generation)

        # It may not know its newest epoch yet, and commits partitions that it has owned since an older one (KIP-1251).
        def check_partition(topic_id: Uuid | None, index: int) -> None:
            assigned_at = None if topic_id is None else member.standing.assignment_epochs.get((topic_id, index))
            if assigned_at is None or generation < assigned_at:
                raise _wrong_epoch(member, generation)

        return check_partition

    def note_commit(self, member_id: str) -> None:
        pass

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.standing.epoch:
            raise _wrong_epoch(member, member_epoch)

    def check_offset_delete(self) -> None:
        pass

    def subscribes_to(self, topic: str) -> bool:
        return any(topic in topics for topics in self._topics_of_kinds(self.kinds))

    def retention_start_ms(self, committed_ms: int) -> int | None:
        return committed_ms

    def deletion_records(self) -> list[KeyValue]:
        group_id = self.group_id
        return [
            *(records.standing_record(group_id, member_id, None) for member_id in self.members),
            *(records.target_record(group_id, member_id, None) for member_id in self.members),
            records.target_epoch_record(group_id, None),
            *(records.member_record(group_id, member_id, None) for member_id in self.members),
            *(records.pattern_record(group_id, pattern, None) for pattern in self.patterns),
            records.topics_record(group_id, None),
            records.group_record(group_id, None),
        ]

    # --- questions --------------------------------------------------------------------------------------------------

    def member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            reason = f"Member {member_id} is not a member of group {self.group_id}."
            raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID, reason)
        return member

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    def kinds_with(
        self, less: Iterable[MemberSubscription], more: Iterable[MemberSubscription]
    ) -> Counter[SubscriptionKind]:
        """The number of members by kind of subscription, without `less` and with `more`."""
        kinds = self.kinds.copy()
        for before in less:
            _count(kinds, before, None)
        for after in more:
            _count(kinds, None, after)
        return kinds

    def favourite_assignor(self, before: MemberSubscription | None, after: MemberSubscription | None) -> str | None:
        """The assignor that most members ask for, after one member's change; None if no member asks."""
        votes = self.assignor_votes.copy()
        if before is not None and before.server_assignor is not None:
            votes[before.server_assignor] -= 1
        if after is not None and after.server_assignor is not None:
            votes[after.server_assignor] += 1
        name, count = max(votes.items(), key=lambda each: each[1], default=(None, 0))
        return name if count > 0 else None

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether another member still owns a partition of this member's target."""
        missing = self.target_of(member.member_id) - member.standing.assigned
        return any(partition in self.owners for partition in missing)

    def supports_classic(self, protocols: Iterable[str]) -> bool:
        """Whether all classic members support one of the protocols."""
        return any(self.classic_protocols[name] == self.classic_member_count for name in protocols)

    def _topics_of_kinds(self, kinds: Mapping[SubscriptionKind, int]) -> Iterator[frozenset[str]]:
        for names, pattern in kinds:
            yield names
            if pattern is not None and pattern in self.patterns:
                yield self.patterns[pattern].topics

    # --- replay -----------------------------------------------------------------------------------------------------

    def set_subscription(self, member_id: str, subscription: MemberSubscription) -> None:
        member = self.members.get(member_id)
        if member is None:
            self.members[member_id] = ConsumerMember(member_id, subscription, Standing())
            self._follow(member_id, None, subscription)
        else:
            before, member.subscription = member.subscription, subscription
            self._follow(member_id, before, subscription)

    def set_standing(self, member_id: str, standing: Standing) -> None:
        member = self.members.get(member_id)
        if member is None:
            # Its subscription follows: Kafka writes the records in this order when it converts a group.
            self.set_subscription(member_id, MemberSubscription())
            member = self.members[member_id]
        before, member.standing = member.standing, standing
        owned, owned_before = standing.assigned | standing.revoking, before.assigned | before.revoking
        for partition in owned_before - owned:
            if self.owners.get(partition) == member_id:
                del self.owners[partition]
        self.owners.update(dict.fromkeys(owned - owned_before, member_id))

    def drop_member(self, member_id: str) -> None:
        if member_id in self.members:
            self.set_standing(member_id, Standing())
            self._follow(member_id, self.members.pop(member_id).subscription, None)

    def _follow(self, member_id: str, before: MemberSubscription | None, after: MemberSubscription | None) -> None:
        """Updates what is derived from the members' subscriptions."""
        _count(self.kinds, before, after)
        if before is not None:
            if before.instance_id is not None and self.static_members.get(before.instance_id) == member_id:
                del self.static_members[before.instance_id]
            if before.server_assignor is not None:
                self.assignor_votes[before.server_assignor] -= 1
            if before.classic is not None:
                self.classic_member_count -= 1
                self.classic_protocols.subtract(name for name, _ in before.classic.protocols)
        if after is not None:
            if after.instance_id is not None:
                self.static_members[after.instance_id] = member_id
            if after.server_assignor is not None:
                self.assignor_votes[after.server_assignor] += 1
            if after.classic is not None:
                self.classic_member_count += 1
                self.classic_protocols.update(name for name, _ in after.classic.protocols)


def _count(
    kinds: Counter[SubscriptionKind], before: MemberSubscription | None, after: MemberSubscription | None
) -> None:
    if before is not None:
        kind = before.topics, before.pattern
        kinds[kind] -= 1
        if not kinds[kind]:
            del kinds[kind]
    if after is not None:
        kinds[after.topics, after.pattern] += 1


def _wrong_epoch(member: ConsumerMember, epoch: int) -> CoordinatorError:
    expected = member.standing.epoch
    if member.subscription.classic is not None:
        reason = f"The request has generation {epoch}, but member {member.member_id} has {expected}."
        return CoordinatorError(ErrorCode.ILLEGAL_GENERATION, reason)
    reason = f"The request has member epoch {epoch}, but member {member.member_id} has {expected}."
    return CoordinatorError(ErrorCode.STALE_MEMBER_EPOCH, reason)
