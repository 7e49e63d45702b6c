"""Says to a coordinator what no client would: requests of one's own making, over a connection of ours."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ottla.base.error_codes import ErrorCode
from ottla.net.client_connection import ClientConnection, parse_addresses
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupProtocol, JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupMember, LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.messages.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchGroupTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from ottla.wire.messages.sync_group import SyncGroupAssignment, SyncGroupRequest, SyncGroupResponse

NO_TOPICS = b"\0\0" + b"\0\0\0\0" + b"\xff\xff\xff\xff"
"""A subscription in the words of the clients' own protocol: its version, no topics, no data of the user."""

NAMES = 9
"""The last version of OffsetCommit and OffsetFetch that calls topics by their names."""


class Speaker:
    """On one topic; each question is answered by an error code, unless it says otherwise."""

    def __init__(self, connection: ClientConnection, group: str, topic: str) -> None:
        self.connection = connection
        self.group = group
        self.topic = topic

    async def joining(self, **fields: Any) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupProtocol(name="range", metadata=NO_TOPICS)],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        return await self.connection.send(request, JoinGroupResponse)

    async def join(self, **fields: Any) -> int:
        return (await self.joining(**fields)).error_code

    async def become_member(self, **fields: Any) -> tuple[str, int]:
        """The only member of the group, in both steps; its id and generation."""
        answer = await self.joining(**fields)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            answer = await self.joining(member_id=answer.member_id, **fields)
        assert answer.error_code == ErrorCode.NONE
        assert await self.sync(answer.member_id, answer.generation_id) == ErrorCode.NONE
        return answer.member_id, answer.generation_id

    async def sync(self, member: str, generation: int, **fields: Any) -> int:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=member,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupAssignment(member_id=member, assignment=b"")],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        return (await self.connection.send(request, SyncGroupResponse)).error_code

    async def heartbeat(self, member: str, generation: int, instance: str | None = None) -> int:
        request = HeartbeatRequest(
            group_id=self.group, generation_id=generation, member_id=member, group_instance_id=instance
        )
        return (await self.connection.send(request, HeartbeatResponse)).error_code

    async def leave(self, member: str, instance: str | None = None) -> int:
        leaving = LeaveGroupMember(member_id=member, group_instance_id=instance)
        request = LeaveGroupRequest(group_id=self.group, members=[leaving])
        answer = await self.connection.send(request, LeaveGroupResponse)
        return answer.error_code or answer.members[0].error_code

    async def commit(self, member: str, generation: int, metadata: str = "", **fields: Any) -> int:
        return (await self.commit_all(member, generation, {0: (5, metadata)}, **fields))[0]

    async def commit_all(
        self, member: str, generation: int, offsets: Mapping[int, tuple[int, str]], **fields: Any
    ) -> dict[int, int]:
        """Error codes by partition."""
        partitions = [
            OffsetCommitPartition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
            for index, (offset, metadata) in offsets.items()
        ]
        version = fields.pop("version", NAMES)
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=[OffsetCommitTopic(name=self.topic, partitions=partitions)],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        answer = await self.connection.send(request, OffsetCommitResponse, version=version)
        return {each.partition_index: each.error_code for each in answer.topics[0].partitions}

    async def fetch(
        self, member: str | None = None, epoch: int = -1, partitions: int = 2
    ) -> tuple[int, dict[int, int]]:
        """The error code, and the offsets of so many partitions of the topic."""
        wanted = OffsetFetchGroup(
            group_id=self.group,
            member_id=member,
            member_epoch=epoch,
            topics=[OffsetFetchGroupTopic(name=self.topic, partition_indexes=list(range(partitions)))],
        )
        answer = await self.connection.send(OffsetFetchRequest(groups=[wanted]), OffsetFetchResponse, version=NAMES)
        (group,) = answer.groups
        offsets = {each.partition_index: each.committed_offset for topic in group.topics for each in topic.partitions}
        return group.error_code, offsets

    async def beating(self, member: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat of the consumer protocol; one that joins says what it has to."""
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=member, member_epoch=epoch)
        if epoch == 0:
            request.rebalance_timeout_ms = 30_000
            request.subscribed_topic_names = [self.topic]
            request.topic_partitions = []
        for name, value in fields.items():
            setattr(request, name, value)
        return await self.connection.send(request, ConsumerGroupHeartbeatResponse)

    async def beat(self, member: str, epoch: int, **fields: Any) -> int:
        return (await self.beating(member, epoch, **fields)).error_code


@asynccontextmanager
async def speaking(bootstrap: str, group: str, topic: str) -> AsyncIterator[Speaker]:
    (address,) = parse_addresses(bootstrap)
    connection = await ClientConnection.open(address)
    try:
        yield Speaker(connection, group, topic)
    finally:
        await connection.close()


def new_member_id() -> str:
    """Members of the consumer protocol choose their own."""
    return uuid.uuid4().hex
