"""A member of a group of the consumer protocol (KIP-848): the coordinator assigns, members follow at their own pace.

A heartbeat contains our identity, our subscription and what we own; the response contains what we should own. In the
next poll, partitions that are revoked are committed and given up, new ones are taken over, and a heartbeat that is sent
at once reports it. Then the coordinator gives the revoked partitions to others. The members never stop all at once.

    out ──poll──▶ joining ──response──▶ member ⇄ reconciling (the target is not what we own)
     ▲                                    │
     └── fenced, unknown, or no poll for too long: what we own is lost, and we join again ──┘

The target contains topic ids; it takes effect once their names are known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition, Uuid
from ottla.client.cluster import Backoff, Cluster, Deadline, may_pass
from ottla.client.config import ConsumerConfig
from ottla.client.errors import BrokerConnectionError, ClientError, MemberFencedError, RefusedError
from ottla.client.membership.commits import fenced
from ottla.client.membership.consumer_dialogue import ConsumerDialogue, IdPartition, Wish
from ottla.client.membership.handover import Invoke
from ottla.client.membership.metadata import NO_GENERATION, GroupMetadata
from ottla.client.membership.participation import MS, Participation
from ottla.client.subscriptions.subscription import Subscription
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataTopic

_logger = logging.getLogger(__name__)

_LOST: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
_FIRST_INTERVAL_S: Final = 5.0
"""The heartbeat interval until the coordinator sets it."""


class ConsumerMembership(Participation):
    _has_epochs = True

    def __init__(
        self, config: ConsumerConfig, cluster: Cluster, subscription: Subscription, group_id: str, invoke: Invoke
    ) -> None:
        super().__init__(config, cluster, subscription, group_id, invoke)
        self._dialogue = ConsumerDialogue(config, self._coordinator)
        self._is_wanted = False
        """Whether the user has polled since the member left the group: only then does it join."""
        self._is_fenced = False
        """Whether another consumer permanently took this member's place."""
        self._owned: dict[TopicPartition, Uuid] = {}
        """What we own, with topic ids: a topic that is deleted and created again is another topic."""
        self._target: dict[TopicPartition, Uuid] | None = None
        """What the coordinator wants us to own, limited to topics whose names are known; None before it says so."""
        self._resolving: asyncio.Task[None] | None = None
        self._names: dict[Uuid, str] = {}
        self._has_topics = False
        """Whether the subscribed topics were looked up."""
        self._interval_s = _FIRST_INTERVAL_S
        self._due = asyncio.Event()
        self._backoff = Backoff(cluster.options)

    def metadata(self) -> GroupMetadata:
        return self._dialogue.metadata

    # Within polls.

    def _has_steps(self) -> bool:
        return not self._is_wanted or (self._target is not None and self._target is not self._owned)

    async def _step(self, deadline: Deadline) -> bool:
        if not self._is_wanted:
            self._is_wanted = True
            self._due.set()
        target = self._target
        if target is None or target is self._owned:
            return True
        return await self._reconcile(target, deadline)

    async def _reconcile(self, target: dict[TopicPartition, Uuid], deadline: Deadline) -> bool:
        owned = self._owned
        gone = [one for one, topic_id in owned.items() if target.get(one) != topic_id]
        if gone:
            if not await self._is_committed(deadline):
                return False
            await self._handover.revoke(gone)
            if owned is self._owned:  # it may be lost while the listener was called
                self._owned = {one: topic_id for one, topic_id in owned.items() if target.get(one) == topic_id}
        if target is self._target:
            self._owned = target
            await self._handover.assign(target.keys())
        self._due.set()
        return True

    # In the background.

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(min(self._interval_s, self._config.max_poll_interval_ms / MS)):
                await self._due.wait()
        except TimeoutError:
            pass
        self._due.clear()

    async def _heartbeat(self) -> None:
        if not self._is_wanted or self._is_lost or not self._subscription.is_by_group:
            return
        member = self._dialogue.metadata
        try:
            if not self._cluster.brokers:
                await self._cluster.retry(self._cluster.refresh)
            if not self._has_topics:
                await self._find_topics()
            if not self._is_wanted:
                return  # it has left meanwhile
            answer = await self._dialogue.heartbeat(self._wish(), self._owned_ids())
        except (BrokerConnectionError, ClientError) as error:
            if isinstance(error, RefusedError):
                self._member_refused(member, error.code)
            # Raises at the end if no broker can be reached.
            if may_pass(error) and self._cluster.brokers:
                _logger.debug("group %s: a heartbeat failed: %s", self._group_id, error)
                await asyncio.sleep(self._backoff.next_s())
                self._due.set()
            elif self._is_wanted and self._failure is None:
                self._fail(error)
            return
        if answer is None:
            return
        self._backoff = Backoff(self._cluster.options)
        self._interval_s = answer.interval_s
        if answer.partitions is not None:
            self._aim_at(answer.partitions)
        if self._dialogue.has_news(self._wish(), self._owned_ids()):
            self._due.set()

    def _wish(self) -> Wish:
        return Wish(self._subscription.topics, self._subscription.server_pattern)

    def _owned_ids(self) -> frozenset[IdPartition]:
        return frozenset((topic_id, partition.partition) for partition, topic_id in self._owned.items())

    async def _find_topics(self) -> None:
        """Finds topics that match the pattern. Topics given by name are looked up because that may create them."""
        self._has_topics = True
        try:
            await self._topics.match_pattern()
            await self._topics.layout(self._subscription.topics)
        except BaseException:
            self._has_topics = False
            raise

    def _aim_at(self, partitions: frozenset[IdPartition]) -> None:
        if self._resolving is not None:
            self._resolving.cancel()
        self._resolving = None
        if any(topic_id not in self._names for topic_id, _ in partitions):
            self._resolving = self._task(self._resolve(partitions), "topics-by-id")
        else:
            self._set_target(partitions)

    async def _resolve(self, partitions: frozenset[IdPartition]) -> None:
        backoff = Backoff(self._cluster.options)
        while unknown := {topic_id for topic_id, _ in partitions if topic_id not in self._names}:
            try:
                await self._ask_names(unknown)
            except (ClientError, BrokerConnectionError) as error:
                _logger.debug("group %s: topic metadata could not be refreshed: %s", self._group_id, error)
            except Exception as error:
                self._report(error, "refreshing topic metadata")
            if any(topic_id in self._names for topic_id in unknown):
                self._set_target(partitions)
            else:
                await asyncio.sleep(backoff.next_s())

    async def _ask_names(self, topic_ids: Collection[Uuid]) -> None:
        request = MetadataRequest(
            topics=[MetadataTopic(topic_id=topic_id, name=None) for topic_id in topic_ids],
            allow_auto_topic_creation=False,
        )
        answer = await self._cluster.send_to_any(request, MetadataResponse)
        for topic in answer.topics:
            if not topic.error_code and topic.name is not None:
                self._names[topic.topic_id] = topic.name

    def _set_target(self, partitions: frozenset[IdPartition]) -> None:
        self._target = {
            TopicPartition(self._names[topic_id], index): topic_id
            for topic_id, index in partitions
            if topic_id in self._names
        }
        if self._target == self._owned:
            self._owned = self._target
            self._due.set()  # nothing to do, but the coordinator waits for a confirmation
        else:
            self._subscription.wake_poll()

    # Reactions to responses.

    def subscription_changed(self) -> None:
        self._has_topics = False
        super().subscription_changed()

    def _topics_changed(self, reason: str) -> None:  # noqa: ARG002
        self._due.set()
        self._subscription.wake_poll()

    def _member_refused(self, member: GroupMetadata, code: ErrorCode) -> None:
        if member != self._dialogue.metadata:
            return
        if code in _LOST and member.generation_id != NO_GENERATION:
            self._lose(f"the coordinator says {code.name}")
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self._is_fenced = True
            self._fail(fenced(GroupMetadata(self._group_id, group_instance_id=self._config.group_instance_id)))
        elif code == ErrorCode.UNRELEASED_INSTANCE_ID:
            self._fail(
                MemberFencedError(
                    f"group {self._group_id}: a consumer with the group.instance.id {self._config.group_instance_id!r} "
                    "is already a member; use a different id for each, or wait until a killed member is removed after "
                    "group.consumer.session.timeout.ms of the broker"
                )
            )

    def _fail(self, failure: ClientError | BrokerConnectionError) -> None:
        """The next poll raises the error; the one after that tries again, unless the member's place was taken."""
        self._failure = failure
        self._lose(str(failure))

    def _raise_failure(self, failure: BaseException) -> None:
        if not self._is_fenced:
            self._failure = None
        raise failure

    # Leaving.

    async def _stop_joining(self) -> None:
        if self._resolving is not None:
            await self._end(self._resolving)
            self._resolving = None
        self._target = None

    async def _leave(self, reason: str) -> None:  # noqa: ARG002
        if self._is_wanted:
            self._is_wanted = False  # no heartbeats from here on: one would join again
            await self._dialogue.leave()

    def _forget(self) -> None:
        self._dialogue.forget()
        self._is_wanted = False
        self._has_topics = False
        self._target = None
        self._owned = {}
        if self._resolving is not None:
            self._resolving.cancel()
            self._resolving = None
