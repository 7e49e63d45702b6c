"""The requests of a member of a classic group, and its identity according to the responses.

An error in a response is raised as `RefusedError`; `classic` decides what follows from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.config import ConsumerConfig
from ottla.client.errors import ClientError, RefusedError
from ottla.client.membership.assignors import Assignor, GroupMember, Topics
from ottla.client.membership.blobs import assignment_blob, read_assignment, read_subscription, subscription_blob
from ottla.client.membership.coordinator import CoordinatorLink, Lane
from ottla.client.membership.metadata import NO_GENERATION, NO_MEMBER_ID, GroupMetadata
from ottla.net.client_connection import ClientConnection
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupProtocol, JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupMember, LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.messages.sync_group import SyncGroupAssignment, SyncGroupRequest, SyncGroupResponse

PROTOCOL_TYPE: Final = "consumer"

_JOIN_WITH_INSTANCE_ID: Final = 5
_JOIN_WITH_REQUIRED_ID: Final = 4
_SYNC_WITH_INSTANCE_ID: Final = 3
_HEARTBEAT_WITH_INSTANCE_ID: Final = 3
_LEAVE_OF_SEVERAL: Final = 3
_JOIN_GRACE_S: Final = 5.0
"""The coordinator waits for members until the rebalance timeout is over, and responds a moment later."""
_NAMING_PATIENCE_S: Final = 1.0
_MS: Final = 1000

_HINTS: Final = {
    ErrorCode.INVALID_SESSION_TIMEOUT: "session.timeout.ms is not between group.min.session.timeout.ms and "
    "group.max.session.timeout.ms of the broker",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the members have no common assignor "
    "(partition.assignment.strategy), or some are not consumers",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has as many members as the broker's group.max.size allows",
}

Layout = Callable[[Collection[str]], Awaitable[Topics]]


@dataclass(frozen=True, slots=True)
class Joined:
    """A member's place in a generation of the group."""

    partitions: list[TopicPartition]
    topics: frozenset[str]
    """The topics that the member subscribed to when it joined."""
    group_topics: frozenset[str]
    """The topics that all members subscribe to, if this member is the leader."""
    layout: Topics | None
    """The topics by which this member, as the leader, assigned."""


