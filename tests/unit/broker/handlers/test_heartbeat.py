"""Heartbeat, through a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from support.brokers import Client, with_client
from support.brokers.classic_group import QUICK, stable


@pytest.mark.parametrize("version", range(5))
def test_a_heartbeat_in_every_version(tmp_path: Path, version: int) -> None:
    async def run(client: Client) -> None:
        join = await stable(client)
        request = HeartbeatRequest(group_id="g", member_id=join.member_id, generation_id=1)
        assert (await client.ask(request, HeartbeatResponse, version)).error_code == ErrorCode.NONE
        request.generation_id = 2
        assert (await client.ask(request, HeartbeatResponse, version)).error_code == ErrorCode.ILLEGAL_GENERATION
        request.member_id = "who"
        assert (await client.ask(request, HeartbeatResponse, version)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    with_client(tmp_path, run, **QUICK)


def test_without_a_coordinator(tmp_path: Path) -> None:
    async def run(client: Client) -> None:
        answer = await client.ask(HeartbeatRequest(group_id="g", member_id="m"), HeartbeatResponse, 4)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    with_client(tmp_path, run)
