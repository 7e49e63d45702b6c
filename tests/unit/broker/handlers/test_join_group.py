"""JoinGroup, through a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.wire.messages.join_group import JoinGroupResponse
from support.brokers import Client, with_client
from support.brokers.classic_group import QUICK, coordinator_is_there, join_request, joined


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_in_every_version(tmp_path: Path, version: int) -> None:
    async def run(client: Client) -> None:
        await coordinator_is_there(client)
        answer = await client.ask(join_request(), JoinGroupResponse, version)
        if version >= 4:
            assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
            answer = await client.ask(join_request(answer.member_id), JoinGroupResponse, version)
        assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
        assert answer.leader == answer.member_id
        assert [each.member_id for each in answer.members] == [answer.member_id]
        assert answer.member_id.startswith("test-"), "after the client"
        assert answer.protocol_type == ("consumer" if version >= 7 else None)

    with_client(tmp_path, run, **QUICK)


def test_joining_waits_for_the_others(tmp_path: Path) -> None:
    async def run(client: Client) -> None:
        first = await joined(client)
        second = Client(client.broker)
        second.send(join_request(), 3)
        assert not second.is_answered
        again = await client.ask(join_request(first.member_id), JoinGroupResponse, 9)
        other = await second.answer(JoinGroupResponse, 3)
        assert (again.generation_id, other.generation_id) == (2, 2)
        assert {each.member_id for each in again.members} == {first.member_id, other.member_id}

    with_client(tmp_path, run, **QUICK)


def test_without_a_coordinator_nobody_joins(tmp_path: Path) -> None:
    async def run(client: Client) -> None:
        answer = await client.ask(join_request("m"), JoinGroupResponse, 9)
        assert (answer.error_code, answer.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "m")

    with_client(tmp_path, run)


def test_the_broker_says_how_long_sessions_and_how_large_groups_may_be(tmp_path: Path) -> None:
    async def run(client: Client) -> None:
        await joined(client)
        assert (await client.ask(join_request(), JoinGroupResponse, 9)).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        request = join_request(group_id="h")
        request.session_timeout_ms = 9_999
        assert (await client.ask(request, JoinGroupResponse, 9)).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
        request.session_timeout_ms = 20_001
        assert (await client.ask(request, JoinGroupResponse, 9)).error_code == ErrorCode.INVALID_SESSION_TIMEOUT

    limits = {"group_min_session_timeout_ms": "10000", "group_max_session_timeout_ms": "20000", "group_max_size": "1"}
    with_client(tmp_path, run, **QUICK, **limits)
