"""Batches that are costly to decompress: the loop validates the first one of a turn, threads the others."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.broker.producing import held_produce
from ottla.log.validation import PreparedBatches, prepare
from ottla.records import BatchView, Compression
from ottla.wire.messages.produce import ProducePartition, ProduceRequest, ProduceResponse, ProduceTopic
from support.brokers import Client, batch_of, with_client
from support.logs.batches import records_of, values_of

VERSION = 12


def costly_value(number: int) -> bytes:
    return random.Random(number).randbytes(70_000)


def costly(number: int, **options: Any) -> bytes:
    return batch_of(costly_value(number), compression=Compression.ZSTD, **options)


def request(records: bytes, index: int = 0, acks: int = 1) -> ProduceRequest:
    data = ProduceTopic(name="orders", partition_data=[ProducePartition(index=index, records=records)])
    return ProduceRequest(acks=acks, timeout_ms=20_000, topic_data=[data])


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads that validated a batch."""
    names: list[str] = []

    def prepare_noting(*arguments: Any, **options: Any) -> PreparedBatches:
        names.append(threading.current_thread().name)
        return prepare(*arguments, **options)

    monkeypatch.setattr(held_produce, "prepare", prepare_noting)
    return names


async def answers(client: Client, count: int) -> list[tuple[int, int]]:
    """The error codes and base offsets of the next answers."""
    found = []
    for _ in range(count):
        response = await client.answer(ProduceResponse, VERSION)
        partition = response.responses[0].partition_responses[0]
        found.append((partition.error_code, partition.base_offset))
    return found


def values_in(client: Client, index: int) -> list[bytes | None]:
    partition = client.broker.replicas.get("orders", index)
    assert partition is not None
    assert partition.log is not None
    found = partition.log.read(0, 2**20).slice
    assert found is not None
    return values_of(records_of(found.read()))


@pytest.mark.parametrize("acks", [1, -1])
def test_the_second_costly_batch_of_a_turn_is_validated_in_a_thread(
    tmp_path: Path, in_threads: list[str], acks: int
) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", 2)
        client.send(request(costly(1), 0, acks), VERSION)
        assert client.is_answered
        client.send(request(costly(2), 1, acks), VERSION)
        assert list(client.broker.held_produces.queues) == [client.broker.replicas.get("orders", 1)]
        assert await answers(client, 2) == [(0, 0), (0, 0)]
        assert [name.startswith("ottla-validation") for name in in_threads] == [True]
        assert (values_in(client, 0), values_in(client, 1)) == ([costly_value(1)], [costly_value(2)])
        assert not client.broker.held_produces.queues
        assert client.broker.held_produces.held_bytes == 0

    with_client(tmp_path, work)


def test_costly_batches_that_come_alone_are_validated_in_the_loop(tmp_path: Path, in_threads: list[str]) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        for number in range(3):
            client.send(request(costly(number)), VERSION)
            assert client.is_answered
            assert await answers(client, 1) == [(0, number)]
            await asyncio.sleep(0)  # the turn ends
        assert not in_threads

    with_client(tmp_path, work)


@pytest.mark.parametrize(
    "records",
    [costly(2)[:60_000], batch_of(costly_value(2)), batch_of(b"x", compression=Compression.ZSTD)],
    ids=["small", "uncompressed", "tiny"],
)
def test_other_batches_are_validated_in_the_loop(tmp_path: Path, in_threads: list[str], records: bytes) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", 2)
        client.send(request(costly(1)), VERSION)
        client.send(request(records, 1), VERSION)
        await answers(client, 2)
        assert not in_threads

    with_client(tmp_path, work)


def test_the_batches_of_a_partition_keep_their_order(tmp_path: Path, in_threads: list[str]) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        producer = {"producer_id": 5, "producer_epoch": 0}
        values = [*(costly_value(number) for number in range(4)), b"small", b"small again"]
        for number, value in enumerate(values):
            codec = Compression.ZSTD if len(value) > 100 else Compression.NONE
            client.send(request(batch_of(value, compression=codec, base_sequence=number, **producer)), VERSION)
        assert sorted(await answers(client, 6)) == [(0, number) for number in range(6)]
        assert values_in(client, 0) == values
        assert len(in_threads) == 3

    with_client(tmp_path, work)


def test_what_the_loop_refuses_is_refused(tmp_path: Path, in_threads: list[str]) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", 2)
        damaged = bytearray(costly(1))
        damaged[-100] ^= 1  # the CRC is wrong
        garbage = bytearray(costly(2))
        garbage[61:] = random.Random(3).randbytes(len(garbage) - 61)
        BatchView(garbage).refresh_crc()
        expected = [(ErrorCode.CORRUPT_MESSAGE, -1), (ErrorCode.INVALID_RECORD, -1)]
        for records, outcome in zip((bytes(damaged), bytes(garbage)), expected, strict=True):
            client.send(request(records), VERSION)
            client.send(request(records, 1), VERSION)
            assert await answers(client, 2) == [outcome] * 2
        assert len(in_threads) == 2
        client.send(request(costly(3), 1), VERSION)
        assert await answers(client, 1) == [(0, 0)]

    with_client(tmp_path, work)


def test_it_is_answered_when_its_records_are_on_the_disk(tmp_path: Path, in_threads: list[str]) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", 2, flush_messages="1")
        for index in (0, 1):
            client.send(request(costly(index), index, -1), VERSION)
        assert await answers(client, 2) == [(0, 0), (0, 0)]
        assert len(in_threads) == 1
        for index in (0, 1):
            partition = client.broker.replicas.get("orders", index)
            assert partition is not None
            assert partition.log is not None
            assert partition.log.recovery_point == partition.high_watermark == 1

    with_client(tmp_path, work)
