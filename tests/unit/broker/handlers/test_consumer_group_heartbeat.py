"""ConsumerGroupHeartbeat, through a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsEntry,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from support.brokers import Client, with_client
from support.brokers.classic_group import QUICK, coordinator_is_there


async def _ask(client: Client, request: ConsumerGroupHeartbeatRequest, version: int) -> ConsumerGroupHeartbeatResponse:
    return await client.ask(request, ConsumerGroupHeartbeatResponse, version)


@pytest.mark.parametrize("version", range(2))
def test_a_member_joins_stays_and_leaves_in_every_version(tmp_path: Path, version: int) -> None:
    async def run(client: Client) -> None:
        await coordinator_is_there(client)
        await client.create_topic("t", 2)
        join = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m" if version else "",
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        joined = await _ask(client, join, version)
        assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval_ms) == (0, 1, 5_000)
        assert joined.assignment is not None
        assert [each.partitions for each in joined.assignment.topic_partitions] == [[0, 1]]
        member_id = joined.member_id or ""
        assert (member_id == "m") == bool(version)
        stay = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=1)
        assert (await _ask(client, stay, version)).assignment is None
        grow = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)], timeout_ms=10_000
        )
        assert not (await client.ask(grow, CreatePartitionsResponse, 3)).results[0].error_code
        told = await _ask(client, stay, version)
        assert told.member_epoch == 2
        assert told.assignment is not None
        assert [each.partitions for each in told.assignment.topic_partitions] == [[0, 1, 2]]
        leave = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=-1)
        assert (await _ask(client, leave, version)).error_code == ErrorCode.NONE
        assert (await _ask(client, leave, version)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    with_client(tmp_path, run, **QUICK)


def test_members_get_the_interval_that_their_group_sets(tmp_path: Path) -> None:
    key = "consumer.heartbeat.interval.ms"
    join = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", rebalance_timeout_ms=1_000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    stay = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)

    async def alter(client: Client) -> None:
        await coordinator_is_there(client)
        assert (await _ask(client, join, 1)).heartbeat_interval_ms == 5_000
        entry = IncrementalAlterConfigsEntry(name=key, config_operation=0, value="6000")
        resource = IncrementalAlterConfigsResource(resource_type=32, resource_name="g", configs=[entry])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        assert not (await client.ask(request, IncrementalAlterConfigsResponse, 1)).responses[0].error_code
        assert (await _ask(client, stay, 1)).heartbeat_interval_ms == 6_000

    async def restarted(client: Client) -> None:
        await coordinator_is_there(client)
        assert (await _ask(client, stay, 1)).heartbeat_interval_ms == 6_000

    with_client(tmp_path, alter, **QUICK)
    with_client(tmp_path, restarted, **QUICK)


def test_without_a_coordinator(tmp_path: Path) -> None:
    async def run(client: Client) -> None:
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)
        assert (await _ask(client, request, 1)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    with_client(tmp_path, run)
