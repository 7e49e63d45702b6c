"""A classic group on a broker in the test's loop, asked as a client asks."""

from __future__ import annotations

import asyncio
import time

from ottla.base.error_codes import ErrorCode
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.join_group import JoinGroupProtocol, JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.sync_group import SyncGroupAssignment, SyncGroupRequest, SyncGroupResponse
from support.brokers import WAIT_S, Client

QUICK = {"group_initial_rebalance_delay_ms": "0", "offsets_topic_num_partitions": "3"}
"""Overrides for a broker whose groups do not wait for more members."""


async def coordinator_is_there(client: Client) -> None:
    """Asking where the coordinator is makes its topic."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        found = await client.ask(request, FindCoordinatorResponse, 4)
        if not found.coordinators[0].error_code:
            return
        await asyncio.sleep(0.01)
    raise TimeoutError("no coordinator came")


def join_request(member_id: str = "", group_id: str = "g", instance_id: str | None = None) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupProtocol(name="range", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff")],
    )


async def joined(client: Client, group_id: str = "g") -> JoinGroupResponse:
    """The first generation of a group of one."""
    await coordinator_is_there(client)
    given = await client.ask(join_request(group_id=group_id), JoinGroupResponse, 9)
    assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED
    answer = await client.ask(join_request(given.member_id, group_id), JoinGroupResponse, 9)
    assert answer.error_code == ErrorCode.NONE
    return answer


def sync_request(join: JoinGroupResponse, group_id: str = "g") -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=join.generation_id,
        member_id=join.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupAssignment(member_id=join.member_id, assignment=b"all")],
    )


async def stable(client: Client, group_id: str = "g") -> JoinGroupResponse:
    """A group of one that has its assignment."""
    join = await joined(client, group_id)
    synced = await client.ask(sync_request(join, group_id), SyncGroupResponse, 5)
    assert synced.assignment == b"all"
    return join
