"""ListGroups, through a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from support.brokers import Client, with_client
from support.brokers.classic_group import QUICK, stable


@pytest.mark.parametrize("version", range(6))
def test_groups_of_all_partitions_in_every_version(tmp_path: Path, version: int) -> None:
    async def run(client: Client) -> None:
        for group_id in ("a", "b", "c", "d"):
            await stable(client, group_id)
        answer = await client.ask(ListGroupsRequest(), ListGroupsResponse, version)
        assert answer.error_code == 0
        assert {each.group_id for each in answer.groups} == {"a", "b", "c", "d"}
        assert {each.protocol_type for each in answer.groups} == {"consumer"}
        assert {each.group_state for each in answer.groups} == {"Stable" if version >= 4 else ""}
        assert {each.group_type for each in answer.groups} == {"classic" if version >= 5 else ""}
        assert len({client.broker.groups.runtime.partition_of(group_id) for group_id in "abcd"}) > 1

    with_client(tmp_path, run, **QUICK)


def test_filters(tmp_path: Path) -> None:
    async def run(client: Client) -> None:
        await stable(client)
        for states, types, count in ((["Stable"], [], 1), (["Empty"], [], 0), ([], ["consumer"], 0)):
            request = ListGroupsRequest(states_filter=states, types_filter=types)
            assert len((await client.ask(request, ListGroupsResponse, 5)).groups) == count

    with_client(tmp_path, run, **QUICK)


def test_no_groups(tmp_path: Path) -> None:
    async def run(client: Client) -> None:
        answer = await client.ask(ListGroupsRequest(), ListGroupsResponse, 5)
        assert (answer.error_code, answer.groups) == (0, [])

    with_client(tmp_path, run)
