"""Fetch: what is read, how much of it, when it is answered, and what a session leaves out."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from brokers import Client, batch_of, with_client
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import random_uuid
from ottla.log.append_origin import AppendOrigin
from ottla.records import iter_records
from ottla.records.control import encode_transaction_marker
from ottla.replication.partition import Partition
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

VERSION = 17


def partition_of(client: Client, topic: str = "orders", index: int = 0) -> Partition:
    partition = client.broker.replicas.get(topic, index)
    assert partition is not None
    return partition


def append(client: Client, *values: bytes, topic: str = "orders", index: int = 0, **options: object) -> None:
    partition_of(client, topic, index).append(bytearray(batch_of(*values, **options)), all_replicas=False)


def asked(offset: int = 0, *, index: int = 0, max_bytes: int = 1 << 20, **fields: int) -> FetchPartition:
    return FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes, **fields)  # type: ignore[arg-type]


def request(client: Client, *partitions: FetchPartition, topic: str = "orders", **fields: object) -> FetchRequest:
    known = client.broker.metadata.topic(topic)
    topic_id = known.topic_id if known else random_uuid()
    topics = [FetchTopic(topic=topic, topic_id=topic_id, partitions=list(partitions))] if partitions else []
    settings: dict[str, object] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 26, **fields}
    return FetchRequest(topics=topics, **settings)  # type: ignore[arg-type]


async def fetch(client: Client, asking: FetchRequest, version: int = VERSION) -> FetchPartitionResponse:
    return only(await client.ask(asking, FetchResponse, version))


def only(response: FetchResponse) -> FetchPartitionResponse:
    assert ErrorCode.of(response.error_code) is ErrorCode.NONE
    (topic,) = response.responses
    (answer,) = topic.partitions
    return answer


def values(answer: FetchPartitionResponse) -> list[bytes | None]:
    return [record.value for record in iter_records(bytes(answer.records or b""))]


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_reads(tmp_path: Path, version: int) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        append(client, b"a", b"b")
        answer = await fetch(client, request(client, asked()), version)
        assert values(answer) == [b"a", b"b"]
        assert (answer.error_code, answer.high_watermark) == (0, 2)

    with_client(tmp_path, work)


@pytest.mark.parametrize("size", [10, 40_000, 500_000])
def test_records_of_any_size_are_read_whole(tmp_path: Path, size: int) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        append(client, b"x" * size)
        append(client, b"y" * size)
        answer = await fetch(client, request(client, asked(max_bytes=1)))
        assert values(answer) == [b"x" * size]
        assert values(await fetch(client, request(client, asked(1)))) == [b"y" * size]

    with_client(tmp_path, work)


@pytest.mark.parametrize(
    ("offset", "fields", "topic", "version", "code"),
    [
        (5, {}, "orders", 17, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-1, {}, "orders", 17, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, {"index": 7}, "orders", 17, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, {}, "nothing", 12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, {}, "nothing", 17, ErrorCode.UNKNOWN_TOPIC_ID),
        (0, {"current_leader_epoch": 9}, "orders", 17, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_what_cannot_be_read_is_told_at_once(
    tmp_path: Path, offset: int, fields: dict[str, int], topic: str, version: int, code: ErrorCode
) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        append(client, b"a")
        asking = request(client, asked(offset, **fields), topic=topic, max_wait_ms=20_000)
        answer = await fetch(client, asking, version)
        assert ErrorCode.of(answer.error_code) is code
        assert answer.high_watermark == -1

    with_client(tmp_path, work)


def test_a_fetch_waits_for_records_and_is_woken_by_them(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", partitions=3)
        partitions = [asked(index=index) for index in range(3)]
        client.send(request(client, *partitions, max_wait_ms=20_000), VERSION)
        await asyncio.sleep(0)
        assert not client.is_answered
        append(client, b"a", index=1)
        append(client, b"b", index=1)
        response = await client.answer(FetchResponse, VERSION)
        found = {answer.partition_index: values(answer) for answer in response.responses[0].partitions}
        assert found == {0: [], 1: [b"a", b"b"], 2: []}
        assert len(client.broker.replicas.fetches) == 0

    with_client(tmp_path, work)


def test_a_fetch_waits_for_as_many_bytes_as_it_wants(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", partitions=2)
        size = len(batch_of(b"a"))
        asking = request(client, asked(index=0), asked(index=1), min_bytes=3 * size, max_wait_ms=20_000)
        client.send(asking, VERSION)
        for index in (0, 1):
            append(client, b"a", index=index)
            await asyncio.sleep(0.01)
            assert not client.is_answered
        append(client, b"b", index=0)
        response = await client.answer(FetchResponse, VERSION)
        assert [values(answer) for answer in response.responses[0].partitions] == [[b"a", b"b"], [b"a"]]

    with_client(tmp_path, work)


def test_a_fetch_whose_time_is_over_is_answered_with_what_there_is(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        append(client, b"a")
        answer = await fetch(client, request(client, asked(), min_bytes=1 << 20, max_wait_ms=5))
        assert values(answer) == [b"a"]

    with_client(tmp_path, work)


def test_a_deleted_topic_wakes_a_fetch(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        client.send(request(client, asked(), max_wait_ms=20_000), VERSION)
        await client.broker.controller.delete_topic("orders")
        answer = only(await client.answer(FetchResponse, VERSION))
        assert ErrorCode.of(answer.error_code) is ErrorCode.UNKNOWN_TOPIC_ID

    with_client(tmp_path, work)


def test_the_whole_answer_is_bounded_and_still_makes_progress(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", partitions=3)
        for index in range(3):
            append(client, b"x" * 1000, index=index)
        asking = request(client, *(asked(index=index) for index in range(3)), max_bytes=1)
        response = await client.ask(asking, FetchResponse, VERSION)
        assert [len(values(answer)) for answer in response.responses[0].partitions] == [1, 0, 0]

    with_client(tmp_path, work)


def test_readers_of_committed_records_stop_where_a_transaction_is_open(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        append(client, b"before")
        append(client, b"open", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        append(client, b"behind")
        asking = request(client, asked(), isolation_level=1)
        answer = await fetch(client, asking)
        assert values(answer) == [b"before"]
        assert (answer.high_watermark, answer.last_stable_offset, answer.aborted_transactions) == (3, 1, [])
        assert values(await fetch(client, request(client, asked()))) == [b"before", b"open", b"behind"]
        client.send(request(client, asked(1), isolation_level=1, max_wait_ms=20_000), VERSION)
        partition = partition_of(client)
        assert partition.log is not None
        marker = encode_transaction_marker(
            producer_id=1, producer_epoch=0, committed=False, timestamp_ms=1, coordinator_epoch=0
        )
        partition.log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
        partition.lead(leader_epoch=0, isr=(1,), replicas=(1,))
        answer = only(await client.answer(FetchResponse, VERSION))
        assert [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()] == [(1, 1)]
        assert answer.last_stable_offset == 4

    with_client(tmp_path, work)


def test_a_reader_whose_epoch_ended_elsewhere_is_told_where(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        append(client, b"a")
        partition_of(client).lead(leader_epoch=4, isr=(1,), replicas=(1,))
        append(client, b"b")
        answer = await fetch(client, request(client, asked(2, last_fetched_epoch=2)))
        assert answer.diverging_epoch is not None
        assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 1)
        answer = await fetch(client, request(client, asked(2, last_fetched_epoch=4)))
        assert answer.diverging_epoch is None

    with_client(tmp_path, work)


# --- sessions -------------------------------------------------------------------------------------------------------


async def begin(client: Client, *partitions: FetchPartition) -> int:
    response = await client.ask(request(client, *partitions, session_epoch=0), FetchResponse, VERSION)
    assert response.session_id > 0
    return response.session_id


def test_a_session_tells_only_what_is_new(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", partitions=3)
        append(client, b"a", index=0)
        session_id = await begin(client, *(asked(index=index) for index in range(3)))
        # The client has read the first record, and says so.
        response = await client.ask(
            request(client, asked(1, index=0), session_id=session_id, session_epoch=1), FetchResponse, VERSION
        )
        assert response.responses == []
        append(client, b"b", index=2)
        response = await client.ask(request(client, session_id=session_id, session_epoch=2), FetchResponse, VERSION)
        assert [(answer.partition_index, values(answer)) for answer in response.responses[0].partitions] == [
            (2, [b"b"])
        ]

    with_client(tmp_path, work)


def test_what_a_session_forgets_is_not_read(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", partitions=2)
        session_id = await begin(client, asked(index=0), asked(index=1))
        append(client, b"a", index=0)
        append(client, b"b", index=1)
        topic = client.broker.metadata.topic("orders")
        assert topic is not None
        forgetting = request(
            client,
            session_id=session_id,
            session_epoch=1,
            forgotten_topics_data=[ForgottenTopic(topic="orders", topic_id=topic.topic_id, partitions=[0])],
        )
        answer = only(await client.ask(forgetting, FetchResponse, VERSION))
        assert (answer.partition_index, values(answer)) == (1, [b"b"])

    with_client(tmp_path, work)


def test_a_session_that_is_not_there_or_elsewhere_is_told(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        session_id = await begin(client, asked())
        for given, epoch, code in (
            (session_id + 1, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            (session_id, 5, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        ):
            asking = request(client, asked(), session_id=given, session_epoch=epoch)
            response = await client.ask(asking, FetchResponse, VERSION)
            assert ErrorCode.of(response.error_code) is code
        asking = request(client, asked(), session_id=session_id, session_epoch=1)
        response = await client.ask(asking, FetchResponse, 12)
        assert ErrorCode.of(response.error_code) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR

    with_client(tmp_path, work)


def test_a_final_fetch_ends_its_session(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        session_id = await begin(client, asked())
        assert len(client.broker.fetch_sessions) == 1
        response = await client.ask(
            request(client, asked(), session_id=session_id, session_epoch=-1), FetchResponse, VERSION
        )
        assert response.session_id == 0
        assert len(client.broker.fetch_sessions) == 0

    with_client(tmp_path, work)


def test_without_places_fetches_go_on_without_sessions(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        append(client, b"a")
        for _ in range(2):
            response = await client.ask(request(client, asked(), session_epoch=0), FetchResponse, VERSION)
            assert response.session_id == 0
            assert values(only(response)) == [b"a"]

    with_client(tmp_path, work, max_incremental_fetch_session_cache_slots="0")
