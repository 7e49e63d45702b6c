"""Brokers that are killed under groups: commits that were acknowledged are there again, and members go on from them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from faults.load import WAIT_S, create_topic
from ottla.base.error_codes import ErrorCode
from support.clients.confluent_client import ConfluentClient
from support.clients.dialect import Record
from support.clients.peers import Peer, running_peer
from support.groups.consumers import Consumed, GroupConsumer, Membership, Partition, join
from support.groups.flavours import A_CLIENT_EACH, Flavour
from support.groups.processes import group_of_processes
from support.groups.speaker import speaking
from support.groups.traffic import traffic
from support.waiting import wait_until

TOPIC = "orders"
GROUP = "readers"
PARTITIONS = 3
SESSION_MS = 2_500
SETTINGS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "200",
}
LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
each_client = pytest.mark.parametrize("flavour", A_CLIENT_EACH, ids=str)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Peer]:
    with running_peer(tmp_path, SETTINGS) as running:
        create_topic(running.bootstrap, TOPIC, partitions=PARTITIONS)
        yield running


def membership(broker: Peer, flavour: Flavour) -> Membership:
    return Membership(broker.bootstrap, GROUP, flavour, [TOPIC], session_ms=SESSION_MS)


def produce(broker: Peer, count: int) -> None:
    """So many records to each partition."""
    records = [Record(b"%d" % number, partition=index) for number in range(count) for index in range(PARTITIONS)]
    ConfluentClient(broker.bootstrap).produce(TOPIC, records)


def committed(broker: Peer) -> dict[int, int]:
    """What the coordinator says of the partitions once it is loaded."""

    async def ask() -> dict[int, int]:
        async with speaking(broker.bootstrap, GROUP, TOPIC) as say, asyncio.timeout(WAIT_S):
            while True:
                code, offsets = await say.fetch(partitions=PARTITIONS)
                if code == ErrorCode.NONE:
                    return offsets
                assert code in LOADING

    return asyncio.run(ask())


def consume(consumer: GroupConsumer, count: int) -> dict[Partition, list[int]]:
    """The offsets of at least so many records."""
    seen: dict[Partition, list[int]] = {}
    deadline = time.monotonic() + WAIT_S
    while sum(map(len, seen.values())) < count:
        assert time.monotonic() < deadline, f"records did not come in {WAIT_S:.0f} s: {seen}"
        for event in consumer.poll(0.1):
            if isinstance(event, Consumed):
                seen.setdefault(event.partition, []).append(event.offset)
    return seen


@each_client
@pytest.mark.parametrize("by_itself", [False, True], ids=["by hand", "by itself"])
def test_committed_offsets_survive_a_kill(broker: Peer, flavour: Flavour, *, by_itself: bool) -> None:
    produce(broker, 10)
    settings = membership(broker, flavour)
    with group_of_processes(replace(settings, auto_commit_ms=100) if by_itself else settings) as group:
        group.start()
        everything = dict.fromkeys(range(PARTITIONS), 10)
        wait_until(lambda: committed(broker) == everything, "the commits")
        broker.kill()
    broker.start()
    assert committed(broker) == everything
    produce(broker, 5)
    successor = join(settings)
    try:
        expected = {(TOPIC, index): list(range(10, 15)) for index in everything}
        assert consume(successor, 5 * PARTITIONS) == expected
    finally:
        successor.close()


@each_client
def test_a_group_goes_on_when_its_broker_comes_back(broker: Peer, flavour: Flavour) -> None:
    partitions = [(TOPIC, index) for index in range(PARTITIONS)]
    with (
        group_of_processes(membership(broker, flavour)) as group,
        traffic(broker.bootstrap, TOPIC, PARTITIONS) as records,
    ):
        group.start()
        group.start()
        group.wait_until_stable(partitions)
        wait_until(lambda: all(member.values for member in group.members), "not every member has consumed")
        broker.kill()
        broker.start()
        before = len(records.acknowledged)
        wait_until(lambda: len(records.acknowledged) > before + 100, "no records are acknowledged after the restart")
        group.kill(group.members[0])
        group.start()
        group.wait_until_stable(partitions)
        sent = records.stop()
        group.wait_for(sent)
    group.check(sent)


def test_a_loading_coordinator_answers_loading_or_completely(broker: Peer) -> None:
    """From the first answer on: never that nothing was committed."""
    groups = [f"group-{number}" for number in range(50)]

    async def commit() -> None:
        for group in groups:
            async with speaking(broker.bootstrap, group, TOPIC) as say:
                for round_number in range(20):
                    codes = await say.commit_all("", -1, {0: (round_number, "m" * 2000), 1: (round_number + 1, "")})
                    assert codes == {0: ErrorCode.NONE, 1: ErrorCode.NONE}

    async def ask(group: str) -> None:
        async with speaking(broker.bootstrap, group, TOPIC) as say:
            async with asyncio.timeout(WAIT_S):
                while True:
                    code, offsets = await say.fetch()
                    if code == ErrorCode.NONE:
                        assert offsets == {0: 19, 1: 20}
                        return
                    assert code in LOADING
                    assert await say.heartbeat("stranger", 1) in (*LOADING, ErrorCode.UNKNOWN_MEMBER_ID)

    async def ask_all() -> None:
        await asyncio.gather(*map(ask, groups))

    # A client's question makes the topic of groups.
    consumer = join(membership(broker, A_CLIENT_EACH[0]))
    consumer.committed((TOPIC, 0))
    consumer.close()
    asyncio.run(commit())
    broker.kill()
    broker.start()
    asyncio.run(ask_all())
