"""Rebalance listeners: the user's callbacks for assigned and revoked partitions."""

from __future__ import annotations

from collections.abc import Awaitable, Collection

from ottla.base.ids import TopicPartition


class RebalanceListener:
    """Called for each change of a group's assignment, inside `poll`. Override the methods that you need.

    With `AsyncConsumer` the methods may be coroutines. `poll` raises their exceptions after the change is done. If
    Ctrl-C or a cancellation ends the poll while they run, the next poll calls them again.
    """

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """Called with new partitions before anything is fetched from them: the place to seek."""

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """Called before these partitions go to another member: the last chance to commit them."""

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """Called for partitions that already belong to another member: too late to commit. Calls
        `on_partitions_revoked` unless overridden."""
        return self.on_partitions_revoked(partitions)
