"""DescribeGroups, through a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.operations import NOT_ASKED
from ottla.broker.requests.authorized_operations import GROUP_OPERATIONS
from ottla.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from support.brokers import Client, with_client
from support.brokers.classic_group import QUICK, stable


@pytest.mark.parametrize("version", range(7))
def test_a_group_that_is_there_and_one_that_is_not_in_every_version(tmp_path: Path, version: int) -> None:
    async def run(client: Client) -> None:
        member_id = (await stable(client)).member_id
        request = DescribeGroupsRequest(groups=["g", "who"], include_authorized_operations=version >= 3)
        known, unknown = (await client.ask(request, DescribeGroupsResponse, version)).groups
        assert (known.error_code, known.group_state, known.protocol_data) == (0, "Stable", "range")
        (member,) = known.members
        assert (member.member_id, member.client_id, member.client_host) == (member_id, "test", "/127.0.0.1")
        assert member.member_assignment == b"all"
        assert known.authorized_operations == (GROUP_OPERATIONS if version >= 3 else NOT_ASKED)
        assert unknown.group_state == "Dead"
        assert unknown.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)

    with_client(tmp_path, run, **QUICK)


def test_authorized_operations_are_returned_on_request(tmp_path: Path) -> None:
    async def run(client: Client) -> None:
        await stable(client)
        answer = await client.ask(DescribeGroupsRequest(groups=["g"]), DescribeGroupsResponse, 6)
        assert answer.groups[0].authorized_operations == NOT_ASKED

    with_client(tmp_path, run, **QUICK)


def test_without_a_coordinator(tmp_path: Path) -> None:
    async def run(client: Client) -> None:
        answer = await client.ask(DescribeGroupsRequest(groups=["g"]), DescribeGroupsResponse, 6)
        assert answer.groups[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    with_client(tmp_path, run)
