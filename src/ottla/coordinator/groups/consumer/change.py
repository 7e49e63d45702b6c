"""A change of a consumer group, decided before it is written: the records, and the group as it will be after them.

Every change (a member joins, leaves or changes its subscription; topics change) takes the same three steps: the group's
epoch is bumped if the change matters, a target assignment is computed for it, and the member that sent the request
takes a step towards its target.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from ottla.base.ids import Uuid
from ottla.coordinator.groups.consumer import records as records_of
from ottla.coordinator.groups.consumer.assignors import ASSIGNORS
from ottla.coordinator.groups.consumer.assignors.members import NO_PARTITIONS, MemberSpec, Partition, Partitions
from ottla.coordinator.groups.consumer.group import ConsumerGroup, SubscriptionKind
from ottla.coordinator.groups.consumer.member import JOIN_EPOCH, ConsumerMember, MemberSubscription, Standing
from ottla.coordinator.groups.consumer.reconciliation import reconcile
from ottla.coordinator.groups.consumer.records import ResolvedPattern, TopicShape
from ottla.coordinator.groups.group import TopicImage
from ottla.coordinator.key_values import KeyValue
from ottla.coordinator.pattern import topic_matcher
from ottla.coordinator.pattern_syntax import PatternError

_logger = logging.getLogger(__name__)

matcher_of = lru_cache(maxsize=256)(topic_matcher)
"""Compiled patterns. Raises `PatternError`."""


class GroupChange:
    """One change: first `come` or `leave`, then, for a member that came, `target` and `step`."""

    def __init__(
        self, group: ConsumerGroup, topics: TopicImage, now_ms: int, conversion: Sequence[KeyValue] = ()
    ) -> None:
        """`conversion`: the records that convert the group, if it is a draft."""
        self._group = group
        self._topics = topics
        self._now_ms = now_ms
        self.group_id = group.group_id
        self.topics_version = topics.version
        self.is_conversion = bool(conversion)
        self.records: list[KeyValue] = list(conversion)
        self.epoch = group.epoch
        self._shapes: Mapping[str, TopicShape] = group.topics
        self._patterns: Mapping[str, ResolvedPattern] = group.patterns
        self._member_id = ""
        self.replaces: str | None = None
        self._before: MemberSubscription | None = None
        self._after: MemberSubscription | None = None

    # --- the group's epoch ------------------------------------------------------------------------------------------

    def come(
        self, member_id: str, before: MemberSubscription | None, after: MemberSubscription, replaces: str | None = None
    ) -> None:
        """A member subscribes; `before` is its previous subscription, None for a new member. A member that `replaces`
        another takes over its partitions. Bumps the epoch if the subscription or the topics have changed."""
        self._member_id, self._before, self._after, self.replaces = member_id, before, after, replaces
        if after != before:
            self.records.append(records_of.member_record(self.group_id, member_id, after))
        is_news = before is None or (before.topics, before.pattern) != (after.topics, after.pattern)
        if is_news or self._group.topics_version != self._topics.version:
            self._look(self._group.kinds_with([] if before is None else [before], [after]), is_news=is_news)

    def replace(self, old: ConsumerMember, member_id: str) -> Standing:
        """A static member returns with a new member id, and the state of the old one except its epoch."""
        group_id = self.group_id
        standing = replace(old.standing, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
        self.records += [
            *records_of.member_tombstones(group_id, old.member_id),
            records_of.member_record(group_id, member_id, old.subscription),
            records_of.target_record(group_id, member_id, self._group.target_of(old.member_id)),
            records_of.standing_record(group_id, member_id, standing),
        ]
        return standing

    def leave(self, members: Sequence[ConsumerMember]) -> None:
        """Members leave; bumps the epoch."""
        group = self._group
        for member in members:
            self.records.extend(records_of.member_tombstones(self.group_id, member.member_id))
        self._look(group.kinds_with([member.subscription for member in members], []), is_news=True)

    def _look(self, kinds: Mapping[SubscriptionKind, int], *, is_news: bool) -> None:
        """Looks at the topics of these kinds of subscriptions."""
        self._patterns = self._resolve({pattern for _, pattern in kinds if pattern is not None})
        names = set().union(*(self._names(kind) for kind in kinds))
        shapes = {name: shape for name in names if (shape := self._shape(name)) is not None}
        if shapes != self._group.topics:
            self.records.append(records_of.topics_record(self.group_id, shapes))
            self._shapes = shapes
            is_news = True
        if is_news:
            self.epoch += 1
            self.records.append(records_of.group_record(self.group_id, self.epoch))

    def _shape(self, name: str) -> TopicShape | None:
        topic_id, count = self._topics.topic_id(name), self._topics.partition_count(name)
        return None if topic_id is None or count is None else TopicShape(topic_id, count)

    def _names(self, kind: SubscriptionKind) -> frozenset[str]:
        names, pattern = kind
        return names if pattern is None else names | self._patterns[pattern].topics

    def _resolve(self, wanted: set[str]) -> dict[str, ResolvedPattern]:
        """Resolves the patterns again, and drops unused ones."""
        group, version = self._group, self._topics.version
        same_topics = group.topics_version == version
        resolved = {}
        for pattern in sorted(wanted):
            known = group.patterns.get(pattern)
            if known is None or not same_topics:
                found = self._matches(pattern)
                if known is None or found != known.topics:
                    known = ResolvedPattern(found, version, self._now_ms)
                    self.records.append(records_of.pattern_record(self.group_id, pattern, known))
            resolved[pattern] = known
        dropped = [pattern for pattern in group.patterns if pattern not in wanted]
        self.records.extend(records_of.pattern_record(self.group_id, pattern, None) for pattern in dropped)
        return resolved

    def _matches(self, pattern: str) -> frozenset[str]:
        try:
            return frozenset(filter(matcher_of(pattern), self._topics.topic_names()))
        except PatternError as error:
            # New patterns are checked when a member sends them; another coordinator accepted this one.
            _logger.warning("Group %s: ignored the invalid pattern %r: %s", self.group_id, pattern, error)
            return frozenset()

    # --- the target -------------------------------------------------------------------------------------------------

    def target(self, default_assignor: str) -> Partitions:
        """The member's target assignment for this epoch, which is computed if needed."""
        group, member_id = self._group, self._member_id
        carried = group.target_of(member_id if self.replaces is None else self.replaces)
        if self.epoch <= group.target_epoch:
            return carried
        specs = self._specs(carried)
        assignor = group.favourite_assignor(self._before, self._after) or default_assignor
        counts = {shape.topic_id: shape.partition_count for shape in self._shapes.values()}
        assigned = ASSIGNORS[assignor](specs, counts)
        for each, target in assigned.items():
            if target is not specs[each].target or each not in group.targets:
                self.records.append(records_of.target_record(self.group_id, each, target))
        self.records.append(records_of.target_epoch_record(self.group_id, self.epoch))
        _logger.debug(
            "Group %s: computed the target assignment of epoch %d with %s.", self.group_id, self.epoch, assignor
        )
        return assigned[member_id]

    def _specs(self, carried: Partitions) -> dict[str, MemberSpec]:
        targets, gone = self._group.targets, (self._member_id, self.replaces)
        others = [each for each in self._group.members.items() if each[0] not in gone]
        ids_of = _TopicIds(self)
        specs = {}
        for member_id, member in others:
            subscription = member.subscription
            ids = ids_of[subscription.topics, subscription.pattern]
            specs[member_id] = MemberSpec(ids, targets.get(member_id, NO_PARTITIONS), subscription.instance_id)
        if self._after is not None:
            after = self._after
            specs[self._member_id] = MemberSpec(ids_of[after.topics, after.pattern], carried, after.instance_id)
        return specs

    def topic_ids(self, kind: SubscriptionKind) -> frozenset[Uuid]:
        found = (self._shapes.get(name) for name in self._names(kind))
        return frozenset(shape.topic_id for shape in found if shape is not None)

    # --- the member -------------------------------------------------------------------------------------------------

    def step(self, now: Standing, target: Partitions, owned: Partitions | None) -> Standing:
        """The member's state after this heartbeat."""
        target_epoch = max(self.epoch, self._group.target_epoch)
        after = reconcile(now, target_epoch, target, owned, self._free_of)
        if after is not now:
            self.records.append(records_of.standing_record(self.group_id, self._member_id, after))
        return after

    def _free_of(self, partitions: Partitions) -> Partitions:
        if self._group.owners.keys().isdisjoint(partitions):  # there are thousands when a group forms
            return partitions
        return frozenset(filter(self._is_free, partitions))

    def _is_free(self, partition: Partition) -> bool:
        owner = self._group.owners.get(partition)
        # The log still counts what it just gave up as its own, so it can have it again.
        return owner is None or owner in (self._member_id, self.replaces)


class _TopicIds(dict[SubscriptionKind, frozenset[Uuid]]):
    """Topics of each kind of subscription, looked up once for all members that share it."""

    def __init__(self, change: GroupChange) -> None:
        super().__init__()
        self._change = change

    def __missing__(self, kind: SubscriptionKind) -> frozenset[Uuid]:
        ids = self[kind] = self._change.topic_ids(kind)
        return ids
