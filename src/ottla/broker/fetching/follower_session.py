"""The fetch session of a follower: what it fetches from this leader, and which of it has news.

A follower may fetch thousands of partitions, few of which have changed since its last fetch. A partition is *settled*
while the follower has everything of it, has been told all of its offsets, and is in sync: nothing needs to be done for
it in the next fetch. Partitions report their changes (`Partition.read_by`); those that are not settled are kept apart,
so that a fetch costs as much as there is news.

Each fetch also proves that the follower has caught up with all settled partitions. That is noted once, in the session,
and passed on to the leader's record of a follower when the partition changes (`FollowerState.still_caught_up`).
Owned by the loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ottla.base.ids import Uuid
from ottla.broker.fetching.fetch_sessions import BrokerFetchSession, FetchedPartition, Key
from ottla.replication.delayed import Purgatory
from ottla.replication.environment import FollowerReader
from ottla.replication.follower_state import FollowerState
from ottla.replication.partition import Partition
from ottla.wire.messages.fetch import FetchPartition, FetchRequest


class FollowedPartition(FetchedPartition):
    """A partition as a follower requested it."""

    __slots__ = ("follower", "follower_log_start", "partition")

    def __init__(self, topic: str, topic_id: Uuid, asked: FetchPartition) -> None:
        super().__init__(topic, topic_id, asked)
        self.partition: Partition | None = None
        """Where changes come from; None while this broker does not host it."""
        self.follower: FollowerState | None = None
        """What the leader knows about this follower, by its last fetch."""

    def ask(self, asked: FetchPartition) -> None:
        super().ask(asked)
        self.follower_log_start = asked.log_start_offset


class FollowerSession(BrokerFetchSession):
    """See the module. `partitions` has all, `unsettled` those to look at, in reading order."""

    is_privileged: ClassVar = True
    __slots__ = ("_fetches", "broker_epoch", "fetched_s", "fresh", "replica_id", "unsettled")

    def __init__(
        self,
        session_id: int,
        replica_id: int,
        fetches: Purgatory[FollowerReader],
        *,
        by_id: bool,
        now_s: float,
    ) -> None:
        super().__init__(session_id, by_id=by_id, now_s=now_s)
        self.replica_id = replica_id
        self.broker_epoch = -1
        self._fetches = fetches
        self.fetched_s = now_s
        """When the last fetch came."""
        self.unsettled: dict[Key, FollowedPartition] = {}
        self.fresh: dict[Key, FollowedPartition] = {}
        """Those that changed since a waiting fetch looked at them."""

    def begin(self, asked: dict[Key, FollowedPartition]) -> None:
        """The partitions of a full fetch."""
        self.partitions = dict(asked)
        self.unsettled = dict(asked)

    def fetched(self, now_s: float) -> None:
        """The next fetch came, and is noted with `update`: partitions that are still settled have not changed."""
        self.fetched_s = now_s
        self.fresh.clear()

    def only(self, key: Key) -> FollowedPartition | None:
        """The partition, if the session has it, and no other one that is not settled."""
        unsettled = self.unsettled
        if unsettled:
            return unsettled.get(key) if len(unsettled) == 1 else None
        known = self.partitions.get(key)
        return known if isinstance(known, FollowedPartition) else None

    def only_fetched(self, key: Key, now_s: float) -> None:
        """The next fetch came, with one partition, which the session has."""
        self._unsettle(key)
        self.fetched(now_s)

    def update(self, asked: Iterable[tuple[Key, FetchedPartition]], request: FetchRequest) -> None:
        for key, new in asked:
            if not isinstance(new, FollowedPartition):
                raise TypeError(f"a follower's session cannot have {type(new).__name__}")
            known = self._unsettle(key)
            if known is None:
                self.partitions[key] = self.unsettled[key] = new
            else:
                known.fetch_offset, known.max_bytes = new.fetch_offset, new.max_bytes
                known.current_leader_epoch = new.current_leader_epoch
                known.last_fetched_epoch = new.last_fetched_epoch
                known.follower_log_start = new.follower_log_start
        for topic in request.forgotten_topics_data:
            name = topic.topic_id if self.by_id else topic.topic
            for index in topic.partitions:
                self._forget((name, index))

    def _forget(self, key: Key) -> None:
        self._unsettle(key)
        self.unsettled.pop(key, None)
        self.fresh.pop(key, None)
        known = self.partitions.pop(key, None)
        if isinstance(known, FollowedPartition):
            self._watch(known, None)

    def found(self, followed: FollowedPartition, partition: Partition | None) -> None:
        """The partition as this broker hosts it now."""
        if followed.partition is not partition or (
            partition is not None and not partition.is_read_by(self.replica_id, self)
        ):
            self._watch(followed, partition)

    def _watch(self, followed: FollowedPartition, partition: Partition | None) -> None:
        before = followed.partition
        if before is not None and before is not partition:
            before.no_longer_read_by(self.replica_id, self)
        followed.partition = partition
        if partition is not None:
            partition.read_by(self.replica_id, self)

    def changed(self, partition: Partition) -> None:
        """See `FollowerReader`."""
        key = (partition.topic_id if self.by_id else partition.name.topic, partition.name.partition)
        followed = self._unsettle(key)
        if followed is not None:
            self.fresh[key] = followed
            self._fetches.changed(self)

    def _unsettle(self, key: Key) -> FollowedPartition | None:
        followed = self.unsettled.get(key)
        if followed is None:
            known = self.partitions.get(key)
            if not isinstance(known, FollowedPartition):
                return None
            followed = self.unsettled[key] = known
            if followed.follower is not None:
                followed.follower.still_caught_up(self.fetched_s)
        return followed

    def answered(self, key: Key, followed: FollowedPartition, *, has_records: bool) -> None:
        """The follower was told what there is now. A partition with records goes to the end, so that each gets its
        turn; one without is settled if nothing more can come before it changes."""
        if has_records:
            self.unsettled.pop(key, None)
            self.unsettled[key] = followed
            return
        partition, follower = followed.partition, followed.follower
        if (
            partition is not None
            and follower is not None
            and partition.log is not None
            and partition.follower(self.replica_id) is follower
            and followed.fetch_offset == follower.log_end == partition.log.next_offset
            and followed.high_watermark == partition.log.high_watermark
            and followed.log_start_offset == partition.log.log_start_offset
            and self.replica_id in partition.isr
            and partition.is_read_by(self.replica_id, self)
        ):
            self.unsettled.pop(key, None)

    def ended(self) -> None:
        for key in list(self.partitions):
            self._forget(key)
