"""What a consumer tells its user of partitions that come and go."""

from __future__ import annotations

from collections.abc import Awaitable, Collection

from ottla.base.ids import TopicPartition


class RebalanceListener:
    """Told of each change of a group's assignment, from within `poll`. Override what is of interest.

    With `AsyncConsumer` the methods may be coroutines. What they raise comes out of `poll`, after the change is done.
    If Ctrl-C or a cancellation ends the poll while they are called, the next poll calls them again.
    """

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These are new here; nothing of them was fetched yet, so this is the place to seek."""

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These are about to go to another member: the last moment to commit them."""

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These belong to somebody else already: too late to commit. Treated as revoked unless overridden."""
        return self.on_partitions_revoked(partitions)
