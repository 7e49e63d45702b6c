"""LeaveGroup, through a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.wire.messages.leave_group import LeaveGroupMember, LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.messages.sync_group import SyncGroupResponse
from support.brokers import Client, with_client
from support.brokers.classic_group import QUICK, join_request, joined, stable, sync_request


@pytest.mark.parametrize("version", range(6))
def test_a_member_leaves_once_in_every_version(tmp_path: Path, version: int) -> None:
    async def run(client: Client) -> None:
        member_id = (await stable(client)).member_id
        request = LeaveGroupRequest(group_id="g")
        if version < 3:
            request.member_id = member_id
        else:
            request.members = [LeaveGroupMember(member_id=member_id)]
        for error in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
            answer = await client.ask(request, LeaveGroupResponse, version)
            if version < 3:
                assert answer.error_code == error
            else:
                assert answer.error_code == ErrorCode.NONE
                assert [(each.member_id, each.error_code) for each in answer.members] == [(member_id, error)]

    with_client(tmp_path, run, **QUICK)


def test_a_group_of_one_waits_for_nothing_but_its_join(tmp_path: Path) -> None:
    """All other requests are answered before the loop turns: the group is alone, and so is the broker."""

    async def run(client: Client) -> None:
        join = await stable(client)
        for request, version in (
            (join_request(group_id="other"), 9),  # gets a member id
            (sync_request(join), 5),
            (LeaveGroupRequest(group_id="g", members=[LeaveGroupMember(member_id=join.member_id)]), 5),
        ):
            client.send(request, version)
            assert client.is_answered, request
            client.connection.answers.get_nowait()
        rejoined = await joined(client)
        client.send(sync_request(rejoined), 5)  # the leader's, which is written to the log
        assert client.is_answered
        assert (await client.answer(SyncGroupResponse, 5)).assignment == b"all"

    with_client(tmp_path, run, **QUICK)
