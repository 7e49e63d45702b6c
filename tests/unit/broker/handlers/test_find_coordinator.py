from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers.find_coordinator import find_coordinator
from ottla.broker.requests.api import RequestContext
from ottla.replication import new_partitions
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from support.brokers import Client, with_client

GROUP, TRANSACTION, SHARE = 0, 1, 2
TOPIC = "__consumer_offsets"


@pytest.mark.parametrize("version", range(4))
def test_older_versions_ask_for_one_key(tmp_path: Path, version: int) -> None:
    async def work(client: Client) -> None:
        assert client.broker.metadata.topic(TOPIC) is None
        answer = await client.ask(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, version)
        port = client.broker.metadata.brokers[1].port
        assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, "127.0.0.1", port)

    with_client(tmp_path, work, offsets_topic_num_partitions="3")


@pytest.mark.parametrize("version", [4, 5, 6])
def test_newer_versions_ask_for_several(tmp_path: Path, version: int) -> None:
    async def work(client: Client) -> None:
        request = FindCoordinatorRequest(coordinator_keys=["g", "h"])
        answer = await client.ask(request, FindCoordinatorResponse, version)
        assert [(each.key, each.node_id, each.error_code) for each in answer.coordinators] == [("g", 1, 0), ("h", 1, 0)]

    with_client(tmp_path, work, offsets_topic_num_partitions="3")


def test_the_topic_is_made_as_kafka_makes_it(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        # At once, as many consumers do that start together.
        for _ in range(5):
            client.send(FindCoordinatorRequest(key="g"), 3)
        for _ in range(5):
            assert (await client.answer(FindCoordinatorResponse, 3)).error_code == ErrorCode.NONE
        topic = client.broker.metadata.topic(TOPIC)
        assert topic is not None
        assert len(topic.partitions) == 50
        assert topic.partitions[0].replicas == (1,)
        assert topic.configs == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        }
        assert len(client.broker.groups.runtime.active_shards()) == 50

    with_client(tmp_path, work)


def test_the_named_broker_coordinates_while_the_topic_is_being_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_partitions, "_DELAY_S", 0.5)

    async def work(client: Client) -> None:
        client.send(FindCoordinatorRequest(key="g"), 3)
        async with asyncio.timeout(30):
            while client.broker.metadata.topic(TOPIC) is None:
                await asyncio.sleep(0)
        context = RequestContext(3, "somebody", "127.0.0.1", "PLAINTEXT", 1)
        answer = find_coordinator(client.broker, FindCoordinatorRequest(key="g"), context)
        assert isinstance(answer, FindCoordinatorResponse)
        assert answer.node_id == 1
        assert client.broker.groups.runtime.active_shards()
        await client.answer(FindCoordinatorResponse, 3)

    with_client(tmp_path, work, offsets_topic_num_partitions="3")


def test_more_replicas_than_brokers_are_not_made_where_somebody_wants_them(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        answer = await client.ask(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, 3)
        assert (answer.error_code, answer.node_id, answer.port) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1)
        assert client.broker.metadata.topic(TOPIC) is None

    with_client(tmp_path, work, offsets_topic_replication_factor="2")


def test_a_transactional_id_has_a_coordinator_of_its_own(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["t"])
        (found,) = (await client.ask(request, FindCoordinatorResponse, 6)).coordinators
        assert (found.error_code, found.node_id) == (0, 1)
        assert client.broker.metadata.topic(TOPIC) is None
        topic = client.broker.metadata.topic("__transaction_state")
        assert topic is not None
        assert len(topic.partitions) == 4
        assert topic.configs == {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "2",
            "segment.bytes": "104857600",
            "unclean.leader.election.enable": "false",
        }
        assert len(client.broker.transactions.service.runtime.active_shards()) == 4

    with_client(tmp_path, work, transaction_state_log_num_partitions="4")


def test_other_keys_have_no_coordinator(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        for key_type in (SHARE, 9):
            older = await client.ask(FindCoordinatorRequest(key="g", key_type=key_type), FindCoordinatorResponse, 3)
            assert older.error_code == ErrorCode.INVALID_REQUEST
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"])
            (newer,) = (await client.ask(request, FindCoordinatorResponse, 6)).coordinators
            assert (newer.error_code, newer.node_id) == (ErrorCode.INVALID_REQUEST, -1)
        assert not client.broker.metadata.topics

    with_client(tmp_path, work)
