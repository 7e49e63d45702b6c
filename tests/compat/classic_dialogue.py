"""What members of classic groups say to a broker, and hear, over the wire: a script that gives lines to compare.

Member ids, which no two runs share, are told by the order in which they were given out.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any, Final, TypeVar

from ottla.base.error_codes import ErrorCode
from ottla.base.operations import Operation
from ottla.broker.requests.authorized_operations import GROUP_OPERATIONS
from ottla.net.client_connection import Address, ClientConnection, ConnectionOptions
from ottla.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupProtocol, JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupMember, LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.messages.sync_group import SyncGroupAssignment, SyncGroupRequest, SyncGroupResponse
from ottla.wire.schema import Request, Response

R = TypeVar("R", bound=Response)
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "500",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.max.size": "3",
}
SINCE_4: Final = GROUP_OPERATIONS | 1 << Operation.DESCRIBE_CONFIGS | 1 << Operation.ALTER_CONFIGS
"""What may be done with a group in Kafka 4: groups have configs there."""
DESCRIBE_VERSIONS: Final = range(6)
"""What Kafka 3.9.1 serves; 4.3.1 adds one that says more of unknown groups."""


class Dialogue:
    """One connection a speaker, so that nobody waits behind another."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._address = Address(host, int(port))
        self._connections: dict[str, ClientConnection] = {}
        self._names: dict[str, str] = {}
        self.lines: list[str] = []

    async def run(self) -> list[str]:
        async with AsyncExitStack() as stack:
            for speaker in ("a", "b", "c"):
                connection = await ClientConnection.open(self._address, ConnectionOptions(client_id=speaker))
                stack.push_async_callback(connection.close)
                self._connections[speaker] = connection
            await self._coordinator()
            for scene in (self._refused, self._alone, self._versions, self._together, self._static, self._crowd):
                self.lines.append(f"--- {scene.__name__}")
                await scene()
        return self.lines

    async def _coordinator(self) -> None:
        """Waits until groups are served: asking where their coordinator is makes its topic."""
        found = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        nobody = SyncGroupRequest(group_id="g", member_id="who", protocol_type="consumer", protocol_name="range")
        error = None
        while error != ErrorCode.UNKNOWN_MEMBER_ID:
            await self._connections["a"].send(found, FindCoordinatorResponse, version=4)
            error = (await self._connections["a"].send(nobody, SyncGroupResponse, version=5)).error_code
            await asyncio.sleep(0.05)

    async def _ask(self, speaker: str, request: Request, response: type[R], version: int) -> R:
        answer = await self._connections[speaker].send(request, response, version=version, timeout_s=30)
        self._say(f"{speaker} {type(request).__name__} v{version}", answer)
        return answer

    def _say(self, who: str, answer: Response) -> None:
        """Lists that Kafka gives in no order are put in one."""
        if isinstance(answer, JoinGroupResponse):
            self._name(answer.member_id)
            answer.members.sort(key=lambda member: member.metadata)
            for member in answer.members:
                self._name(member.member_id)
        elif isinstance(answer, DescribeGroupsResponse):
            for group in answer.groups:
                group.members.sort(key=lambda member: member.client_id)
                if group.authorized_operations == SINCE_4:
                    group.authorized_operations = GROUP_OPERATIONS
        elif isinstance(answer, ListGroupsResponse):
            # Kafka keeps groups that it refused to let anybody join.
            answer.groups = [group for group in answer.groups if not group.group_id.startswith("refused")]
        elif isinstance(answer, DeleteGroupsResponse):
            answer.results.sort(key=lambda result: result.group_id)
        told = repr(answer)
        for member_id, name in self._names.items():
            told = told.replace(member_id, name)
        self.lines.append(f"{who}: {told}")

    def _name(self, member_id: str) -> None:
        if "-" in member_id:
            self._names.setdefault(member_id, f"<{len(self._names)}>")

    # --- requests ---------------------------------------------------------------------------------------------------

    async def _join(
        self, speaker: str, group_id: str, member_id: str = "", version: int = 9, **changes: Any
    ) -> JoinGroupResponse:
        request = _join_of(speaker, group_id, member_id=member_id, **changes)
        return await self._ask(speaker, request, JoinGroupResponse, version)

    async def _enter(self, speaker: str, group_id: str, **changes: Any) -> JoinGroupResponse:
        """With the id that is given first."""
        given = await self._join(speaker, group_id, **changes)
        assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return await self._join(speaker, group_id, given.member_id, **changes)

    def _wait_to_join(self, speaker: str, group_id: str) -> asyncio.Future[JoinGroupResponse]:
        """The answer depends on others, and is for the script to tell."""
        request = _join_of(speaker, group_id)
        sent = self._connections[speaker].send(request, JoinGroupResponse, version=3, timeout_s=30)
        return asyncio.ensure_future(sent)

    async def _sync(
        self, speaker: str, group_id: str, joined: JoinGroupResponse, version: int = 5, **changes: Any
    ) -> SyncGroupResponse:
        request = _sync_of(group_id, joined, **changes)
        return await self._ask(speaker, request, SyncGroupResponse, version)

    async def _beat(self, speaker: str, group_id: str, member_id: str, generation: int, **changes: Any) -> None:
        fields: dict[str, Any] = {"group_id": group_id, "member_id": member_id, "generation_id": generation}
        await self._ask(speaker, HeartbeatRequest(**fields | changes), HeartbeatResponse, 4)

    async def _leave(self, group_id: str, *members: tuple[str, str | None]) -> None:
        leaving = [LeaveGroupMember(member_id=each, group_instance_id=instance) for each, instance in members]
        await self._ask("c", LeaveGroupRequest(group_id=group_id, members=leaving), LeaveGroupResponse, 5)

    async def _describe(self, *group_ids: str) -> None:
        for version in DESCRIBE_VERSIONS:
            request = DescribeGroupsRequest(groups=list(group_ids), include_authorized_operations=version >= 3)
            await self._ask("c", request, DescribeGroupsResponse, version)

    async def _delete(self, *group_ids: str) -> None:
        await self._ask("c", DeleteGroupsRequest(groups_names=list(group_ids)), DeleteGroupsResponse, 2)

    # --- scenes -----------------------------------------------------------------------------------------------------

    async def _refused(self) -> None:
        await self._join("a", "")
        await self._join("a", "refused", session_timeout_ms=5_999)
        await self._join("a", "refused", session_timeout_ms=1_800_001)
        await self._join("a", "refused", "who")
        await self._join("a", "refused 2", protocols=[])
        await self._join("a", "refused 3", protocol_type="")
        nobody = JoinGroupResponse(generation_id=1, member_id="who")
        for group_id in ("", "refused"):
            await self._sync("a", group_id, nobody)
            await self._beat("a", group_id, "who", 1)
            await self._leave(group_id, ("who", None), ("", "who"))
        await self._ask("a", LeaveGroupRequest(group_id="refused", member_id="who"), LeaveGroupResponse, 2)
        await self._describe("refused", "")
        await self._delete("refused", "")

    async def _alone(self) -> None:
        joined = await self._enter("a", "one")
        await self._describe("one")
        await self._beat("a", "one", joined.member_id, 1)
        await self._sync("a", "one", joined, generation_id=2)
        await self._sync("a", "one", joined, member_id="who")
        await self._sync("a", "one", joined, protocol_name="other")
        await self._sync("a", "one", joined, protocol_type=None)
        await self._join("a", "one", joined.member_id)
        await self._sync("a", "one", joined)
        await self._sync("a", "one", joined, assignments=[])
        await self._describe("one")
        await self._beat("a", "one", joined.member_id, 0)
        await self._beat("a", "one", joined.member_id, 1, group_instance_id="i")
        await self._beat("a", "one", "who", 1)
        await self._delete("one")
        await self._join("b", "one", protocol_type="other")
        await self._join("b", "one", protocols=[JoinGroupProtocol(name="sticky", metadata=b"")])
        await self._join("b", "one", "who")
        again = await self._join("a", "one", joined.member_id)
        await self._sync("a", "one", again)
        for states, types in (([], []), (["Stable"], []), (["eMPTY"], []), ([], ["classic"]), ([], ["consumer"])):
            request = ListGroupsRequest(states_filter=states, types_filter=types)
            await self._ask("c", request, ListGroupsResponse, 5)
        await self._leave("one", ("who", None), (joined.member_id, "i"), (joined.member_id, None))
        await self._beat("a", "one", joined.member_id, 2)
        await self._describe("one")
        await self._delete("one", "one")
        await self._describe("one")

    async def _versions(self) -> None:
        for version in range(10):
            group_id = f"v{version}"
            joined = await self._join("a", group_id, version=version)
            if version >= 4:
                joined = await self._join("a", group_id, joined.member_id, version)
            await self._sync("a", group_id, joined, min(version, 5))
            await self._beat("a", group_id, joined.member_id, 1)

    async def _together(self) -> None:
        first = await self._enter("a", "two")
        waiting = self._wait_to_join("b", "two")
        await self._until("two", "PreparingRebalance", 2)
        await self._beat("a", "two", first.member_id, 1)
        await self._sync("a", "two", first)
        leader = await self._join("a", "two", first.member_id)
        follower = await waiting
        self._say("b joined", follower)
        sync = _sync_of("two", follower)
        assigned = asyncio.ensure_future(self._connections["b"].send(sync, SyncGroupResponse, version=5))
        await self._sync("a", "two", leader)
        self._say("b synced", await assigned)
        await self._join("b", "two", follower.member_id)
        await self._describe("two")
        await self._leave("two", (leader.member_id, None))
        await self._beat("b", "two", follower.member_id, 2)
        await self._sync("b", "two", await self._join("b", "two", follower.member_id))
        await self._leave("two", (follower.member_id, None))

    async def _until(self, group_id: str, state: str, member_count: int) -> None:
        while True:
            request = DescribeGroupsRequest(groups=[group_id])
            told = await self._connections["c"].send(request, DescribeGroupsResponse, version=5)
            if (told.groups[0].group_state, len(told.groups[0].members)) == (state, member_count):
                return
            await asyncio.sleep(0.01)

    async def _static(self) -> None:
        first = await self._join("a", "static", group_instance_id="i")
        await self._sync("a", "static", first, group_instance_id="i")
        for version in (5, 8, 9):
            back = await self._join("b", "static", version=version, group_instance_id="i")
            await self._sync("b", "static", back, group_instance_id="i", assignments=[])
        await self._describe("static")
        old = first.member_id
        await self._beat("a", "static", old, 1, group_instance_id="i")
        await self._sync("a", "static", first, group_instance_id="i")
        await self._join("a", "static", old, group_instance_id="i")
        await self._leave("static", (old, "i"), (old, None), ("", "who"), ("", "i"))
        await self._describe("static")

    async def _crowd(self) -> None:
        waiting = []
        for number, speaker in enumerate(("a", "b")):
            waiting.append(self._wait_to_join(speaker, "many"))
            await self._until("many", "PreparingRebalance", number + 1)
        waiting.append(self._wait_to_join("c", "many"))
        joined = [await each for each in waiting]
        for speaker, answer in zip("abc", joined, strict=True):
            self._say(f"{speaker} joined", answer)
        await self._join("a", "many")
        await self._join("a", "many", "who")
        await self._leave("many", *((each.member_id, None) for each in joined))
        await self._delete("many")


def _join_of(speaker: str, group_id: str, **changes: Any) -> JoinGroupRequest:
    fields: dict[str, Any] = {
        "group_id": group_id,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 20_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0" + speaker.encode())],
    }
    return JoinGroupRequest(**fields | changes)


def _sync_of(group_id: str, joined: JoinGroupResponse, **changes: Any) -> SyncGroupRequest:
    fields: dict[str, Any] = {
        "group_id": group_id,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [
            SyncGroupAssignment(member_id=each.member_id, assignment=b"of " + each.metadata[-1:])
            for each in joined.members
        ],
    }
    return SyncGroupRequest(**fields | changes)
