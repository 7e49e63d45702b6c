"""Produce: what is appended, what is refused, and when it is answered."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from brokers import Client, batch_of, with_client
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import random_uuid
from ottla.wire.messages.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)

VERSION = 12


def request(
    client: Client,
    records: bytes | None,
    *,
    topic: str = "orders",
    index: int = 0,
    acks: int = -1,
    timeout_ms: int = 20_000,
    transactional_id: str | None = None,
) -> ProduceRequest:
    known = client.broker.metadata.topic(topic)
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        transactional_id=transactional_id,
        topic_data=[
            ProduceTopic(
                name=topic,
                topic_id=known.topic_id if known else random_uuid(),
                partition_data=[ProducePartition(index=index, records=records)],
            )
        ],
    )


async def produce(client: Client, asked: ProduceRequest, version: int = VERSION) -> ProducePartitionResponse:
    response = await client.ask(asked, ProduceResponse, version)
    return response.responses[0].partition_responses[0]


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_appends(tmp_path: Path, version: int) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        for expected in (0, 2):
            answer = await produce(client, request(client, batch_of(b"a", b"b")), version)
            assert (answer.error_code, answer.base_offset) == (0, expected)

    with_client(tmp_path, work)


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ({"topic": "nothing"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"index": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"index": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"acks": 2}, ErrorCode.INVALID_REQUIRED_ACKS),
        ({"acks": -2}, ErrorCode.INVALID_REQUIRED_ACKS),
        ({"records": None}, ErrorCode.INVALID_RECORD),
        ({"records": b""}, ErrorCode.INVALID_RECORD),
        (
            {"records": b"garbage that is no batch of records at all, not even of an old format"},
            ErrorCode.CORRUPT_MESSAGE,
        ),
        ({"records": batch_of(b"x" * 3000)}, ErrorCode.MESSAGE_TOO_LARGE),
        ({"records": batch_of(b"a")[:-1] + b"b"}, ErrorCode.CORRUPT_MESSAGE),
        ({"records": batch_of(b"a", control=True)}, ErrorCode.INVALID_RECORD),
    ],
)
def test_what_cannot_be_appended_is_refused(tmp_path: Path, what: dict[str, object], code: ErrorCode) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", max_message_bytes="2000")
        given: dict[str, object] = {"records": batch_of(b"a"), **what}
        answer = await produce(client, request(client, **given))  # type: ignore[arg-type]
        assert ErrorCode.of(answer.error_code) is code
        assert answer.base_offset == -1
        partition = client.broker.replicas.get("orders", 0)
        assert partition is not None
        assert partition.high_watermark == 0
        assert (await produce(client, request(client, batch_of(b"fine")))).base_offset == 0
        assert client.broker.request_stats.api(ProduceRequest.api_key).errors == {code: 1}

    with_client(tmp_path, work)


def test_the_topics_of_coordinators_are_not_for_clients(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("__consumer_offsets")
        answer = await produce(client, request(client, batch_of(b"a"), topic="__consumer_offsets"))
        assert ErrorCode.of(answer.error_code) is ErrorCode.INVALID_TOPIC_EXCEPTION
        await client.create_topic("__mine")
        assert (await produce(client, request(client, batch_of(b"a"), topic="__mine"))).error_code == 0

    with_client(tmp_path, work)


def test_an_unknown_topic_id_is_told(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        answer = await produce(client, request(client, batch_of(b"a"), topic="nothing"), 13)
        assert ErrorCode.of(answer.error_code) is ErrorCode.UNKNOWN_TOPIC_ID

    with_client(tmp_path, work)


def test_a_record_without_a_key_is_named_on_a_compacted_topic(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", cleanup_policy="compact")
        answer = await produce(client, request(client, batch_of(b"a")))
        assert ErrorCode.of(answer.error_code) is ErrorCode.INVALID_RECORD
        assert [each.batch_index for each in answer.record_errors] == [0]
        assert "has no key" in (answer.error_message or "")

    with_client(tmp_path, work)


def test_without_acknowledgement_nothing_is_answered(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        client.send(request(client, batch_of(b"a"), acks=0), VERSION)
        assert not client.is_answered
        assert (await produce(client, request(client, batch_of(b"b"), acks=1))).base_offset == 1
        assert not client.connection.is_closed
        client.send(request(client, batch_of(b"a"), acks=0, topic="nothing"), VERSION)
        assert client.connection.is_closed

    with_client(tmp_path, work)


def test_a_producers_duplicate_is_answered_as_the_first_time(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        first = batch_of(b"a", producer_id=5, producer_epoch=0, base_sequence=0)
        second = batch_of(b"b", producer_id=5, producer_epoch=0, base_sequence=1)
        offsets = [(await produce(client, request(client, each))).base_offset for each in (first, second, first)]
        assert offsets == [0, 1, 0]
        gap = batch_of(b"c", producer_id=5, producer_epoch=0, base_sequence=7)
        answer = await produce(client, request(client, gap))
        assert ErrorCode.of(answer.error_code) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    with_client(tmp_path, work)


def test_acks_of_all_wait_for_the_replicas_in_sync(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        partition = client.broker.replicas.get("orders", 0)
        assert partition is not None
        partition.lead(leader_epoch=0, isr=(1, 2), replicas=(1, 2))
        client.send(request(client, batch_of(b"a")), VERSION)
        await asyncio.sleep(0)
        assert not client.is_answered
        assert len(client.broker.replicas.produces) == 1
        partition.lead(leader_epoch=0, isr=(1,), replicas=(1, 2))
        answer = (await client.answer(ProduceResponse, VERSION)).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, 0)
        assert len(client.broker.replicas.produces) == 0

    with_client(tmp_path, work)


def test_replicas_that_do_not_come_in_time_are_told_as_a_timeout(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        partition = client.broker.replicas.get("orders", 0)
        assert partition is not None
        partition.lead(leader_epoch=0, isr=(1, 2), replicas=(1, 2))
        answer = await produce(client, request(client, batch_of(b"a"), timeout_ms=1))
        assert ErrorCode.of(answer.error_code) is ErrorCode.REQUEST_TIMED_OUT
        answer = await produce(client, request(client, batch_of(b"a"), timeout_ms=1, acks=1))
        assert (answer.error_code, answer.base_offset) == (0, 1)

    with_client(tmp_path, work)


def test_a_topic_that_goes_away_answers_who_waits(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        partition = client.broker.replicas.get("orders", 0)
        assert partition is not None
        partition.lead(leader_epoch=0, isr=(1, 2), replicas=(1, 2))
        client.send(request(client, batch_of(b"a")), VERSION)
        await client.broker.controller.delete_topic("orders")
        answer = (await client.answer(ProduceResponse, VERSION)).responses[0].partition_responses[0]
        assert ErrorCode.of(answer.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    with_client(tmp_path, work)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_topic_that_wants_every_record_on_disk_has_it_there(tmp_path: Path, acks: int) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", flush_messages="1")
        answer = await produce(client, request(client, batch_of(b"a"), acks=acks))
        assert answer.error_code == 0
        assert client.connection.reserved == 1
        partition = client.broker.replicas.get("orders", 0)
        assert partition is not None
        assert partition.log is not None
        assert partition.log.recovery_point == 1

    with_client(tmp_path, work)


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_that_was_made_again_is_not_taken_for_the_former_one(tmp_path: Path, version: int) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        former = request(client, batch_of(b"a"))
        assert (await produce(client, former, version)).base_offset == 0
        assert (await produce(client, former, version)).base_offset == 1
        await client.broker.controller.delete_topic("orders")
        gone = ErrorCode.UNKNOWN_TOPIC_ID if version > 12 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await produce(client, former, version)).error_code == gone
        await client.create_topic("orders")
        answer = await produce(client, request(client, batch_of(b"a")), version)
        assert (answer.error_code, answer.base_offset) == (0, 0)
        if version > 12:
            assert (await produce(client, former, version)).error_code == gone
        else:
            assert (await produce(client, former, version)).base_offset == 1

    with_client(tmp_path, work)
