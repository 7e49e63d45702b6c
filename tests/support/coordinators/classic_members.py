"""Members of classic groups, driven by hand: what clients send, over a coordinator whose log and time a test holds."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.group import GroupSettings
from ottla.coordinator.groups.service import GroupCoordinatorService
from ottla.wire.codec import encode_versioned
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupProtocol, JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupMember, LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.messages.sync_group import SyncGroupAssignment, SyncGroupRequest, SyncGroupResponse
from support.coordinators.fake_log import FakeLog
from support.coordinators.simulated_time import SimulatedTime
from support.coordinators.topics import FakeTopics

T = TypeVar("T")
_TURNS = 12
"""Of the loop, in which everything that can be answered is."""


@dataclass(frozen=True, slots=True)
class FakeCaller:
    version: int
    client_id: str | None = "c"
    client_host: str = "127.0.0.1"


def subscription(*topics: str) -> bytes:
    return encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), 0)


@dataclass(slots=True)
class Member:
    """What a client remembers of itself."""

    member_id: str
    generation: int
    instance_id: str | None = None


class ClassicMembers:
    """Asks the coordinator. Requests that wait are tasks; `settle` lets all happen that need not wait for time."""

    def __init__(self, settings: GroupSettings | None = None, log: FakeLog | None = None) -> None:
        self.time = SimulatedTime()
        self.log = log or FakeLog()
        self.coordinator = GroupCoordinatorService(
            self.log, self.time, self.time, settings or GroupSettings(), FakeTopics(t=4, u=4)
        )
        self.coordinator.lead(0, 0)

    async def settle(self) -> None:
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    async def pass_ms(self, duration_ms: int) -> None:
        await self.settle()
        self.time.advance_ms(duration_ms)
        await self.settle()

    async def start(self, answer: T | Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A request that may have to wait."""

        async def answered() -> T:
            return await answer if isinstance(answer, Coroutine) else answer

        task = asyncio.create_task(answered())
        await self.settle()
        return task

    def group(self, group_id: str = "g") -> ClassicGroup:
        group = self.coordinator.runtime.active_shards()[0].groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group

    async def loaded_again(self) -> ClassicMembers:
        """Another coordinator, of what the log holds now."""
        other = ClassicMembers(self.coordinator.settings, self.log.copy())
        await other.settle()
        return other

    # --- requests ---------------------------------------------------------------------------------------------------

    async def join(
        self,
        member_id: str = "",
        *,
        version: int = 9,
        client_id: str | None = "c",
        protocols: dict[str, bytes] | None = None,
        **changes: Any,
    ) -> asyncio.Task[JoinGroupResponse]:
        told = {"range": subscription("t")} if protocols is None else protocols
        fields: dict[str, Any] = {
            "group_id": "g",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": [JoinGroupProtocol(name=name, metadata=metadata) for name, metadata in told.items()],
        }
        request = JoinGroupRequest(**fields | changes)
        return await self.start(self.coordinator.classic.join_group(request, FakeCaller(version, client_id)))

    async def given_id(self, **changes: Any) -> str:
        """The id with which a new member is to join."""
        response = await (await self.join(**changes))
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return response.member_id

    async def sync(
        self, member: Member, assignments: dict[str, bytes] | None = None, *, version: int = 5, **changes: Any
    ) -> asyncio.Task[SyncGroupResponse]:
        fields: dict[str, Any] = {
            "group_id": "g",
            "generation_id": member.generation,
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [SyncGroupAssignment(member_id=k, assignment=v) for k, v in (assignments or {}).items()],
        }
        request = SyncGroupRequest(**fields | changes)
        return await self.start(self.coordinator.classic.sync_group(request, FakeCaller(version)))

    async def heartbeat(self, member: Member) -> ErrorCode:
        request = HeartbeatRequest(
            group_id="g",
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
        )
        answer = self.coordinator.classic.heartbeat(request, FakeCaller(4))
        return ErrorCode((await answer if isinstance(answer, Coroutine) else answer).error_code)

    async def leave(self, *members: Member) -> LeaveGroupResponse:
        leaving = [LeaveGroupMember(member_id=each.member_id, group_instance_id=each.instance_id) for each in members]
        request = LeaveGroupRequest(group_id="g", members=leaving)
        left = await self.start(self.coordinator.classic.leave_group(request, FakeCaller(5)))
        return left.result()

    # --- whole walks ------------------------------------------------------------------------------------------------

    async def stable(self, count: int, *, static: bool = False, **changes: Any) -> list[Member]:
        """A stable group of that many members, the first of which leads; each is assigned its number."""
        joins = []
        for number in range(count):
            if static:
                joins.append(await self.join(group_instance_id=f"i{number}", **changes))
            else:
                joins.append(await self.join(await self.given_id(**changes), **changes))
        for _ in range(count + 1):
            if not all(join.done() for join in joins):
                await self.pass_ms(self.coordinator.settings.initial_rebalance_delay_ms)
        members = []
        for number, join in enumerate(joins):
            response = join.result()
            assert response.error_code == ErrorCode.NONE
            members.append(Member(response.member_id, response.generation_id, f"i{number}" if static else None))
        await self.assign(members)
        return members

    async def assign(self, members: list[Member]) -> None:
        """The first, which leads, assigns each its number."""
        assignments = {member.member_id: b"%d" % number for number, member in enumerate(members)}
        syncs = [await self.sync(member) for member in members[1:]]
        syncs.insert(0, await self.sync(members[0], assignments))
        for number, sync in enumerate(syncs):
            assert sync.result().error_code == ErrorCode.NONE
            assert sync.result().assignment == b"%d" % number
