"""The part of group membership that all protocols share: commits, the listener, background work.

Partitions change hands only inside polls, because the user's listener is called; steps that take long are tasks, which
the next poll picks up. Heartbeats, commits at an interval and topic checks run in the background, whatever the user
does. A consumer that does not poll for too long leaves the group, so that others get its partitions.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.cluster import Backoff, Cluster, Deadline
from ottla.client.config import ConsumerConfig
from ottla.client.errors import BrokerConnectionError, ClientError
from ottla.client.membership.auto_commit import AutoCommit
from ottla.client.membership.commits import GroupCommits
from ottla.client.membership.coordinator import CoordinatorLink
from ottla.client.membership.handover import Handover, Invoke
from ottla.client.membership.ledger import AskedCommit, CommitLedger
from ottla.client.membership.metadata import NO_GENERATION, GroupMetadata
from ottla.client.membership.topics import TopicWatch
from ottla.client.offsets import OffsetAndMetadata
from ottla.client.subscriptions.subscription import Subscription

_logger = logging.getLogger(__name__)

MS: Final = 1000
_LOOK_UP_S: Final = 0.5


class Participation(ABC):
    """Belongs to one loop; `needs_poll` is thread-safe. `Membership` documents the contract."""

    _has_epochs = False
    """Whether members have their own epochs (KIP-848)."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        subscription: Subscription,
        group_id: str,
        invoke: Invoke,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._subscription = subscription
        self._group_id = group_id
        self._coordinator = CoordinatorLink(cluster, group_id)
        self.ledger = CommitLedger(subscription, self._identity)
        self._offsets = self._commits()
        self._auto_commit = AutoCommit(config, self.ledger, self._offsets)
        self._handover = Handover(subscription, invoke)
        self._topics = TopicWatch(config, cluster, subscription, self._topics_changed)
        self._background: list[asyncio.Task[None]] = []
        self._committing: asyncio.Task[None] | None = None
        """The commit that must end before partitions are given up."""
        self._is_lost = False
        """Whether the assigned partitions now belong to others, and the user was not told yet."""
        self._failure: BaseException | None = None
        """An error of the group that the next poll raises."""
        self._unforeseen: Exception | None = None
        """An unexpected error in background work, which was restarted: raised once."""

    # Called by the consumer.

    def needs_poll(self) -> bool:
        if not self._background or self._unforeseen is not None:
            return True
        return self._subscription.is_by_group and (
            self._failure is not None or self._is_lost or self._handover.is_untold or self._has_steps()
        )

    async def poll(self, deadline: Deadline) -> None:
        if not self._background:
            self._background = [self._task(self._keep_up(work, name), name) for name, work in self._works().items()]
        unforeseen, self._unforeseen = self._unforeseen, None
        if unforeseen is not None:
            raise unforeseen
        while self._subscription.is_by_group and self.needs_poll():
            if self._failure is not None:
                self._raise_failure(self._failure)
            await self._handover.tell_assigned()
            if self._is_lost:
                await self._handover.lose_all()
                self._is_lost = False
            if not await self._step(deadline) or deadline.is_over:
                break
        self._handover.raise_failure()

    def subscription_changed(self) -> None:
        self._topics_changed("the subscription changed")

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        await self.commit_asked(dict.fromkeys(offsets, self.ledger.ask(offsets)))

    async def commit_asked(self, commits: Mapping[TopicPartition, AskedCommit]) -> None:
        await self._offsets.commit(commits)

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return await self._offsets.committed(partitions)

    async def unsubscribe(self, timeout_s: float) -> None:
        await self._give_up(timeout_s, "the consumer unsubscribed")
        self._handover.raise_failure()

    async def close(self, timeout_s: float) -> None:
        try:
            await self._give_up(timeout_s, "the consumer is closed")
        finally:
            await self.end()
        self._handover.raise_failure()

    async def end(self) -> None:
        tasks, self._background = self._background, []
        if self._committing is not None:
            tasks.append(self._committing)
        await self._end(*tasks)
        await self._stop_joining()

    @abstractmethod
    def metadata(self) -> GroupMetadata: ...

    # What differs between the protocols.

    def _commits(self) -> GroupCommits:
        """Where offsets are stored: by the coordinator."""
        return GroupCommits(
            self._cluster,
            self._coordinator,
            self.ledger,
            self._identity,
            self._member_refused,
            has_epochs=self._has_epochs,
            timeout_s=self._config.default_api_timeout_ms / MS,
        )

    def _works(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Background work, by name."""
        return {"heartbeats": self._beat, "auto-commit": self._auto_commit.run, "topics": self._topics.run}

    @abstractmethod
    def _has_steps(self) -> bool:
        """Whether `_step` has anything to do."""

    @abstractmethod
    async def _step(self, deadline: Deadline) -> bool:
        """Moves towards what the group wants this member to own; returns False if the time was not enough."""

    @abstractmethod
    async def _heartbeat(self) -> None:
        """Sends a heartbeat, if this is a member."""

    @abstractmethod
    async def _pause(self) -> None:
        """Waits until the next heartbeat is due."""

    @abstractmethod
    def _topics_changed(self, reason: str) -> None: ...

    @abstractmethod
    def _member_refused(self, member: GroupMetadata, code: ErrorCode) -> None:
        """Handles the error of a commit."""

    @abstractmethod
    async def _stop_joining(self) -> None:
        """Cancels joining."""

    @abstractmethod
    async def _leave(self, reason: str) -> None:
        """Tells the coordinator that the member leaves."""

    @abstractmethod
    def _forget(self) -> None:
        """Drops the membership."""

    # Shared.

    def _identity(self) -> GroupMetadata | None:
        """The identity that commits: the member, or an anonymous one for manual assignment."""
        if not self._subscription.is_by_group:
            return GroupMetadata(self._group_id)
        member = self.metadata()
        return None if member.generation_id == NO_GENERATION else member

    def _lose(self, reason: str) -> None:
        """Drops out of the group without being asked."""
        _logger.info("group %s: member %s left the group: %s", self._group_id, self.metadata().member_id, reason)
        self._forget()
        self._is_lost = bool(self._subscription.partitions)
        self._topics_changed(reason)

    def _raise_failure(self, failure: BaseException) -> None:
        raise failure

    async def _is_committed(self, deadline: Deadline) -> bool:
        """Whether the commit was attempted, which can take several polls."""
        if self._committing is None:
            timeout_s = min(self._config.default_api_timeout_ms, self._config.max_poll_interval_ms) / MS
            self._committing = self._task(self._auto_commit.commit(timeout_s=timeout_s), "commit")
        committing = self._committing
        if not await self._is_done(committing, deadline) or committing.cancelled():
            return False  # cancelled: the consumer is giving up everything
        self._committing = None
        return True

    async def _beat(self) -> None:
        poll_interval_s = self._config.max_poll_interval_ms / MS
        while True:
            await self._pause()
            silent_s = time.monotonic() - self._subscription.polled_s
            if silent_s > poll_interval_s and self.metadata().generation_id != NO_GENERATION:
                await self._leave_silently(silent_s)
            else:
                await self._heartbeat()

    async def _keep_up(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """No background work ends unnoticed: a member without heartbeats would lose its partitions. The poll raises
        unexpected errors, and the work starts again."""
        backoff = Backoff(self._cluster.options)
        while True:
            try:
                return await work()
            except Exception as error:
                self._report(error, name)
            await asyncio.sleep(backoff.next_s())

    def _report(self, unforeseen: Exception, name: str) -> None:
        """The next poll raises the error."""
        _logger.error("group %s: %s failed and is restarted: %r", self._group_id, name, unforeseen)
        self._unforeseen = self._unforeseen or unforeseen
        self._subscription.wake_poll()

    async def _leave_silently(self, silent_s: float) -> None:
        _logger.warning(
            "group %s: %.1f s have passed since the last poll, more than max.poll.interval.ms (%d), so the consumer "
            "leaves the group until it polls again. Reduce max.poll.records, or increase "
            "max.poll.interval.ms",
            self._group_id,
            silent_s,
            self._config.max_poll_interval_ms,
        )
        await self._stop_joining()
        await self._try_to_leave("the time between polls was longer than max.poll.interval.ms")
        self._lose("the time between polls was too long")

    async def _give_up(self, timeout_s: float, reason: str) -> None:
        """Commits, calls the listener, and leaves."""
        deadline = Deadline(timeout_s)
        await self._stop_joining()
        if self._committing is not None:
            await self._end(self._committing)
            self._committing = None
        if self._is_lost:
            await self._handover.lose_all()
            self._is_lost = False
        await self._auto_commit.commit(timeout_s=deadline.left_s)
        if self._subscription.is_by_group:
            await self._handover.revoke(list(self._subscription.partitions))
            with suppress(TimeoutError):
                async with asyncio.timeout(deadline.left_s):
                    await self._try_to_leave(reason)
            self._forget()
            self._topics.watch((), None)

    async def _try_to_leave(self, reason: str) -> None:
        try:
            await self._leave(reason)
        except (ClientError, BrokerConnectionError) as error:
            _logger.debug("group %s: could not leave: %s", self._group_id, error)

    @staticmethod
    def _task(work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(work, name=f"ottla-group-{name}")

    async def _is_done(self, task: asyncio.Task[Any], deadline: Deadline) -> bool:
        """Waits for a task on behalf of a poll, which counts as polling all the time."""
        while not task.done() and not deadline.is_over:
            await asyncio.wait([task], timeout=min(deadline.left_s, _LOOK_UP_S))
            self._subscription.polled_s = time.monotonic()
        return task.done()

    @staticmethod
    async def _end(*tasks: asyncio.Task[Any]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
