"""OffsetCommit, OffsetFetch and OffsetDelete through a whole broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.broker.broker import Broker
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
)
from support.brokers import Client, broker_in_loop, with_client

FEW = {"offsets_topic_num_partitions": "2"}


def commit_of(client: Client, offset: int, partitions: int = 2, group_id: str = "g") -> OffsetCommitRequest:
    topic = client.broker.metadata.topic("t")
    assert topic is not None
    asked = [OffsetCommitPartition(partition_index=n, committed_offset=offset + n) for n in range(partitions)]
    topics = [OffsetCommitTopic(name="t", topic_id=topic.topic_id, partitions=asked)]
    return OffsetCommitRequest(group_id=group_id, topics=topics)


async def ready(client: Client) -> None:
    await client.create_topic("t", 2)
    await client.ask(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, 3)


async def errors_of_commit(client: Client, request: OffsetCommitRequest, version: int = 9) -> list[int]:
    answer = await client.ask(request, OffsetCommitResponse, version)
    return [each.error_code for topic in answer.topics for each in topic.partitions]


async def offsets(client: Client, group_id: str = "g") -> list[int]:
    answer = await client.ask(OffsetFetchRequest(group_id=group_id, topics=None), OffsetFetchResponse, 7)
    assert answer.error_code == ErrorCode.NONE
    return [each.committed_offset for topic in answer.topics for each in topic.partitions]


@pytest.mark.parametrize("version", range(11))
def test_every_version_commits_and_fetches(tmp_path: Path, version: int) -> None:
    async def work(client: Client) -> None:
        await ready(client)
        assert await errors_of_commit(client, commit_of(client, 40), version) == [0, 0]
        if version < 8:
            topics = [OffsetFetchTopic(name="t", partition_indexes=[0, 1])]
            old = await client.ask(OffsetFetchRequest(group_id="g", topics=topics), OffsetFetchResponse, version)
            found = old.topics[0].partitions
        else:
            groups = [OffsetFetchGroup(group_id="g", topics=None), OffsetFetchGroup(group_id="h", topics=None)]
            new = await client.ask(OffsetFetchRequest(groups=groups), OffsetFetchResponse, version)
            found = new.groups[0].topics[0].partitions
            assert (new.groups[1].group_id, new.groups[1].topics) == ("h", [])
        assert [each.committed_offset for each in found] == [40, 41]

    with_client(tmp_path, work, **FEW)


def test_before_there_is_a_topic_of_groups_there_is_no_coordinator(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("t", 2)
        refused = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
        assert await errors_of_commit(client, commit_of(client, 1)) == refused
        fetched = await client.ask(OffsetFetchRequest(group_id="g", topics=None), OffsetFetchResponse, 7)
        assert fetched.error_code == ErrorCode.NOT_COORDINATOR

    with_client(tmp_path, work)


def test_offsets_outlive_a_restart(tmp_path: Path) -> None:
    async def loaded(broker: Broker) -> Client:
        while broker.groups.runtime.is_loading:
            await asyncio.sleep(0)
        return Client(broker)

    async def run() -> None:
        async with broker_in_loop(tmp_path, **FEW) as broker:
            client = Client(broker)
            await ready(client)
            for number in range(5):
                for group_id in ("g", "h", "i"):
                    await errors_of_commit(client, commit_of(client, number, group_id=group_id))
        for _ in range(2):
            async with broker_in_loop(tmp_path, **FEW) as broker:
                client = await loaded(broker)
                for group_id in ("g", "h", "i"):
                    assert await offsets(client, group_id) == [4, 5]
                assert await offsets(client, "other") == []

    asyncio.run(asyncio.wait_for(run(), 60))


def test_deleting_a_topic_deletes_its_committed_offsets(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await ready(client)
        await errors_of_commit(client, commit_of(client, 40))
        await client.broker.controller.delete_topic("t")
        assert await offsets(client) == []
        await client.create_topic("t", 2)
        assert await offsets(client) == []

    with_client(tmp_path, work, **FEW)


def test_the_topic_of_groups_can_be_deleted_and_is_made_again(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await ready(client)
        await errors_of_commit(client, commit_of(client, 40))
        await client.broker.controller.delete_topic("__consumer_offsets")
        assert await errors_of_commit(client, commit_of(client, 40)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
        await client.ask(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, 3)
        assert await offsets(client) == []
        assert await errors_of_commit(client, commit_of(client, 50)) == [0, 0]
        assert await offsets(client) == [50, 51]

    with_client(tmp_path, work, **FEW)


def test_offsets_are_deleted(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await ready(client)
        await errors_of_commit(client, commit_of(client, 40))
        topics = [OffsetDeleteTopic(name="t", partitions=[OffsetDeletePartition(partition_index=0)])]
        answer = await client.ask(OffsetDeleteRequest(group_id="g", topics=topics), OffsetDeleteResponse, 0)
        assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0)
        assert await offsets(client) == [41]
        unknown = await client.ask(OffsetDeleteRequest(group_id="?", topics=topics), OffsetDeleteResponse, 0)
        assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND

    with_client(tmp_path, work, **FEW)


def test_commits_wait_for_the_disk_where_the_topic_wants_that(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("t", 2)
        await client.create_topic("__consumer_offsets", 1, flush_messages="1", cleanup_policy="compact")
        assert await errors_of_commit(client, commit_of(client, 40)) == [0, 0]
        assert client.connection.reserved == 1  # it was not answered at once
        assert await offsets(client) == [40, 41]

    with_client(tmp_path, work)


def test_more_than_a_batch_may_hold_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await ready(client)
        await errors_of_commit(client, commit_of(client, 40))
        request = commit_of(client, 1)
        request.topics[0].partitions *= 12_000
        assert set(await errors_of_commit(client, request)) == {ErrorCode.UNKNOWN_SERVER_ERROR}
        longest = commit_of(client, 1, group_id="g" * 32_767)
        assert await errors_of_commit(client, longest) == [0, 0]
        assert await offsets(client) == [40, 41]

    with_client(tmp_path, work, **FEW)