class ClassicDialogue:
    """`member_id` and `generation` are those of the last response, until `forget`."""

    def __init__(
        self, config: ConsumerConfig, coordinator: CoordinatorLink, assignors: Sequence[Assignor], layout: Layout
    ) -> None:
        self.member_id = NO_MEMBER_ID
        self.generation = NO_GENERATION
        self._config = config
        self._coordinator = coordinator
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._layout = layout
        self._last_assignment: list[TopicPartition] | None = None
        self._last_generation = NO_GENERATION

    @property
    def metadata(self) -> GroupMetadata:
        return GroupMetadata(
            self._coordinator.group_id, self.generation, self.member_id, self._config.group_instance_id
        )

    def forget(self) -> None:
        """Called when the coordinator no longer knows the member."""
        self.member_id, self.generation = NO_MEMBER_ID, NO_GENERATION

    # Joining.

    async def join(self, topics: frozenset[str], owned: Collection[TopicPartition], reason: str) -> Joined:
        """Waits for the other members, and, unless this member is the leader, for the leader's assignment."""
        connection = await self._coordinator.connection(Lane.MEMBERSHIP)
        answer = await self._join(connection, topics, owned, reason)
        self.generation = answer.generation_id
        assignor = self._assignors.get(answer.protocol_name or "")
        if assignor is None:
            raise ClientError(
                f"group {self._coordinator.group_id} uses the assignor {answer.protocol_name!r}, which this consumer "
                f"did not offer; it offered {', '.join(self._assignors)}"
            )
        group_topics, layout = frozenset[str](), None
        assignments: list[SyncGroupAssignment] = []
        if answer.leader == answer.member_id:
            members = [read_subscription(one.member_id, one.group_instance_id, one.metadata) for one in answer.members]
            group_topics = frozenset[str]().union(*(member.topics for member in members))
            layout = await self._layout(group_topics)
            if not answer.skip_assignment:  # set if a static leader came back: all members keep their partitions
                shares = assignor.assign(layout, members)
                assignments = [
                    SyncGroupAssignment(member_id=member_id, assignment=assignment_blob(share))
                    for member_id, share in shares.items()
                ]
        blob = await self._sync(connection, assignor.name, assignments)
        self._last_assignment, self._last_generation = read_assignment(blob), self.generation
        return Joined(self._last_assignment, topics, group_topics, layout)

    async def _join(
        self, connection: ClientConnection, topics: frozenset[str], owned: Collection[TopicPartition], reason: str
    ) -> JoinGroupResponse:
        version = connection.version_for(JoinGroupRequest)
        instance_id = self._config.group_instance_id
        if instance_id is not None and version < _JOIN_WITH_INSTANCE_ID:
            raise ClientError(f"{connection.address} is older than Kafka 2.3, which does not support group.instance.id")
        rebalance_timeout_ms = self._config.max_poll_interval_ms
        request = JoinGroupRequest(
            group_id=self._coordinator.group_id,
            session_timeout_ms=self._config.session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupProtocol(name=name, metadata=self._subscription(assignor, topics, owned))
                for name, assignor in self._assignors.items()
            ],
            reason=reason,
        )
        timeout_s = max(self._config.request_timeout_ms / _MS, rebalance_timeout_ms / _MS + _JOIN_GRACE_S)
        sending = connection.send(request, JoinGroupResponse, version=version, timeout_s=timeout_s)
        if self.member_id == NO_MEMBER_ID and instance_id is None and version >= _JOIN_WITH_REQUIRED_ID:
            answer = await self._named(sending)
        else:
            answer = await sending
        if answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = answer.member_id
        self._raise_if_refused(answer.error_code)
        return answer

    async def _named(self, sending: Coroutine[Any, Any, JoinGroupResponse]) -> JoinGroupResponse:
        """The coordinator gives a new member its id at once, and expects the member from then on. So we wait for the id
        even if the member no longer wants to join: it is needed to leave."""
        task = asyncio.ensure_future(sending)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task], timeout=_NAMING_PATIENCE_S)
            if task.done() and not task.cancelled() and task.exception() is None:
                self.member_id = task.result().member_id
            raise
        finally:
            task.cancel()

    def _subscription(self, assignor: Assignor, topics: frozenset[str], owned: Collection[TopicPartition]) -> bytes:
        return subscription_blob(
            GroupMember(
                member_id=self.member_id,
                topics=topics,
                rack=self._config.client_rack or None,
                owned=sorted(owned),
                generation=self.generation,
                user_data=assignor.user_data(self._last_assignment, self._last_generation),
            )
        )

    async def _sync(self, connection: ClientConnection, assignor: str, assignments: list[SyncGroupAssignment]) -> bytes:
        version = connection.version_for(SyncGroupRequest)
        request = SyncGroupRequest(
            group_id=self._coordinator.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._config.group_instance_id if version >= _SYNC_WITH_INSTANCE_ID else None,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=assignor,
            assignments=assignments,
        )
        # The leader may take as long as the time between two polls.
        timeout_s = max(self._config.request_timeout_ms, self._config.max_poll_interval_ms) / _MS
        answer = await connection.send(request, SyncGroupResponse, version=version, timeout_s=timeout_s)
        self._raise_if_refused(answer.error_code)
        return answer.assignment

    # Staying and leaving.

    async def heartbeat(self) -> None:
        connection = await self._coordinator.connection(Lane.MEMBERSHIP)
        version = connection.version_for(HeartbeatRequest)
        request = HeartbeatRequest(
            group_id=self._coordinator.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._config.group_instance_id if version >= _HEARTBEAT_WITH_INSTANCE_ID else None,
        )
        answer = await connection.send(request, HeartbeatResponse, version=version)
        self._raise_if_refused(answer.error_code)

    async def leave(self, reason: str) -> None:
        # On another connection than JoinGroup, whose response may still be pending.
        connection = await self._coordinator.connection(Lane.OFFSETS)
        version = connection.version_for(LeaveGroupRequest)
        request = LeaveGroupRequest(group_id=self._coordinator.group_id)
        if version < _LEAVE_OF_SEVERAL:
            request.member_id = self.member_id
        else:
            request.members = [LeaveGroupMember(member_id=self.member_id, reason=reason)]
        answer = await connection.send(request, LeaveGroupResponse, version=version)
        self._raise_if_refused(answer.error_code)

    def _raise_if_refused(self, code: int) -> None:
        if code:
            self._coordinator.look_at(code)
            raise RefusedError(code, f"group {self._coordinator.group_id}", _HINTS.get(ErrorCode.of(code)))
