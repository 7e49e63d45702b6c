"""Partitions that are assigned and revoked: calls the user's listener, and updates the subscription.

A listener is called for revoked partitions while they are still assigned, and for new ones once they are. An exception
that it raises does not stop the change: it is kept, and raised when the change is done. If the poll is interrupted or
cancelled while the listener runs, the next one calls it again: it may be called twice for a change, but never not at
all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from ottla.base.ids import TopicPartition
from ottla.client.subscriptions.listeners import RebalanceListener
from ottla.client.subscriptions.subscription import Subscription

Invoke = Callable[..., Awaitable[None]]
"""Calls a method of a listener with partitions, in the thread in which the user expects it."""


class Handover:
    def __init__(self, subscription: Subscription, invoke: Invoke) -> None:
        self._subscription = subscription
        self._invoke = invoke
        self._failure: Exception | None = None
        self._untold: list[TopicPartition] | None = None
        """Assigned partitions that the listener may not have been called for."""

    async def revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Revokes partitions: the listener's last chance to commit."""
        if partitions:
            await self._tell(lambda listener: listener.on_partitions_revoked, partitions)
            self._take_away(partitions)

    async def lose_all(self) -> None:
        """Reports partitions that are already lost."""
        lost = list(self._subscription.partitions)
        if lost:
            await self._tell(lambda listener: listener.on_partitions_lost, lost)
            self._take_away(lost)

    async def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Sets all partitions owned from now on; the listener is called with the new ones, even if there are none."""
        new = [one for one in partitions if one not in self._subscription.partitions]
        self._untold = list(dict.fromkeys([*(self._untold or ()), *new]))
        self._subscription.assigned_by_group(partitions)
        await self.tell_assigned()

    @property
    def is_untold(self) -> bool:
        """Whether `tell_assigned` was interrupted. Thread-safe."""
        return self._untold is not None

    async def tell_assigned(self) -> None:
        """Calls the listener with new partitions, unless that is done."""
        if self._untold is not None:
            still = [one for one in self._untold if one in self._subscription.partitions]
            await self._tell(lambda listener: listener.on_partitions_assigned, still)
            self._untold = None

    def raise_failure(self) -> None:
        """Raises what a listener raised since the last call."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _take_away(self, partitions: Collection[TopicPartition]) -> None:
        gone = set(partitions)
        self._subscription.assigned_by_group([one for one in self._subscription.partitions if one not in gone])

    async def _tell(
        self, method: Callable[[RebalanceListener], object], partitions: Collection[TopicPartition]
    ) -> None:
        listener = self._subscription.listener
        if listener is None:
            return
        try:
            await self._invoke(method(listener), sorted(partitions))
        except Exception as error:
            self._failure = self._failure or error
