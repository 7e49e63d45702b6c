"""Members of groups without a consumer around them: what a consumer's poll does for its group, and nothing else."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, Self

from ottla.base.ids import TopicPartition
from ottla.client.cluster import Cluster, Deadline
from ottla.client.config import ConsumerConfig
from ottla.client.membership import Membership, create_membership
from ottla.client.subscriptions.listeners import RebalanceListener
from ottla.client.subscriptions.subscription import Position, Subscription
from support import waiting
from support.clients.dialect import WAIT_S
from support.clients.peers import WITH_ZOOKEEPER

POLL_S = 0.05
PROTOCOLS = ["classic", *(["consumer"] if os.environ.get("OTTLA_TEST_PEER") != WITH_ZOOKEEPER else [])]
"""Those that the broker under test speaks."""


class Told(RebalanceListener):
    """Remembers what it is told, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[TopicPartition]]] = []

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        self.events.append(("assigned", list(partitions)))
        return None

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        self.events.append(("revoked", list(partitions)))
        return None

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        self.events.append(("lost", list(partitions)))
        return None

    def all(self, kind: str) -> list[TopicPartition]:
        return [partition for name, partitions in self.events if name == kind for partition in partitions]


class DrivenMember:
    """Polls in the background until it is closed, killed, or told to be idle."""

    def __init__(self, bootstrap: str, group: str, **settings: Any) -> None:
        defaults = {
            "bootstrap_servers": bootstrap,
            "group_id": group,
            "enable_auto_commit": False,
            "retry_backoff_ms": 20,
            "metadata_max_age_ms": 300,
        }
        if settings.get("group_protocol") != "consumer":
            defaults |= {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 100}
        self.config = ConsumerConfig.parse(defaults | settings)
        self.cluster = Cluster(self.config)
        self.subscription = Subscription()
        self.told = Told()
        self.membership: Membership = create_membership(self.config, self.cluster, self.subscription, self._invoke)
        self.failure: Exception | None = None
        self._woken = asyncio.Event()
        self.subscription.wake_poll = self._woken.set
        self._polling: asyncio.Task[None] | None = None

    @staticmethod
    async def _invoke(method: Callable[..., Awaitable[None] | None], partitions: list[TopicPartition]) -> None:
        waiting = method(partitions)
        if waiting is not None:
            await waiting

    @property
    def owned(self) -> set[TopicPartition]:
        return set(self.subscription.partitions)

    def subscribe(self, *topics: str) -> Self:
        self.subscription.subscribe(topics, self.told)
        self.membership.subscription_changed()
        return self.begin()

    def subscribe_pattern(self, pattern: str) -> Self:
        self.subscription.subscribe_pattern(re.compile(pattern), self.told)
        self.membership.subscription_changed()
        return self.begin()

    def subscribe_server_pattern(self, pattern: str) -> Self:
        self.subscription.subscribe_server_pattern(pattern, self.told)
        self.membership.subscription_changed()
        return self.begin()

    def begin(self) -> Self:
        if self._polling is None:
            self._polling = asyncio.get_running_loop().create_task(self._poll())
        return self

    async def _poll(self) -> None:
        try:
            while True:
                self.subscription.settle()
                if self.membership.needs_poll():
                    await self.membership.poll(Deadline(POLL_S))
                self._woken.clear()
                try:
                    async with asyncio.timeout(POLL_S):
                        await self._woken.wait()
                except TimeoutError:
                    pass
        except Exception as error:
            self.failure = error

    async def idle(self) -> None:
        """Polls no more; heartbeats go on."""
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait([self._polling])
            self._polling = None

    def consume(self, partition: TopicPartition, offset: int) -> None:
        """As if records up to there had been handed out."""
        self.subscription.hand_out(self.subscription.state(partition), Position(offset))

    async def unsubscribe(self) -> None:
        await self.idle()
        await self.membership.unsubscribe(WAIT_S)
        self.subscription.unsubscribe()

    async def close(self) -> None:
        await self.idle()
        self.subscription.settle()
        await self.membership.close(WAIT_S)
        await self.cluster.close()

    async def kill(self) -> None:
        """Its connections end and nothing is said, as when a process is killed."""
        await self.idle()
        await self.cluster.close()
        await self.membership.close(0)


class DrivenGroup:
    """All members that a test made; they are closed with it."""

    def __init__(self, bootstrap: str, group: str, **settings: Any) -> None:
        self.bootstrap = bootstrap
        self.group = group
        self.settings = settings
        self.members: list[DrivenMember] = []
        self.all: list[DrivenMember] = []
        """Also those that left."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in self.members:
            await member.close()

    def member(self, **settings: Any) -> DrivenMember:
        made = DrivenMember(self.bootstrap, self.group, **{**self.settings, **settings})
        self.members.append(made)
        self.all.append(made)
        return made

    async def leave(self, member: DrivenMember) -> None:
        self.members.remove(member)
        await member.close()

    async def kill(self, member: DrivenMember) -> None:
        self.members.remove(member)
        await member.kill()

    async def settled(self, partitions: Iterable[TopicPartition], *, everyone: bool = True) -> None:
        """Until each partition has one owner, and every member some."""
        wanted = sorted(partitions)

        def is_settled() -> bool:
            owned = sorted(one for member in self.members for one in member.owned)
            return owned == wanted and (not everyone or all(member.owned for member in self.members))

        try:
            await until(is_settled, *self.members)
        except AssertionError as error:
            raise AssertionError(f"{error}: {[sorted(member.owned) for member in self.members]}") from error


async def until(condition: Callable[[], bool], *members: DrivenMember) -> None:
    """Until it holds; a member that fails meanwhile fails the test."""

    def holds() -> bool:
        for member in members:
            if member.failure is not None:
                raise member.failure
        return condition()

    await waiting.until(holds)
