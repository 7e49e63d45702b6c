"""ConsumerGroupDescribe, through a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.operations import NOT_ASKED
from ottla.broker.requests.authorized_operations import GROUP_OPERATIONS
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from support.brokers import Client, with_client
from support.brokers.classic_group import QUICK, coordinator_is_there


@pytest.mark.parametrize("version", range(2))
def test_a_group_that_is_there_and_one_that_is_not_in_every_version(tmp_path: Path, version: int) -> None:
    async def run(client: Client) -> None:
        await coordinator_is_there(client)
        await client.create_topic("t", 2)
        join = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        await client.ask(join, ConsumerGroupHeartbeatResponse, 1)
        request = ConsumerGroupDescribeRequest(group_ids=["g", "who"], include_authorized_operations=True)
        known, unknown = (await client.ask(request, ConsumerGroupDescribeResponse, version)).groups
        assert (known.error_code, known.group_state, known.group_epoch, known.assignor_name) == (
            0,
            "Stable",
            1,
            "uniform",
        )
        assert known.authorized_operations == GROUP_OPERATIONS
        (member,) = known.members
        assert (member.member_id, member.client_id, member.client_host) == ("m", "test", "/127.0.0.1")
        assert member.member_type == (1 if version else -1)
        assert [(each.topic_name, each.partitions) for each in member.assignment.topic_partitions] == [("t", [0, 1])]
        assert (unknown.error_code, unknown.authorized_operations) == (ErrorCode.GROUP_ID_NOT_FOUND, NOT_ASKED)
        request = ConsumerGroupDescribeRequest(group_ids=["g"])
        (known,) = (await client.ask(request, ConsumerGroupDescribeResponse, version)).groups
        assert known.authorized_operations == NOT_ASKED

    with_client(tmp_path, run, **QUICK)
