"""DeleteGroups, through a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from support.brokers import Client, with_client
from support.brokers.classic_group import QUICK, stable


@pytest.mark.parametrize("version", range(3))
def test_a_group_can_be_deleted_when_it_is_empty_in_every_version(tmp_path: Path, version: int) -> None:
    async def run(client: Client) -> None:
        async def delete(*names: str) -> dict[str, int]:
            answer = await client.ask(DeleteGroupsRequest(groups_names=list(names)), DeleteGroupsResponse, version)
            return {each.group_id: each.error_code for each in answer.results}

        join = await stable(client)
        assert await delete("g", "who") == {"g": ErrorCode.NON_EMPTY_GROUP, "who": ErrorCode.GROUP_ID_NOT_FOUND}
        await client.ask(LeaveGroupRequest(group_id="g", member_id=join.member_id), LeaveGroupResponse, 2)
        assert await delete("g", "g") == {"g": ErrorCode.NONE}
        assert (await client.ask(ListGroupsRequest(), ListGroupsResponse, 5)).groups == []

    with_client(tmp_path, run, **QUICK)


def test_without_a_coordinator(tmp_path: Path) -> None:
    async def run(client: Client) -> None:
        answer = await client.ask(DeleteGroupsRequest(groups_names=["g"]), DeleteGroupsResponse, 2)
        assert [each.error_code for each in answer.results] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]

    with_client(tmp_path, run)
