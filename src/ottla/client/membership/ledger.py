"""The order in which commits were requested, so that a committed offset moves back only if the user asks for it.

A commit is sent when its turn comes, and again when it fails, so an old one can reach the coordinator after a newer
one, or after its partition was assigned to another member. `CommitLedger` decides at each attempt what may still be
sent: only the newest commit of a partition, and only while this consumer owns the partition. Background commits never
go back behind what the user committed.

Commits can be requested in any thread; everything else belongs to the loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.base.ids import TopicPartition, Uuid
from ottla.client.membership.metadata import GroupMetadata
from ottla.client.offsets import OffsetAndMetadata
from ottla.client.subscriptions.subscription import ConsumedPartition, Subscription

Identity = Callable[[], GroupMetadata | None]
"""The identity that commits, as of now; None if the consumer uses a group's partitions but is not a member."""


class Mark(NamedTuple):
    """The state of an assigned partition when its commit was requested."""

    state: ConsumedPartition
    generation: int
    topic_id: Uuid | None


class AskedCommit:
    """Requested offsets, with the consumer's identity and the state of the partitions at that time."""

    __slots__ = ("marks", "member", "offsets", "unsettled")

    def __init__(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        marks: Mapping[TopicPartition, Mark],
        member: GroupMetadata | None,
    ) -> None:
        self.offsets = offsets
        self.marks = marks
        """For the partitions that were assigned."""
        self.member = member
        self.unsettled = set(offsets)
        """Partitions for which it is not yet known whether they are committed."""


class CommitLedger:
    """See the module docstring."""

    def __init__(self, subscription: Subscription, identity: Identity) -> None:
        self._subscription = subscription
        self._identity = identity
        self._newest: dict[TopicPartition, AskedCommit] = {}
        """The last commit of each partition, unless it succeeded."""
        self._lock = threading.RLock()
        """The user's thread and the loop request commits; a signal handler may do so in between."""

    # Requesting commits.

    def ask(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        waiting: dict[TopicPartition, AskedCommit] | None = None,
    ) -> AskedCommit:
        """Notes what the user wants to commit, here and in `waiting`, in any thread. If Ctrl-C interrupts it, it is in
        both or in neither: a commit that is never sent must not hold up others."""
        with self._lock:
            before = {one: self._newest.get(one) for one in offsets}
            try:
                asked = self._ask(offsets)
                if waiting is not None:
                    waiting.update(dict.fromkeys(offsets, asked))
            except BaseException:
                self._take_back(before, waiting or {})
                raise
        return asked

    def _take_back(
        self, before: Mapping[TopicPartition, AskedCommit | None], waiting: Mapping[TopicPartition, AskedCommit]
    ) -> None:
        for partition, previous in before.items():
            if self._newest.get(partition) is waiting.get(partition):
                continue
            if previous is None:
                self._newest.pop(partition, None)
            else:
                self._newest[partition] = previous

    def ask_consumed(self) -> AskedCommit | None:
        """Returns what can be committed automatically: everything that the user has processed, unless the user
        committed more."""
        with self._lock:
            consumed = self._subscription.consumed()
            behind = [one for one, offset in consumed.items() if self._is_behind(one, offset.offset)]
            for partition in behind:
                del consumed[partition]
            return self._ask(consumed) if consumed else None

    def _ask(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> AskedCommit:
        partitions = self._subscription.partitions
        marks = {
            one: Mark(state, state.generation, state.topic_id)
            for one in offsets
            if (state := partitions.get(one)) is not None
        }
        asked = AskedCommit(offsets, marks, self._identity())
        self._newest.update(dict.fromkeys(offsets, asked))
        return asked

    def _is_behind(self, partition: TopicPartition, offset: int) -> bool:
        """Whether the user asked for as much or committed more, without a seek since."""
        state = self._subscription.partitions.get(partition)
        if state is None:
            return True
        newest = self._newest.get(partition)
        if newest is not None and partition in newest.unsettled:
            mark = newest.marks.get(partition)
            if mark is not None and mark.state is state and mark.generation == state.generation:
                return offset <= newest.offsets[partition].offset
        return state.committed is not None and offset < state.committed

    # Sending commits.

    def is_newest(self, asked: AskedCommit, partition: TopicPartition) -> bool:
        return self._newest.get(partition) is asked

    def is_ours(self, asked: AskedCommit, partition: TopicPartition) -> bool:
        """Whether, as far as this consumer knows, no other member can own the partition now. For partitions that were
        not assigned, the user is responsible."""
        mark = asked.marks.get(partition)
        return mark is None or self._is_assigned(mark.state) or asked.member == self._identity()

    def is_worth_a_retry(self, asked: AskedCommit, partition: TopicPartition) -> bool:
        """Whether a failed commit can be retried without undoing another."""
        mark = asked.marks.get(partition)
        return mark is not None and self._is_assigned(mark.state) and self.is_newest(asked, partition)

    def succeeded(self, asked: AskedCommit, partition: TopicPartition) -> None:
        self._settle(asked, partition, is_committed=True)
        with self._lock:
            if self.is_newest(asked, partition):
                del self._newest[partition]

    def failed(self, asked: AskedCommit, partition: TopicPartition, *, in_doubt: bool) -> None:
        """`in_doubt`: whether the coordinator may have committed it anyway."""
        self._settle(asked, partition, is_committed=in_doubt)
        with self._lock:
            if self.is_newest(asked, partition) and not self.is_worth_a_retry(asked, partition):
                del self._newest[partition]

    def _settle(self, asked: AskedCommit, partition: TopicPartition, *, is_committed: bool) -> None:
        asked.unsettled.discard(partition)
        mark = asked.marks.get(partition)
        if is_committed and mark is not None and mark.state.generation == mark.generation:
            mark.state.committed = asked.offsets[partition].offset

    def _is_assigned(self, state: ConsumedPartition) -> bool:
        return self._subscription.partitions.get(state.partition) is state
