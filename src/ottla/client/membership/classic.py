"""A member of a group of the classic protocol, in which all members join again for each generation.

    out ──poll──▶ giving up ──▶ joining ──▶ taking over ──▶ stable ──rebalance, other topics──▶ giving up
     ▲                                                        │
     └──── lost: the coordinator does not know us, or we did not poll for too long ◀─┘

- giving up: processed records are committed. An eager member gives up all partitions, a cooperative one (KIP-429) those
  whose topics are no longer subscribed.
- joining: with retries, until there is an assignment.
- taking over: a cooperative member gives up what the leader assigned to others, and joins again, so that they get it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.client.cluster import Backoff, Cluster, Deadline, may_pass
from ottla.client.config import ConsumerConfig
from ottla.client.errors import BrokerConnectionError, RefusedError
from ottla.client.membership.assignors import assignors_of
from ottla.client.membership.classic_dialogue import ClassicDialogue, Joined
from ottla.client.membership.commits import fenced
from ottla.client.membership.handover import Invoke
from ottla.client.membership.metadata import NO_GENERATION, NO_MEMBER_ID, GroupMetadata
from ottla.client.membership.participation import MS, Participation
from ottla.client.subscriptions.subscription import Subscription

_logger = logging.getLogger(__name__)

_LOST: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
_AT_ONCE: Final = frozenset({ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS})
"""Reasons to join again without waiting."""


class ClassicMembership(Participation):
    def __init__(
        self, config: ConsumerConfig, cluster: Cluster, subscription: Subscription, group_id: str, invoke: Invoke
    ) -> None:
        super().__init__(config, cluster, subscription, group_id, invoke)
        assignors = assignors_of(config.partition_assignment_strategy)
        self._is_cooperative = all(assignor.is_cooperative for assignor in assignors)
        self._dialogue = ClassicDialogue(config, self._coordinator, assignors, self._topics.layout)
        self._rejoin_reason: str | None = "the consumer is new"
        """None if the group is stable."""
        self._joining: asyncio.Task[Joined | None] | None = None
        self._joined: Joined | None = None
        """A generation that was joined and not taken over yet."""

    def metadata(self) -> GroupMetadata:
        return self._dialogue.metadata

    # A rebalance, step by step.

    def _has_steps(self) -> bool:
        joining = self._joining
        if joining is not None:
            return joining.done()
        return self._rejoin_reason is not None or self._joined is not None

    async def _step(self, deadline: Deadline) -> bool:
        if self._joined is None:
            if self._joining is None:
                if not await self._give_up_before_joining(deadline):
                    return False
                reason, self._rejoin_reason = self._rejoin_reason or "", None
                self._joining = self._task(self._join(reason), "join")
                self._joining.add_done_callback(lambda _: self._subscription.wake_poll())
            joining = self._joining
            if not await self._is_done(joining, deadline) or joining.cancelled():
                return False  # cancelled: the consumer is giving up everything
            self._joining = None
            try:
                self._joined = joining.result()
            except BaseException:
                self._rejoin_reason = "joining failed before"
                raise
        return self._joined is None or await self._take_over(self._joined, deadline)

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
        """Returns None if the member has to start again, without the partitions that it owned."""
        backoff = Backoff(self._cluster.options)
        if not self._cluster.brokers:
            await self._cluster.retry(self._cluster.refresh)  # raises at the end if no broker can be reached
        is_warned = False
        while True:
            try:
                await self._topics.match_pattern()
                topics = self._subscription.topics
                joined = await self._dialogue.join(topics, self._subscription.partitions, reason)
            except (BrokerConnectionError, RefusedError) as error:
                code = error.code if isinstance(error, RefusedError) else None
                if code in _LOST:
                    self._lose("the coordinator no longer knows it")
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
                    _logger.warning("group %s: joining failed and is retried: %s", self._group_id, error)
                await asyncio.sleep(backoff.next_s())
            else:
                self._topics.watch(joined.group_topics, joined.layout)
                _logger.info("group %s: joined generation %d", self._group_id, self._dialogue.generation)
                return joined

    async def _take_over(self, joined: Joined, deadline: Deadline) -> bool:
        # Skip what the user has unsubscribed from in the meantime.
        wanted = [one for one in joined.partitions if one.topic in joined.topics & self._subscription.topics]
        gone = self._subscription.partitions.keys() - set(wanted)
        if gone:
            if not await self._is_committed(deadline):
                return False
            await self._handover.revoke(gone)
            self._rejoin("partitions were revoked for other members")
        if self._joined is joined:  # it may be lost while the listener was called
            self._joined = None
            await self._handover.assign(wanted)
        return True

    # Reactions to responses.

    def _topics_changed(self, reason: str) -> None:
        self._rejoin(reason)

    def _rejoin(self, reason: str) -> None:
        self._rejoin_reason = reason
        self._subscription.wake_poll()

    def _fence(self) -> None:
        self._failure = fenced(self._dialogue.metadata)
        self._lose("another consumer with the same group.instance.id joined")

    def _member_refused(self, member: GroupMetadata, code: ErrorCode) -> None:
        if member != self._dialogue.metadata or self._is_joining():
            return  # about an earlier generation, or one that is about to end
        if code in _LOST:
            self._lose(f"the coordinator says {code.name}")
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self._fence()
        elif code == ErrorCode.REBALANCE_IN_PROGRESS and self._rejoin_reason is None:
            self._rejoin("the group rebalances")

    def _is_joining(self) -> bool:
        return self._joining is not None and not self._joining.done()

    # In the background.

    async def _pause(self) -> None:
        await asyncio.sleep(min(self._config.heartbeat_interval_ms, self._config.max_poll_interval_ms) / MS)

    async def _heartbeat(self) -> None:
        # While a member joins, the coordinator expects no heartbeats.
        if self._dialogue.generation == NO_GENERATION or self._is_joining():
            return
        member = self._dialogue.metadata
        try:
            await self._dialogue.heartbeat()
        except RefusedError as error:
            self._member_refused(member, error.code)
        except BrokerConnectionError as error:
            _logger.debug("group %s: a heartbeat failed: %s", self._group_id, error)

    # Leaving.

    async def _stop_joining(self) -> None:
        if self._joining is not None:
            await self._end(self._joining)
        self._joining = self._joined = None

    async def _leave(self, reason: str) -> None:
        # A static member is expected to come back.
        if self._dialogue.member_id != NO_MEMBER_ID and self._config.group_instance_id is None:
            await self._dialogue.leave(reason)

    def _forget(self) -> None:
        self._dialogue.forget()
        self._joined = None
        self._rejoin_reason = "the consumer is back"
