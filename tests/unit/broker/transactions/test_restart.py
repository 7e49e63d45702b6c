"""What a broker that starts again does with transactions that it had."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from ottla.base.error_codes import ErrorCode
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from support.brokers import Client, broker_in_loop
from support.brokers.transactions import NEW, OLD, TransactionalProducer, values_in
from support.waiting import until

NONE = ErrorCode.NONE
FEW = {"transaction_state_log_num_partitions": "2", "offsets_topic_num_partitions": "2"}
Step = Callable[[Client], Coroutine[Any, Any, None]]


def in_turn(place: Path, *steps: Step) -> None:
    """Each step with a broker that is started for it, on the same data."""

    async def run() -> None:
        for step in steps:
            async with broker_in_loop(place, **FEW) as broker:
                await asyncio.wait_for(step(Client(broker)), 60)

    asyncio.run(run())


def unstable(client: Client) -> int | None:
    partition = client.broker.replicas.get("orders", 0)
    assert partition is not None
    assert partition.log is not None
    return partition.log.first_unstable_offset


async def began(client: Client, version: int) -> TransactionalProducer:
    producer = TransactionalProducer(client, version=version)
    assert await producer.init() is NONE
    if version < NEW:
        assert await producer.add("orders", 0) is NONE
    return producer


def test_a_prepared_transaction_is_completed(tmp_path: Path) -> None:
    """It stopped after the decision, before the markers."""

    async def prepare(client: Client) -> None:
        await client.create_topic("orders")
        producer = await began(client, NEW)
        assert await producer.produce(b"a") is NONE
        await client.broker.transactions.sender.close()
        assert await producer.end() is NONE
        await asyncio.sleep(0)
        assert unstable(client) == 0

    async def complete(client: Client) -> None:
        await until(lambda: unstable(client) is None, "the markers are not written")
        assert await values_in(client) == [b"a"]
        producer = TransactionalProducer(client, version=NEW)
        assert await producer.init() is NONE
        assert await producer.produce(b"b") is NONE
        assert await producer.end() is NONE
        await until(lambda: unstable(client) is None, "the second transaction does not end")
        assert await values_in(client) == [b"a", b"b"]

    in_turn(tmp_path, prepare, complete)


def test_an_open_transaction_goes_on(tmp_path: Path) -> None:
    producers: list[TransactionalProducer] = []

    async def begin(client: Client) -> None:
        await client.create_topic("orders")
        producers.append(await began(client, OLD))
        assert await producers[0].produce(b"a") is NONE

    async def end(client: Client) -> None:
        assert unstable(client) == 0
        assert await values_in(client) == []
        producer = producers[0]
        producer.client = client
        assert await producer.produce(b"b") is NONE
        assert await producer.end() is NONE
        await until(lambda: unstable(client) is None, "the transaction does not end")
        assert await values_in(client) == [b"a", b"b"]

    async def look(client: Client) -> None:
        assert unstable(client) is None
        assert await values_in(client) == [b"a", b"b"]

    in_turn(tmp_path, begin, end, look)


def test_records_of_an_open_transaction_can_be_deleted(tmp_path: Path) -> None:
    async def delete(client: Client) -> None:
        await client.create_topic("orders")
        producer = await began(client, NEW)
        for value in (b"a", b"b", b"c"):
            assert await producer.produce(value) is NONE
        asked = DeleteRecordsPartition(partition_index=0, offset=2)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="orders", partitions=[asked])], timeout_ms=10_000
        )
        answer = (await client.ask(request, DeleteRecordsResponse, 2)).topics[0].partitions[0]
        assert (answer.error_code, answer.low_watermark) == (0, 2)
        assert unstable(client) == 2  # it holds the last stable offset back at the first record that is left
        assert await producer.produce(b"d") is NONE
        assert await producer.end() is NONE
        await until(lambda: unstable(client) is None, "the transaction does not end")

    in_turn(tmp_path, delete)
