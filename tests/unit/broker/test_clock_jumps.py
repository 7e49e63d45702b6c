"""The wall clock of a broker is set while it works, forward and back: what is under way goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.clock import SystemClock
from ottla.base.error_codes import ErrorCode
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataTopic
from support.brokers import Client, with_client
from support.brokers.classic_group import QUICK, stable
from support.brokers.transactions import NEW, OLD, TransactionalProducer, values_in
from support.waiting import until

DAY_MS = 86_400_000
NONE = ErrorCode.NONE


class WrongClock(SystemClock):
    """Wrong by `error_ms`. Time passes as always."""

    error_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.error_ms


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> WrongClock:
    """Of the broker of the test."""
    clock = WrongClock()
    monkeypatch.setattr("support.brokers.SystemClock", lambda: clock)
    return clock


@pytest.mark.parametrize("jump_ms", [DAY_MS, -DAY_MS])
@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_transaction_goes_on(tmp_path: Path, clock: WrongClock, jump_ms: int, version: int) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        partition = client.broker.replicas.get("orders", 0)
        assert partition is not None
        log = partition.log
        assert log is not None
        producer = TransactionalProducer(client, version=version)
        assert await producer.init() is NONE
        expected = []
        for number in range(3):
            if version < NEW:
                assert await producer.add("orders", 0) is NONE
            assert await producer.produce(b"%d before" % number) is NONE
            clock.error_ms += jump_ms
            assert await producer.produce(b"%d after" % number) is NONE
            assert await producer.end(committed=number != 1) is NONE
            await until(lambda: log.first_unstable_offset is None, "the transaction is not ended")
            if number != 1:
                expected += [b"%d before" % number, b"%d after" % number]
        assert await values_in(client) == expected

    with_client(tmp_path, work)


@pytest.mark.parametrize("jump_ms", [DAY_MS, -DAY_MS])
def test_members_and_waiting_fetches_stay(tmp_path: Path, clock: WrongClock, jump_ms: int) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        join = await stable(client)
        clock.error_ms += jump_ms
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        fetch = FetchRequest(
            max_wait_ms=50, min_bytes=1, max_bytes=1000, topics=[FetchTopic(topic="orders", partitions=[asked])]
        )
        client.send(fetch, 11)
        clock.error_ms -= 2 * jump_ms
        answer = await client.answer(FetchResponse, 11)
        assert answer.responses[0].partitions[0].error_code == NONE
        beat = HeartbeatRequest(group_id="g", generation_id=join.generation_id, member_id=join.member_id)
        assert (await client.ask(beat, HeartbeatResponse, 4)).error_code == NONE
        topics = MetadataRequest(topics=[MetadataTopic(name="orders")])
        (found,) = (await client.ask(topics, MetadataResponse, 9)).topics
        assert (found.error_code, found.partitions[0].leader_id) == (NONE, 1)

    with_client(tmp_path, work, **QUICK)
