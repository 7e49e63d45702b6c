"""Consumers that read from followers (KIP-392), and partitions that moved (KIP-951)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import random_uuid
from ottla.broker.metadata.metadata_cache import BrokerEndpoint
from ottla.controller.state import PartitionState, TopicState
from ottla.records import iter_records
from ottla.replication.partition import Partition
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from support.brokers import Client, batch_of, with_client
from support.replication.roles import follow, lead

VERSION = 17
RACK_AWARE = {"replica_selector_class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


def request(client: Client, offset: int, *, rack: str = "", max_wait_ms: int = 0, epoch: int = -1) -> FetchRequest:
    known = client.broker.metadata.topic("orders")
    assert known is not None
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 26,
        topics=[FetchTopic(topic="orders", topic_id=known.topic_id, partitions=[asked])],
        rack_id=rack,
        session_epoch=-1,
    )


def only(response: FetchResponse) -> FetchPartitionResponse:
    (topic,) = response.responses
    (answer,) = topic.partitions
    return answer


def values(answer: FetchPartitionResponse) -> list[bytes | None]:
    return [record.value for record in iter_records(bytes(answer.records or b""))]


async def followed(client: Client) -> Partition:
    """Three records that were appended as a leader; two of them are known to be committed. Broker 2 leads by now."""
    await client.create_topic("orders")
    partition = client.broker.replicas.get("orders", 0)
    assert partition is not None
    lead(partition, leader_epoch=1, isr=(1, 2), replicas=(1, 2))
    for value in (b"a", b"b", b"c"):
        partition.append(bytearray(batch_of(value)), all_replicas=False)
    follow(partition, 2, leader_epoch=2)
    partition.set_follower_progress(2, 0, leader_epoch=2)
    return partition


def test_a_follower_serves_what_it_knows_to_be_committed(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await followed(client)
        answer = only(await client.ask(request(client, 0, epoch=2), FetchResponse, VERSION))
        assert (answer.error_code, answer.high_watermark, values(answer)) == (0, 2, [b"a", b"b"])
        answer = only(await client.ask(request(client, 3), FetchResponse, VERSION))
        assert (answer.error_code, values(answer)) == (0, [])
        answer = only(await client.ask(request(client, 4), FetchResponse, VERSION))
        assert ErrorCode.of(answer.error_code) is ErrorCode.OFFSET_OUT_OF_RANGE

    with_client(tmp_path, work)


@pytest.mark.parametrize(
    ("version", "epoch", "code"),
    [
        (10, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (VERSION, 1, ErrorCode.FENCED_LEADER_EPOCH),
        (VERSION, 3, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_follower_refuses_old_clients_and_other_epochs(
    tmp_path: Path, version: int, epoch: int, code: ErrorCode
) -> None:
    async def work(client: Client) -> None:
        await followed(client)
        answer = only(await client.ask(request(client, 0, epoch=epoch), FetchResponse, version))
        assert ErrorCode.of(answer.error_code) is code

    with_client(tmp_path, work)


def test_a_consumer_waits_at_a_follower(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        partition = await followed(client)
        client.send(request(client, 2, max_wait_ms=20_000), VERSION)
        await asyncio.sleep(0)
        partition.check_waiting()
        await asyncio.sleep(0)
        assert not client.is_answered
        partition.set_follower_progress(3, 0, leader_epoch=2)
        assert values(only(await client.answer(FetchResponse, VERSION))) == [b"c"]

    with_client(tmp_path, work)


async def in_racks(client: Client, *, fetched: dict[int, tuple[int, int]], isr: tuple[int, ...] = (1, 2, 3)) -> None:
    """Broker 1 leads in rack a; brokers 2 and 3 are in rack b, and have the offsets in `fetched`."""
    await client.create_topic("orders")
    for broker, rack in ((1, "a"), (2, "b"), (3, "b")):
        client.broker.metadata._by_listener["PLAINTEXT"][broker] = BrokerEndpoint(broker, "h", 9092, rack)
    partition = client.broker.replicas.get("orders", 0)
    assert partition is not None
    lead(partition, leader_epoch=1, isr=isr, replicas=(1, 2, 3))
    partition.append(bytearray(batch_of(b"a", b"b", b"c")), all_replicas=False)
    for replica, (start, end) in fetched.items():
        partition.follower_fetched(
            replica,
            fetch_offset=end,
            log_start_offset=start,
            leader_end_offset_at_read=3,
            broker_epoch=-1,
            now_s=float(replica),
        )


@pytest.mark.parametrize(
    ("rack", "offset", "fetched", "isr", "preferred"),
    [
        ("b", 1, {2: (0, 2), 3: (0, 3)}, (1, 2, 3), 3),
        ("b", 1, {2: (0, 3), 3: (0, 3)}, (1, 2, 3), 3),
        ("b", 1, {2: (0, 3), 3: (0, 3)}, (1, 2), 2),
        ("b", 1, {2: (2, 3), 3: (0, 0)}, (1, 2, 3), -1),
        ("b", 1, {}, (1, 2, 3), -1),
        ("a", 1, {2: (0, 3), 3: (0, 3)}, (1, 2, 3), -1),
        ("c", 1, {2: (0, 3), 3: (0, 3)}, (1, 2, 3), -1),
        ("", 1, {2: (0, 3), 3: (0, 3)}, (1, 2, 3), -1),
    ],
)
def test_a_consumer_is_sent_to_the_furthest_replica_in_its_rack(
    tmp_path: Path, rack: str, offset: int, fetched: dict[int, tuple[int, int]], isr: tuple[int, ...], preferred: int
) -> None:
    async def work(client: Client) -> None:
        await in_racks(client, fetched=fetched, isr=isr)
        answer = only(await client.ask(request(client, offset, rack=rack, max_wait_ms=1), FetchResponse, VERSION))
        assert (answer.error_code, answer.preferred_read_replica) == (0, preferred)
        if preferred >= 0:
            assert not answer.records

    with_client(tmp_path, work, **RACK_AWARE)


def test_consumers_are_redirected_only_if_configured(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await in_racks(client, fetched={2: (0, 3), 3: (0, 3)})
        answer = only(await client.ask(request(client, 0, rack="b"), FetchResponse, VERSION))
        assert (answer.preferred_read_replica, len(values(answer))) == (-1, 3)

    with_client(tmp_path, work)


@pytest.mark.parametrize("version", [10, 12, 16, VERSION])
def test_the_leader_of_a_partition_that_is_elsewhere_is_named(tmp_path: Path, version: int) -> None:
    async def work(client: Client) -> None:
        client.broker.metadata.put_broker(BrokerEndpoint(2, "elsewhere", 9093, "there"), listener="PLAINTEXT")
        state = PartitionState((2, 3), 2, 7, (2, 3), 1, 0)
        client.broker.metadata.put_topic(TopicState("orders", random_uuid(), (state,)))
        response = await client.ask(request(client, 0, max_wait_ms=20_000), FetchResponse, version)
        answer = only(response)
        assert ErrorCode.of(answer.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader = answer.current_leader
        assert (None if leader is None else (leader.leader_id, leader.leader_epoch)) == (
            (2, 7) if version >= 12 else None
        )
        endpoints = [(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints]
        assert endpoints == ([(2, "elsewhere", 9093, "there")] if version >= 16 else [])

    with_client(tmp_path, work)
