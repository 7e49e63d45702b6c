"""A member of a group of the classic protocol: joined with all others, anew in each generation.

    out ──poll──▶ giving up ──▶ joining ──▶ taking over ──▶ stable ──rebalance, other topics──▶ giving up
     ▲                                                        │
     └──── lost: the coordinator knows us no more, or we did not poll for too long ◀──────────────┘

- giving up: what the user is done with is committed; of an eager group all partitions go, of a cooperative one (KIP-429)
  those whose topics are not subscribed to any more.
- joining: a task of its own, so that a poll that has to end finds it again the next time.
- taking over: a cooperative member gives up here what the leader gave to others, and joins once more, so that they get
  it.

All of that happens within polls, because the user's listener is told. Heartbeats, commits at an interval, and the
leader's look at the topics go on in the background, whatever the user does. Belongs to one loop; `needs_poll` may be
asked from any thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.cluster import Backoff, Cluster, Deadline, may_pass
from ottla.client.config import ConsumerConfig
from ottla.client.consume.subscription import Subscription
from ottla.client.errors import BrokerConnectionError, ClientError, RefusedError
from ottla.client.membership.assignors import assignors_of
from ottla.client.membership.auto_commit import AutoCommit
from ottla.client.membership.classic_dialogue import ClassicDialogue, Joined
from ottla.client.membership.commits import GroupOffsets, fenced
from ottla.client.membership.coordinator import GroupCoordinator
from ottla.client.membership.handover import Handover, Invoke
from ottla.client.membership.metadata import NO_GENERATION, NO_MEMBER_ID, GroupMetadata
from ottla.client.membership.topics import TopicWatch
from ottla.client.offsets import OffsetAndMetadata

_logger = logging.getLogger(__name__)

_MS: Final = 1000
_LOST: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
_AT_ONCE: Final = frozenset({ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS})
"""Reasons to join again that need no waiting."""


class ClassicMembership:
    """See the module, and `Membership` for what it promises."""

    def __init__(
        self, config: ConsumerConfig, cluster: Cluster, subscription: Subscription, group_id: str, invoke: Invoke
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._subscription = subscription
        assignors = assignors_of(config.partition_assignment_strategy)
        self._is_cooperative = all(assignor.is_cooperative for assignor in assignors)
        coordinator = GroupCoordinator(cluster, group_id)
        self._topics = TopicWatch(config, cluster, subscription, self._rejoin)
        self._dialogue = ClassicDialogue(config, coordinator, assignors, self._topics.layout)
        self._offsets = GroupOffsets(
            cluster,
            coordinator,
            self._identity,
            self._member_refused,
            has_epochs=False,
            timeout_s=config.default_api_timeout_ms / _MS,
        )
        self._auto_commit = AutoCommit(config, subscription, self._offsets)
        self._handover = Handover(subscription, invoke)
        self._background: list[asyncio.Task[None]] = []
        self._rejoin_reason: str | None = "the consumer is new"
        """None in a group that is stable."""
        self._joining: asyncio.Task[Joined | None] | None = None
        self._joined: Joined | None = None
        """What was joined and is not taken over yet."""
        self._committing: asyncio.Task[None] | None = None
        """What has to be committed before partitions go."""
        self._is_lost = False
        """Whether the assigned partitions are others' by now, which the user does not know yet."""
        self._failure: ClientError | None = None

    # What a consumer calls.

    def needs_poll(self) -> bool:
        if self._failure is not None or not self._background:
            return True
        if not self._subscription.is_by_group:
            return False
        joining = self._joining
        if joining is not None:
            return joining.done()
        return self._rejoin_reason is not None or self._joined is not None or self._is_lost

    async def poll(self, deadline: Deadline) -> None:
        self._start()
        while self._subscription.is_by_group:
            if self._failure is not None:
                raise self._failure
            is_stable = self._rejoin_reason is None and self._joining is None and self._joined is None
            if is_stable and not self._is_lost:
                break
            in_time = await self._step(deadline)
            self._subscription.polled_s = time.monotonic()
            if not in_time:
                break
        self._handover.raise_failure()

    def subscription_changed(self) -> None:
        self._rejoin("the subscription changed")

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        await self._offsets.commit(offsets)

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return await self._offsets.committed(partitions)

    def metadata(self) -> GroupMetadata:
        return self._dialogue.metadata

    async def unsubscribe(self, timeout_s: float) -> None:
        await self._give_up(timeout_s, "the consumer unsubscribed")
        self._handover.raise_failure()

    async def close(self, timeout_s: float) -> None:
        try:
            await self._give_up(timeout_s, "the consumer is closed")
        finally:
            background, self._background = self._background, []
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
        self._handover.raise_failure()

    # A rebalance, step by step. Each goes on in the next poll where the time of this one is over.

    async def _step(self, deadline: Deadline) -> bool:
        """False if the time did not suffice."""
        if self._is_lost:
            await self._handover.lose_all()
            self._is_lost = False
        if self._joined is None:
            if self._joining is None:
                if not await self._give_up_before_joining(deadline):
                    return False
                reason, self._rejoin_reason = self._rejoin_reason or "", None
                self._joining = self._task(self._join(reason), "join")
                self._joining.add_done_callback(lambda _: self._subscription.wake_poll())
            if not await _is_done(self._joining, deadline):
                return False
            joining, self._joining = self._joining, None
            try:
                self._joined = joining.result()
            except BaseException:
                self._rejoin_reason = "joining failed before"
                raise
        if self._joined is not None:
            return await self._take_over(self._joined, deadline)
        return True

    async def _give_up_before_joining(self, deadline: Deadline) -> bool:
        owned = self._subscription.partitions
        if owned and not await self._is_committed(deadline):
            return False
        if self._is_cooperative:
            topics = self._subscription.topics
            await self._handover.revoke([one for one in owned if one.topic not in topics])
        else:
            await self._handover.revoke(list(owned))
        return True

    async def _join(self, reason: str) -> Joined | None:
        """None where the member has to begin anew, without what it owned."""
        backoff = Backoff(self._cluster.options)
        if not self._cluster.brokers:
            await self._cluster.refresh()  # that no broker can be reached at first is told, not waited out
        is_warned = False
        while True:
            try:
                await self._topics.match_pattern()
                topics = self._subscription.topics
                joined = await self._dialogue.join(topics, self._subscription.partitions, reason)
            except (BrokerConnectionError, RefusedError) as error:
                code = error.code if isinstance(error, RefusedError) else None
                if code in _LOST:
                    self._lose("the coordinator does not know it any more")
                    return None
                if code == ErrorCode.FENCED_INSTANCE_ID:
                    self._fence()
                    return None
                if code in _AT_ONCE:
                    continue
                if not may_pass(error):
                    raise
                if not is_warned and code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    is_warned = True
                    _logger.warning("group %s: cannot join now, and tries again: %s", self._group_id, error)
                await asyncio.sleep(backoff.next_s())
            else:
                self._topics.watch(joined.group_topics, joined.layout)
                _logger.info("group %s: joined generation %d", self._group_id, self._dialogue.generation)
                return joined

    async def _take_over(self, joined: Joined, deadline: Deadline) -> bool:
        # What the user has unsubscribed from in the meantime is not taken any more.
        wanted = [one for one in joined.partitions if one.topic in joined.topics & self._subscription.topics]
        gone = self._subscription.partitions.keys() - set(wanted)
        if gone:
            if not await self._is_committed(deadline):
                return False
            await self._handover.revoke(gone)
            self._rejoin("partitions were given up, which others wait for")
        if self._joined is joined:  # and not lost while the listener was told
            self._joined = None
            await self._handover.assign(wanted)
        return True

    async def _is_committed(self, deadline: Deadline) -> bool:
        """Whether that is tried, which takes as many polls as it takes."""
        if self._committing is None:
            timeout_s = min(self._config.default_api_timeout_ms, self._config.max_poll_interval_ms) / _MS
            self._committing = self._task(self._auto_commit.commit(timeout_s=timeout_s), "commit")
        if not await _is_done(self._committing, deadline):
            return False
        self._committing = None
        return True

    # In the background.

    def _start(self) -> None:
        if not self._background:
            self._background = [
                self._task(self._beat(), "heartbeats"),
                self._task(self._auto_commit.run(), "auto-commit"),
                self._task(self._topics.run(), "topics"),
            ]

    async def _beat(self) -> None:
        interval_s = self._config.heartbeat_interval_ms / _MS
        poll_interval_s = self._config.max_poll_interval_ms / _MS
        while True:
            await asyncio.sleep(min(interval_s, poll_interval_s))
            if self._dialogue.generation == NO_GENERATION or (self._joining is not None and not self._joining.done()):
                continue
            silent_s = time.monotonic() - self._subscription.polled_s
            if silent_s > poll_interval_s:
                await self._leave_silently(silent_s)
                continue
            try:
                await self._dialogue.heartbeat()
            except RefusedError as error:
                self._member_refused(self._dialogue.metadata, error.code)
            except BrokerConnectionError as error:
                _logger.debug("group %s: a heartbeat failed: %s", self._group_id, error)

    async def _leave_silently(self, silent_s: float) -> None:
        _logger.warning(
            "group %s: %.1f s have passed since the last poll, more than max.poll.interval.ms (%d) allows, so the "
            "consumer leaves the group until it polls again. Take fewer records at a time (max.poll.records), or raise "
            "max.poll.interval.ms",
            self._group_id,
            silent_s,
            self._config.max_poll_interval_ms,
        )
        await self._leave("the time between polls was longer than max.poll.interval.ms")
        self._lose("the time between polls was too long")

    # What others say.

    def _rejoin(self, reason: str) -> None:
        self._rejoin_reason = reason
        self._subscription.wake_poll()

    def _lose(self, reason: str) -> None:
        """Out of the group, without being asked."""
        _logger.info("group %s: member %s is out: %s", self._group_id, self._dialogue.member_id, reason)
        self._dialogue.forget()
        self._joined = None
        self._is_lost = bool(self._subscription.partitions)
        self._rejoin(reason)

    def _fence(self) -> None:
        self._failure = fenced(self._dialogue.metadata)
        self._lose("another took its place")

    def _member_refused(self, member: GroupMetadata, code: ErrorCode) -> None:
        """What a heartbeat or a commit was answered with."""
        if member != self._dialogue.metadata or (self._joining is not None and not self._joining.done()):
            return  # about an earlier generation, or one that is about to end
        if code in _LOST:
            self._lose(f"the coordinator says {code.name}")
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self._fence()
        elif code == ErrorCode.REBALANCE_IN_PROGRESS and self._rejoin_reason is None:
            self._rejoin("the group rebalances")

    def _identity(self) -> GroupMetadata | None:
        if not self._subscription.is_by_group:
            return GroupMetadata(self._group_id)
        member = self._dialogue.metadata
        return None if member.generation_id == NO_GENERATION else member

    # Leaving.

    async def _give_up(self, timeout_s: float, reason: str) -> None:
        """Commits, tells the listener, and leaves. A static member stays: it is expected back."""
        deadline = Deadline(timeout_s)
        for task in (self._joining, self._committing):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task
        self._joining = self._committing = self._joined = None
        if self._is_lost:
            await self._handover.lose_all()
            self._is_lost = False
        await self._auto_commit.commit(timeout_s=deadline.left_s)
        if self._subscription.is_by_group:
            await self._handover.revoke(list(self._subscription.partitions))
            with suppress(TimeoutError):
                async with asyncio.timeout(deadline.left_s):
                    await self._leave(reason)
            self._dialogue.forget()
            self._topics.watch((), None)
            self._rejoin_reason = reason

    async def _leave(self, reason: str) -> None:
        if self._dialogue.member_id != NO_MEMBER_ID and self._config.group_instance_id is None:
            try:
                await self._dialogue.leave(reason)
            except (ClientError, BrokerConnectionError) as error:
                _logger.debug("group %s: could not leave: %s", self._group_id, error)

    @property
    def _group_id(self) -> str:
        return self._dialogue.metadata.group_id

    def _task(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(work, name=f"ottla-group-{name}")


async def _is_done(task: asyncio.Task[Any], deadline: Deadline) -> bool:
    if not task.done():
        await asyncio.wait([task], timeout=deadline.left_s)
    return task.done()
