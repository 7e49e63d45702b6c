"""LeaveGroup, through a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.wire.messages.leave_group import LeaveGroupMember, LeaveGroupRequest, LeaveGroupResponse
from support.brokers import Client, with_client
from support.brokers.classic_group import QUICK, stable


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
