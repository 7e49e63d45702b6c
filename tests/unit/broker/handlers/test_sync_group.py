"""SyncGroup, through a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.wire.messages.sync_group import SyncGroupResponse
from support.brokers import Client, broker_in_loop, with_client
from support.brokers.classic_group import QUICK, joined, stable, sync_request
from support.coordinators import in_loop


@pytest.mark.parametrize("version", range(6))
def test_the_leader_gets_what_it_assigned_in_every_version(tmp_path: Path, version: int) -> None:
    async def run(client: Client) -> None:
        request = sync_request(await joined(client))
        answer = await client.ask(request, SyncGroupResponse, version)
        assert (answer.error_code, answer.assignment) == (0, b"all")
        assert answer.protocol_name == ("range" if version >= 5 else None)

    with_client(tmp_path, run, **QUICK)


@pytest.mark.parametrize(("version", "error"), [(4, ErrorCode.NONE), (5, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)])
def test_since_v5_the_protocol_is_required(tmp_path: Path, version: int, error: ErrorCode) -> None:
    async def run(client: Client) -> None:
        request = sync_request(await joined(client))
        request.protocol_type = None
        assert (await client.ask(request, SyncGroupResponse, version)).error_code == error

    with_client(tmp_path, run, **QUICK)


@in_loop
async def test_an_assignment_survives_the_broker(tmp_path: Path) -> None:
    async with broker_in_loop(tmp_path, **QUICK) as broker:
        join = await stable(Client(broker))
    async with broker_in_loop(tmp_path, **QUICK) as broker:
        request = sync_request(join)
        request.assignments = []
        answer = await Client(broker).ask(request, SyncGroupResponse, 5)
        assert (answer.error_code, answer.assignment) == (0, b"all")
