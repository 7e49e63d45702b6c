"""The requests of a member of a KIP-848 group: it sends everything when it joins or when it is not sure what arrived,
and otherwise only what changed."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Final, NamedTuple

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import Uuid
from ottla.client.config import ConsumerConfig
from ottla.client.errors import ClientError, RefusedError, UnsupportedApiError
from ottla.client.membership.coordinator import CoordinatorLink, Lane
from ottla.client.membership.metadata import NO_GENERATION, GroupMetadata
from ottla.net.client_connection import ClientConnection
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)

IdPartition = tuple[Uuid, int]

_JOINS: Final = 0
_LEAVES: Final = -1
_LEAVES_FOR_A_WHILE: Final = -2
_FIRST_VERSION_WITH_PATTERNS: Final = 1
_MS: Final = 1000

_HINTS: Final = {
    ErrorCode.UNSUPPORTED_ASSIGNOR: "the broker does not have the assignor that group.remote.assignor names",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has as many members as the broker's group.consumer.max.size allows",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group uses the classic protocol and cannot be converted",
}


class Wish(NamedTuple):
    """What a member subscribes to."""

    topics: frozenset[str]
    pattern: str | None = None


class Answer(NamedTuple):
    """The coordinator's response: the target assignment, or None if it is unchanged, and the heartbeat interval."""

    partitions: frozenset[IdPartition] | None
    interval_s: float


class ConsumerDialogue:
    """`epoch` is that of the last response; -1 outside the group."""

    def __init__(self, config: ConsumerConfig, coordinator: CoordinatorLink) -> None:
        self.member_id = str(uuid.uuid4())
        self.epoch = NO_GENERATION
        self._config = config
        self._coordinator = coordinator
        self._lives = 0
        """How often it left the group: a response from before that is outdated."""
        self._may_be_in = False
        """Whether the coordinator may know the member."""
        self._told_wish: Wish | None = None
        self._told_owned: frozenset[IdPartition] | None = None

    @property
    def metadata(self) -> GroupMetadata:
        is_in = self.epoch != NO_GENERATION
        member_id = self.member_id if is_in else ""
        return GroupMetadata(self._coordinator.group_id, self.epoch, member_id, self._config.group_instance_id)

    def forget(self) -> None:
        self.epoch = NO_GENERATION
        self._lives += 1
        self._told_wish = self._told_owned = None

    def has_news(self, wish: Wish, owned: frozenset[IdPartition]) -> bool:
        """Whether this differs from what the coordinator was sent last."""
        return wish != self._told_wish or owned != self._told_owned

    async def heartbeat(self, wish: Wish, owned: frozenset[IdPartition]) -> Answer | None:
        """Joins, if this is the first heartbeat. Returns None if the member was forgotten, or left, before the response
        arrived."""
        life = self._lives
        connection = await self._connection()
        if life != self._lives:
            return None  # a member that has left must not join again
        version = connection.version_for(ConsumerGroupHeartbeatRequest)
        if wish.pattern is not None and version < _FIRST_VERSION_WITH_PATTERNS:
            raise ClientError(
                f"{connection.address} is older than Kafka 4.0 and does not match patterns; subscribe with a compiled "
                "re.Pattern, which the client matches"
            )
        joins = self.epoch == NO_GENERATION
        is_all = joins or self._told_wish is None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._coordinator.group_id,
            member_id=self.member_id,
            member_epoch=_JOINS if joins else self.epoch,
            instance_id=self._config.group_instance_id,
        )
        if is_all:
            request.rack_id = self._config.client_rack or None
            request.rebalance_timeout_ms = self._config.max_poll_interval_ms
            request.server_assignor = self._config.group_remote_assignor
        told = self._told_wish
        if told is None or told.topics != wish.topics:
            request.subscribed_topic_names = sorted(wish.topics)
        if (told is None and wish.pattern is not None) or (told is not None and told.pattern != wish.pattern):
            request.subscribed_topic_regex = wish.pattern or ""
        if is_all or owned != self._told_owned:
            request.topic_partitions = _by_topic(owned)
        self._told_wish = self._told_owned = None  # until a response shows that the request arrived
        self._may_be_in = True
        answer = await connection.send(request, ConsumerGroupHeartbeatResponse, version=version)
        if life != self._lives:
            return None
        self._raise_if_refused(answer)
        self._told_wish, self._told_owned = wish, owned
        self.member_id = answer.member_id or self.member_id
        self.epoch = answer.member_epoch
        partitions = None
        if answer.assignment is not None:
            partitions = frozenset(
                (topic.topic_id, index) for topic in answer.assignment.topic_partitions for index in topic.partitions
            )
        return Answer(partitions, answer.heartbeat_interval_ms / _MS)

    async def leave(self) -> None:
        """Leaves the group; a static member only temporarily. A heartbeat that was not sent yet is dropped; one that is
        in flight arrives before this, on the same connection."""
        self.forget()
        if not self._may_be_in:
            return
        self._may_be_in = False
        connection = await self._connection()
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._coordinator.group_id,
            member_id=self.member_id,
            member_epoch=_LEAVES if self._config.group_instance_id is None else _LEAVES_FOR_A_WHILE,
            instance_id=self._config.group_instance_id,
        )
        self._raise_if_refused(await connection.send(request, ConsumerGroupHeartbeatResponse))

    async def _connection(self) -> ClientConnection:
        connection = await self._coordinator.connection(Lane.MEMBERSHIP)
        try:
            connection.version_for(ConsumerGroupHeartbeatRequest)
        except UnsupportedApiError as error:
            raise ClientError(
                f"{connection.address} does not support group.protocol=consumer (KIP-848), which needs Kafka 4.0; "
                "set group.protocol=classic"
            ) from error
        return connection

    def _raise_if_refused(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        if answer.error_code:
            self._coordinator.look_at(answer.error_code)
            message = _HINTS.get(ErrorCode.of(answer.error_code)) or answer.error_message
            raise RefusedError(answer.error_code, f"group {self._coordinator.group_id}", message)


def _by_topic(partitions: Collection[IdPartition]) -> list[HeartbeatTopicPartitions]:
    topics: dict[Uuid, list[int]] = {}
    for topic_id, index in sorted(partitions):
        topics.setdefault(topic_id, []).append(index)
    return [HeartbeatTopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in topics.items()]
