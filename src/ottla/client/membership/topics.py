"""Checks the topics of a group periodically: which topics match a pattern, and how many partitions they have.

The state by which a leader assigned is compared with the current one. Any difference (a new or deleted topic, added
partitions, replicas in another rack) triggers a rebalance. Topics that do not exist yet are checked more often.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from ottla.client.cluster import Backoff, Cluster
from ottla.client.config import ConsumerConfig
from ottla.client.errors import BrokerConnectionError, ClientError
from ottla.client.membership.assignors import Topics
from ottla.client.metadata import TopicInfo
from ottla.client.subscriptions.subscription import Subscription

_logger = logging.getLogger(__name__)

_MS: Final = 1000


class TopicWatch:
    """`changed` is called with the reason why the group should rebalance. Belongs to one loop."""

    def __init__(
        self, config: ConsumerConfig, cluster: Cluster, subscription: Subscription, changed: Callable[[str], None]
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._subscription = subscription
        self._changed = changed
        self._assigned_by: Topics | None = None
        self._wanted: frozenset[str] = frozenset()
        self._backoff = Backoff(cluster.options)
        """Delays between checks for topics that do not exist yet."""
        self._planned = asyncio.Event()
        self._is_urgent = False
        cluster.on_other_topics = self._look_soon

    async def match_pattern(self) -> bool:
        """Finds topics that match the pattern; returns whether they have changed."""
        pattern = self._subscription.pattern
        if pattern is None:
            return False
        found = await self._cluster.refresh(None)
        if pattern is not self._subscription.pattern:  # the user changed the subscription meanwhile
            return False
        hidden = self._config.exclude_internal_topics
        return self._subscription.matched(
            topic.name for topic in found if pattern.fullmatch(topic.name) and not (hidden and topic.is_internal)
        )

    async def layout(self, names: Collection[str]) -> Topics:
        """Returns the existing ones of these topics, with the racks of their partitions."""
        creates = self._config.allow_auto_create_topics and not self._subscription.is_by_pattern
        found = await self._cluster.refresh(sorted(names), create_topics=creates) if names else []
        return {topic.name: self._racks(topic) for topic in found}

    def watch(self, names: Collection[str], layout: Topics | None) -> None:
        """Sets the state by which a leader assigned; None for members that do not lead."""
        self._wanted = frozenset(names)
        self._assigned_by = layout
        self._backoff = Backoff(self._cluster.options)
        self._planned.set()

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            if not self._is_urgent and not await self._is_time():
                continue
            self._is_urgent = False
            try:
                await self._look()
            except (ClientError, BrokerConnectionError) as error:
                _logger.debug("topic metadata could not be refreshed: %s", error)

    async def _is_time(self) -> bool:
        """Waits for the next check; returns False if it was rescheduled."""
        self._planned.clear()
        try:
            async with asyncio.timeout(self._interval_s()):
                await self._planned.wait()
        except TimeoutError:
            return True
        return self._is_urgent

    def _look_soon(self) -> None:
        """Called when a known topic is gone, or its partitions have changed."""
        self._is_urgent = True
        self._planned.set()

    async def _look(self) -> None:
        if await self.match_pattern():
            self._changed("other topics match the pattern")
        before = self._assigned_by
        if before is not None:
            now = await self.layout(self._wanted)
            if before is self._assigned_by and now != before:
                self._assigned_by = None
                self._changed(_difference(before, now))

    def _interval_s(self) -> float:
        age_max_s = self._config.metadata_max_age_ms / _MS
        is_complete = self._assigned_by is None or len(self._assigned_by) == len(self._wanted)
        return age_max_s if is_complete else min(self._backoff.next_s(), age_max_s)

    def _racks(self, topic: TopicInfo) -> tuple[frozenset[str], ...]:
        racks = self._cluster.racks
        return tuple(
            frozenset(rack for broker in partition.replicas if (rack := racks.get(broker)) is not None)
            for partition in topic.partitions
        )


def _difference(before: Topics, now: Topics) -> str:
    for name in sorted({*before, *now}):
        old, new = len(before.get(name, ())), len(now.get(name, ()))
        if old != new:
            return f"topic {name} has {new} partitions instead of {old}"
    return "partitions are on other racks"
