"""Produce: what is appended, what is refused, and when it is answered."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import random_uuid
from ottla.broker.metadata.metadata_cache import BrokerEndpoint
from ottla.broker.producing import held_produce
from ottla.controller.state import PartitionState, TopicState
from ottla.controller.wanted_topics import WantedTopic
from ottla.log import partition_log, record_validation
from ottla.log.partition_log import PartitionLog
from ottla.log.validation import AppendInfo, PreparedBatches, prepare
from ottla.records import Compression, compress, iter_batches
from ottla.records.record_walk import walker
from ottla.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsEntry,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.messages.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from support.brokers import Client, batch_of, with_client
from support.logs.batches import old_message, records_of, values_of
from support.logs.record_bytes import record_bytes, sealed
from support.replication.roles import follow, lead

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
    ("version", "acks", "partition_count"),
    [(3, -1, 1), (8, 1, 3), (VERSION, -1, 1), (VERSION, -1, 3), (13, 1, 3), (VERSION, 0, 1), (13, 0, 2)],
)
def test_a_topic_takes_records_before_its_logs_are_made(
    tmp_path: Path, version: int, acks: int, partition_count: int
) -> None:
    """With acks=0 a refusal would lose the records."""

    async def work(client: Client) -> None:
        await client.broker.controller.create_topics([WantedTopic("orders", partition_count, 1)])
        replicas = client.broker.replicas
        assert len(replicas.expected) == partition_count
        asked = request(client, batch_of(b"a"), acks=acks)
        asked.topic_data[0].partition_data = [
            ProducePartition(index=index, records=batch_of(b"a")) for index in range(partition_count)
        ]
        if acks:
            response = await client.ask(asked, ProduceResponse, version)
            answers = response.responses[0].partition_responses
            assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0)] * partition_count
        else:
            client.send(asked, version)
            assert not client.connection.is_closed
        ends = [partition.log.next_offset for partition in replicas.partitions.values() if partition.log is not None]
        assert ends == [1] * partition_count

    with_client(tmp_path, work)


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ({"topic": "nothing"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"index": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"index": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"acks": 2}, ErrorCode.INVALID_REQUIRED_ACKS),
        ({"acks": -2}, ErrorCode.INVALID_REQUIRED_ACKS),
        ({"acks": 2, "topic": "nothing"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"acks": 2, "records": b""}, ErrorCode.INVALID_RECORD),
        ({"acks": 2, "records": batch_of(b"a")[:-1]}, ErrorCode.INVALID_RECORD),
        ({"acks": 2, "records": batch_of(b"a")[:7]}, ErrorCode.INVALID_RECORD),
        ({"acks": 2, "records": batch_of(b"a") * 2}, ErrorCode.INVALID_RECORD),
        ({"acks": 2, "records": bytes(old_message(1, b"a"))}, ErrorCode.INVALID_RECORD),
        ({"acks": 2, "records": batch_of(b"a")[:16] + b"\x03" + batch_of(b"a")[17:]}, ErrorCode.CORRUPT_MESSAGE),
        ({"records": batch_of(b"a") + bytes(12)}, ErrorCode.CORRUPT_MESSAGE),
        ({"records": batch_of(b"a") + batch_of(b"a")[:16] + b"\x03"}, ErrorCode.CORRUPT_MESSAGE),
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


@pytest.mark.parametrize(
    ("records", "code", "is_told"),
    [
        (batch_of(b"a", control=True), ErrorCode.INVALID_RECORD, True),
        (
            batch_of(b"a", producer_id=5, producer_epoch=0, base_sequence=7),
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            True,
        ),
        (batch_of(b"a", producer_id=5, base_sequence=0), ErrorCode.INVALID_RECORD, True),
        (batch_of(b"a")[:-4], ErrorCode.INVALID_RECORD, False),
        (batch_of(b"a") * 2, ErrorCode.INVALID_RECORD, False),
        (batch_of(b"a")[:-1] + b"b", ErrorCode.CORRUPT_MESSAGE, False),
        (batch_of(b"x" * 3000), ErrorCode.MESSAGE_TOO_LARGE, False),
        (b"", ErrorCode.INVALID_RECORD, False),
    ],
)
def test_a_refusal_tells_where_the_log_starts_if_that_was_looked_at(
    tmp_path: Path, records: bytes, code: ErrorCode, is_told: bool
) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", max_message_bytes="2000")
        first = batch_of(b"a", b"b", producer_id=5, producer_epoch=0, base_sequence=0)
        assert not (await produce(client, request(client, first))).error_code
        partition = client.broker.replicas.get("orders", 0)
        assert partition is not None
        partition.delete_records(1)
        answer = await produce(client, request(client, records))
        assert ErrorCode.of(answer.error_code) is code
        assert (answer.base_offset, answer.log_start_offset) == (-1, 1 if is_told else -1)

    with_client(tmp_path, work)


def test_zstd_is_refused_in_versions_that_do_not_have_it(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        records = batch_of(b"a", compression=Compression.ZSTD)
        for version in (3, 6, 7, 9):
            answer = await produce(client, request(client, records), version)
            code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version < 7 else ErrorCode.NONE
            assert ErrorCode.of(answer.error_code) is code
        answer = await produce(client, request(client, records * 2), 6)
        assert ErrorCode.of(answer.error_code) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

    with_client(tmp_path, work)


def test_records_of_an_old_format_are_refused(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        answer = await produce(client, request(client, bytes(old_message(1, b"a"))))
        assert ErrorCode.of(answer.error_code) is ErrorCode.INVALID_RECORD
        assert "old format 1" in (answer.error_message or "")

    with_client(tmp_path, work)


def test_the_topics_of_coordinators_are_not_for_clients(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("__consumer_offsets")
        answer = await produce(client, request(client, batch_of(b"a"), topic="__consumer_offsets"))
        assert ErrorCode.of(answer.error_code) is ErrorCode.INVALID_TOPIC_EXCEPTION
        await client.create_topic("__mine")
        assert (await produce(client, request(client, batch_of(b"a"), topic="__mine"))).error_code == 0

    with_client(tmp_path, work)


def test_an_unknown_topic_id_is_reported(tmp_path: Path) -> None:
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
        lead(partition, leader_epoch=0, isr=(1, 2), replicas=(1, 2))
        client.send(request(client, batch_of(b"a")), VERSION)
        await asyncio.sleep(0)
        assert not client.is_answered
        assert len(client.broker.replicas.produces) == 1
        lead(partition, leader_epoch=0, isr=(1,), replicas=(1, 2))
        answer = (await client.answer(ProduceResponse, VERSION)).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, 0)
        assert len(client.broker.replicas.produces) == 0

    with_client(tmp_path, work)


def test_nothing_waits_for_replicas_on_behalf_of_a_client_that_left(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        partition = client.broker.replicas.get("orders", 0)
        assert partition is not None
        lead(partition, leader_epoch=0, isr=(1, 2), replicas=(1, 2))
        client.send(request(client, batch_of(b"a")), VERSION)
        assert len(client.broker.replicas.produces) == 1
        client.connection.close()
        assert len(client.broker.replicas.produces) == 0
        lead(partition, leader_epoch=0, isr=(1,), replicas=(1, 2))
        await asyncio.sleep(0)
        assert not client.is_answered

    with_client(tmp_path, work)


def test_replicas_that_do_not_come_in_time_are_reported_as_a_timeout(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        partition = client.broker.replicas.get("orders", 0)
        assert partition is not None
        lead(partition, leader_epoch=0, isr=(1, 2), replicas=(1, 2))
        answer = await produce(client, request(client, batch_of(b"a"), timeout_ms=1))
        assert ErrorCode.of(answer.error_code) is ErrorCode.REQUEST_TIMED_OUT
        answer = await produce(client, request(client, batch_of(b"a"), timeout_ms=1, acks=1))
        assert (answer.error_code, answer.base_offset) == (0, 1)

    with_client(tmp_path, work)


def test_a_topic_that_goes_away_answers_waiting_requests(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        partition = client.broker.replicas.get("orders", 0)
        assert partition is not None
        lead(partition, leader_epoch=0, isr=(1, 2), replicas=(1, 2))
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


# Transactions (see also test_transactions)


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
def test_transactional_records_without_an_id_are_refused_with_the_whole_request(tmp_path: Path, version: int) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", 2)
        records = batch_of(b"a", transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
        asked = request(client, records)
        answer = await produce(client, asked, version)
        assert ErrorCode.of(answer.error_code) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        asked.topic_data[0].partition_data.insert(0, ProducePartition(index=1, records=batch_of(b"plain")))
        response = await client.ask(asked, ProduceResponse, version)
        assert [each.error_code for each in response.responses[0].partition_responses] == [53, 53]
        for index in (0, 1):
            partition = client.broker.replicas.get("orders", index)
            assert partition is not None
            assert partition.log is not None
            assert (partition.log.next_offset, partition.log.last_stable_offset) == (0, 0)

    with_client(tmp_path, work)


def test_other_records_may_come_under_a_transactional_id(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        assert (await produce(client, request(client, batch_of(b"a"), transactional_id="mine"))).base_offset == 0

    with_client(tmp_path, work)


# A partition more than once


def partitions_of(response: ProduceResponse) -> list[tuple[str, list[tuple[int, int, int]]]]:
    return [
        (topic.name, [(each.index, each.error_code, each.base_offset) for each in topic.partition_responses])
        for topic in response.responses
    ]


def test_of_a_partition_that_comes_twice_the_last_batch_counts(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", 2)
        first, second = batch_of(b"a", b"b", b"c"), batch_of(b"d")
        asked = request(client, first)
        asked.topic_data[0].partition_data.append(ProducePartition(index=0, records=second))
        assert partitions_of(await client.ask(asked, ProduceResponse, VERSION)) == [("orders", [(0, 0, 0)])]
        partition = client.broker.replicas.get("orders", 0)
        assert partition is not None
        assert partition.high_watermark == 1
        for topic in request(client, first).topic_data + request(client, second, index=1).topic_data:
            asked.topic_data.append(topic)
        answers = partitions_of(await client.ask(asked, ProduceResponse, VERSION))
        assert answers == [("orders", [(0, 0, 1), (1, 0, 0)])]
        assert partition.high_watermark == 4

    with_client(tmp_path, work)


@pytest.mark.parametrize("is_bad_first", [False, True])
def test_what_comes_before_the_last_batch_of_a_partition_does_not_matter(tmp_path: Path, is_bad_first: bool) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        batches = [batch_of(b"a"), batch_of(b"a", control=True)]
        asked = request(client, batches[is_bad_first])
        asked.topic_data[0].partition_data.append(ProducePartition(index=0, records=batches[not is_bad_first]))
        (answer,) = (await client.ask(asked, ProduceResponse, VERSION)).responses[0].partition_responses
        assert (answer.error_code == 0) == is_bad_first

    with_client(tmp_path, work)


# What is told of bad records


def test_every_bad_record_is_named(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", cleanup_policy="compact")
        answer = await produce(client, request(client, batch_of(b"a", b"b", b"c")))
        assert ErrorCode.of(answer.error_code) is ErrorCode.INVALID_RECORD
        assert [(each.batch_index, each.batch_index_error_message) for each in answer.record_errors] == [
            (index, f"record {index} has no key, but the topic is compacted") for index in range(3)
        ]
        assert (answer.error_message or "").startswith("3 of 3 records are refused")

    with_client(tmp_path, work)


def test_failed_requests_without_acknowledgement_are_not_logged_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        for _ in range(20):
            client.connection.is_closed = False
            client.send(request(client, batch_of(b"a", control=True), acks=0), VERSION)
            assert client.connection.is_closed
        lines = [each.getMessage() for each in caplog.records if "acks=0" in each.getMessage()]
        assert len(lines) == 1
        assert "control records" in lines[0]
        assert not [each for each in caplog.records if each.levelname == "ERROR"]

    with_client(tmp_path, work)


# Large batches


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Batches of more than two records are large; the thread that validates them waits for this."""
    go_on = threading.Event()

    def prepare_then(*arguments: Any, **options: Any) -> PreparedBatches:
        go_on.wait(30)
        return prepare(*arguments, **options)

    monkeypatch.setattr(held_produce, "prepare", prepare_then)
    monkeypatch.setattr(record_validation, "LOOP_RECORDS_MAX", 2)
    monkeypatch.setattr(walker, "kernel", None)
    yield go_on
    go_on.set()


SMALL, LARGE = batch_of(b"x"), batch_of(b"a", b"b", b"c")


async def offsets_answered(client: Client, count: int, version: int = VERSION) -> list[int]:
    found = []
    for _ in range(count):
        response = await client.answer(ProduceResponse, version)
        for answer in response.responses[0].partition_responses:
            assert answer.error_code == 0
            found.append(answer.base_offset)
    return found


@pytest.mark.parametrize("version", [8, 12])
@pytest.mark.parametrize("acks", [1, -1])
def test_a_large_batch_keeps_its_place_among_those_of_its_partition(
    tmp_path: Path, stuck: threading.Event, version: int, acks: int
) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        for records in (SMALL, LARGE, SMALL, LARGE, SMALL):
            client.send(request(client, records, acks=acks), version)
        stuck.set()
        assert await offsets_answered(client, 5, version) == [0, 1, 4, 5, 8]
        assert not client.broker.held_produces.queues
        assert client.broker.held_produces.held_bytes == 0

    with_client(tmp_path, work)


@pytest.mark.parametrize("acks", [1, -1])
def test_batches_that_are_compressed_again_keep_their_order(tmp_path: Path, acks: int) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", compression_type="zstd")
        values = [random.Random(number).randbytes(size) for number, size in enumerate([10, 40_000, 20, 30_000, 50_000])]
        for value in values:
            client.send(request(client, batch_of(value), acks=acks), VERSION)
        assert await offsets_answered(client, 5) == [0, 1, 2, 3, 4]
        partition = client.broker.replicas.get("orders", 0)
        assert partition is not None
        assert partition.log is not None
        found = partition.log.read(0, 2**20).slice
        assert found is not None
        data = found.read()
        assert [each.validate().compression for each in iter_batches(data)] == [Compression.ZSTD] * 5
        assert values_of(records_of(data)) == values
        assert not client.broker.held_produces.queues

    with_client(tmp_path, work)


def test_the_next_batch_is_compressed_while_the_first_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is appended after it, even if it is done before."""
    second_is_done = threading.Event()
    values = [random.Random(number).randbytes(20_000 + number) for number in range(4)]

    def prepare_in_any_order(data: bytearray, **options: Any) -> PreparedBatches:
        if len(data) == len(batch_of(values[0])):
            assert second_is_done.wait(30)
        prepared = prepare(data, **options)
        if len(data) == len(batch_of(values[1])):
            second_is_done.set()
        return prepared

    monkeypatch.setattr(held_produce, "prepare", prepare_in_any_order)
    monkeypatch.setattr("os.cpu_count", lambda: 2)

    async def work(client: Client) -> None:
        await client.create_topic("orders", compression_type="zstd")
        for value in values:
            client.send(request(client, batch_of(value)), VERSION)
        assert await offsets_answered(client, 4) == [0, 1, 2, 3]
        partition = client.broker.replicas.get("orders", 0)
        assert partition is not None
        assert partition.log is not None
        found = partition.log.read(0, 2**20).slice
        assert found is not None
        assert values_of(records_of(found.read())) == values
        assert not client.broker.held_produces.queues
        assert client.broker.held_produces.held_bytes == 0

    with_client(tmp_path, work)


def test_a_batch_that_was_compressed_before_the_config_changed_is_compressed_again(
    tmp_path: Path, stuck: threading.Event
) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", compression_type="zstd")
        values = [random.Random(number).randbytes(20_000) for number in range(3)]
        for value in values:
            client.send(request(client, batch_of(value)), VERSION)
        entry = IncrementalAlterConfigsEntry(name="compression.type", config_operation=0, value="lz4")
        resource = IncrementalAlterConfigsResource(resource_type=2, resource_name="orders", configs=[entry])
        alteration = IncrementalAlterConfigsRequest(resources=[resource])
        client.send(alteration, 1)
        await client.answer(IncrementalAlterConfigsResponse, 1)
        stuck.set()
        assert await offsets_answered(client, 3) == [0, 1, 2]
        partition = client.broker.replicas.get("orders", 0)
        assert partition is not None
        assert partition.log is not None
        found = partition.log.read(0, 2**20).slice
        assert found is not None
        data = found.read()
        assert [each.validate().compression for each in iter_batches(data)] == [Compression.LZ4] * 3
        assert values_of(records_of(data)) == values

    with_client(tmp_path, work)


def test_the_loop_waits_for_the_threads_where_much_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited_for: list[int] = []

    def wait_once(futures: set[Any], *arguments: Any) -> Any:
        waited_for.append(len(futures))
        return wait(futures, *arguments)

    monkeypatch.setattr(held_produce, "wait", wait_once)
    monkeypatch.setattr(held_produce, "_SLOW_AT_BYTES", 50_000)

    async def work(client: Client) -> None:
        await client.create_topic("orders", compression_type="zstd")
        for number in range(5):
            client.send(request(client, batch_of(random.Random(number).randbytes(20_000))), VERSION)
        assert waited_for == [2] * 3  # with the third batch and those that follow, for the first two
        assert await offsets_answered(client, 5) == [0, 1, 2, 3, 4]

    with_client(tmp_path, work)


def test_a_batch_that_grows_much_when_it_is_compressed_again_goes_to_the_thread_for_large_ones(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", compression_type="gzip")
        noise = random.Random(1).randbytes(30_000)
        grown = batch_of(noise + bytes(9 * 2**20), compression=Compression.ZSTD)
        client.send(request(client, grown), VERSION)
        client.send(request(client, batch_of(b"behind it")), VERSION)
        assert await offsets_answered(client, 2) == [0, 1]
        names = {thread.name for thread in threading.enumerate()}
        assert any(name.startswith("ottla-large-validation") for name in names)

    with_client(tmp_path, work)


def test_other_partitions_do_not_wait_for_a_large_batch(tmp_path: Path, stuck: threading.Event) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", 2)
        client.send(request(client, LARGE), VERSION)
        client.send(request(client, SMALL, index=1), VERSION)
        other = client.broker.replicas.get("orders", 1)
        assert other is not None
        assert other.high_watermark == 1
        stuck.set()
        assert await offsets_answered(client, 2) == [0, 0]

    with_client(tmp_path, work)


def test_the_frame_of_a_large_batch_may_be_used_again(tmp_path: Path, stuck: threading.Event) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        partition = client.broker.replicas.get("orders", 0)
        assert partition is not None
        buffer = bytearray(LARGE)
        outcomes: list[held_produce.AppendOutcome] = []
        client.broker.held_produces.hold(partition, memoryview(buffer), all_replicas=True, finish=outcomes.append)
        buffer[:] = bytes(len(buffer))
        stuck.set()
        while not outcomes:
            await asyncio.sleep(0.001)
        assert isinstance(outcomes[0], AppendInfo)
        assert outcomes[0].last_offset == 2

    with_client(tmp_path, work)


def test_sequences_of_a_producer_go_on_after_a_large_batch(tmp_path: Path, stuck: threading.Event) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        producer = {"producer_id": 5, "producer_epoch": 0}
        large = batch_of(b"a", b"b", b"c", base_sequence=0, **producer)
        for records in (large, batch_of(b"d", base_sequence=3, **producer), large):
            client.send(request(client, records), VERSION)
        stuck.set()
        assert await offsets_answered(client, 3) == [0, 3, 0]

    with_client(tmp_path, work)


def test_a_request_with_a_large_batch_is_answered_when_all_of_it_is_appended(
    tmp_path: Path, stuck: threading.Event
) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", 3)
        asked = request(client, SMALL)
        bad = batch_of(b"a", b"b", b"c", control=True)
        for index, records in ((1, LARGE), (2, bad), (7, SMALL)):
            asked.topic_data[0].partition_data.append(ProducePartition(index=index, records=records))
        client.send(asked, VERSION)
        await asyncio.sleep(0)
        assert not client.is_answered
        stuck.set()
        answers = partitions_of(await client.answer(ProduceResponse, VERSION))
        assert answers == [("orders", [(0, 0, 0), (1, 0, 0), (2, 87, -1), (7, 3, -1)])]

    with_client(tmp_path, work)


@pytest.mark.parametrize("is_led", [True, False])
def test_what_happens_to_the_other_partitions_while_a_batch_is_held_counts(
    tmp_path: Path, stuck: threading.Event, *, is_led: bool
) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", 2)
        partition = client.broker.replicas.get("orders", 0)
        assert partition is not None
        lead(partition, leader_epoch=0, isr=(1, 2), replicas=(1, 2))
        asked = request(client, SMALL, timeout_ms=500)
        asked.topic_data[0].partition_data.append(ProducePartition(index=1, records=LARGE))
        client.send(asked, VERSION)
        assert client.broker.held_produces.queues
        if is_led:
            lead(partition, leader_epoch=0, isr=(1,), replicas=(1, 2))
        else:
            follow(partition, 2, leader_epoch=1)
        stuck.set()
        answers = partitions_of(await client.answer(ProduceResponse, VERSION))
        first = (0, 0, 0) if is_led else (0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert answers == [("orders", [first, (1, 0, 0)])]
        assert len(client.broker.replicas.produces) == 0

    with_client(tmp_path, work)


def test_a_bad_large_batch_is_refused_and_the_next_goes_on(tmp_path: Path, stuck: threading.Event) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", cleanup_policy="compact")
        client.send(request(client, LARGE), VERSION)
        stuck.set()
        answer = (await client.answer(ProduceResponse, VERSION)).responses[0].partition_responses[0]
        assert [each.batch_index for each in answer.record_errors] == [0, 1, 2]
        assert not client.broker.held_produces.queues

    with_client(tmp_path, work)


def test_a_large_batch_without_acknowledgement(tmp_path: Path, stuck: threading.Event) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        client.send(request(client, LARGE, acks=0), VERSION)
        client.send(request(client, SMALL), VERSION)
        stuck.set()
        assert await client.connection.answers.get() == []
        assert await offsets_answered(client, 1) == [3]
        assert not client.connection.is_closed
        stuck.clear()
        compacted = request(client, LARGE, acks=0)
        await client.create_topic("keyed", cleanup_policy="compact")
        compacted.topic_data[0].name = "keyed"
        client.send(compacted, VERSION)
        assert not client.connection.is_closed
        stuck.set()
        while not client.connection.is_closed:
            await asyncio.sleep(0.001)

    with_client(tmp_path, work)


def test_a_topic_that_goes_while_its_batch_is_validated(tmp_path: Path, stuck: threading.Event) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        for records in (LARGE, SMALL):
            client.send(request(client, records), VERSION)
        await client.broker.controller.delete_topic("orders")
        stuck.set()
        for _ in range(2):
            answer = (await client.answer(ProduceResponse, VERSION)).responses[0].partition_responses[0]
            assert ErrorCode.of(answer.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    with_client(tmp_path, work)


def test_no_more_is_held_than_the_limit(
    tmp_path: Path, stuck: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_produce, "HELD_BYTES_MAX", 2 * len(LARGE) - 1)

    async def work(client: Client) -> None:
        await client.create_topic("orders")
        for _ in range(2):
            client.send(request(client, LARGE), VERSION)
        answer = (await client.answer(ProduceResponse, VERSION)).responses[0].partition_responses[0]
        assert ErrorCode.of(answer.error_code) is ErrorCode.REQUEST_TIMED_OUT
        stuck.set()
        assert await offsets_answered(client, 1) == [0]

    with_client(tmp_path, work)


def test_whatever_goes_wrong_in_the_thread_is_answered(
    tmp_path: Path, stuck: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> PreparedBatches:
        raise MemoryError

    monkeypatch.setattr(held_produce, "prepare", fail)

    async def work(client: Client) -> None:
        await client.create_topic("orders")
        client.send(request(client, LARGE), VERSION)
        answer = (await client.answer(ProduceResponse, VERSION)).responses[0].partition_responses[0]
        assert ErrorCode.of(answer.error_code) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await produce(client, request(client, SMALL))).base_offset == 0

    with_client(tmp_path, work)
    assert not stuck.is_set()


def test_a_batch_that_no_thread_can_be_started_for_is_answered(
    tmp_path: Path, stuck: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    stuck.set()

    async def work(client: Client) -> None:
        await client.create_topic("orders")
        with monkeypatch.context() as patch:
            patch.setattr(ThreadPoolExecutor, "submit", fail)
            for records in (LARGE, SMALL):
                client.send(request(client, records), VERSION)
            answers = [
                (await client.answer(ProduceResponse, VERSION)).responses[0].partition_responses[0] for _ in range(2)
            ]
        assert [each.error_code for each in answers] == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]
        assert not client.broker.held_produces.queues
        assert (await produce(client, request(client, LARGE))).base_offset == 1

    with_client(tmp_path, work)


def test_a_config_that_changes_meanwhile_counts(
    tmp_path: Path, stuck: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> PreparedBatches:
        raise AssertionError("a large batch was validated on the loop")

    monkeypatch.setattr(partition_log, "prepare", fail)

    async def work(client: Client) -> None:
        await client.create_topic("orders")
        client.send(request(client, LARGE), VERSION)
        partition = client.broker.replicas.get("orders", 0)
        assert partition is not None
        assert partition.log is not None
        partition.log.update_config(replace(partition.log.config, compacts=True))
        stuck.set()
        answer = (await client.answer(ProduceResponse, VERSION)).responses[0].partition_responses[0]
        assert ErrorCode.of(answer.error_code) is ErrorCode.INVALID_RECORD

    with_client(tmp_path, work)


def test_four_million_records_in_three_kilobytes_hold_nobody_up(tmp_path: Path) -> None:
    payload = record_bytes(0, key=None, value=None) * 1_200_000  # wrong deltas: only whoever reads them all knows
    records = sealed(compress(Compression.ZSTD, payload), 1_200_000, Compression.ZSTD)

    async def work(client: Client) -> None:
        await client.create_topic("orders", cleanup_policy="compact")
        client.send(request(client, records), VERSION)
        assert not client.is_answered  # left to the thread
        answer = (await client.answer(ProduceResponse, VERSION)).responses[0].partition_responses[0]
        assert ErrorCode.of(answer.error_code) is ErrorCode.INVALID_RECORD
        assert "record 1 has offset delta 0" in (answer.error_message or "")

    assert len(records) < 3000
    with_client(tmp_path, work)


@pytest.mark.parametrize("closes_while_it_waits", [False, True])
def test_nobody_waits_for_the_disk_after_a_large_batch_whose_client_is_gone(
    tmp_path: Path, stuck: threading.Event, monkeypatch: pytest.MonkeyPatch, *, closes_while_it_waits: bool
) -> None:
    flush, may_flush = PartitionLog.flush, threading.Event()

    def slow_flush(log: PartitionLog) -> None:
        assert may_flush.wait(30)
        flush(log)

    async def work(client: Client) -> None:
        broker = client.broker
        await client.create_topic("orders", flush_messages="1")
        monkeypatch.setattr(PartitionLog, "flush", slow_flush)
        client.send(request(client, LARGE), VERSION)
        if not closes_while_it_waits:
            client.connection.close()
        stuck.set()
        partition = broker.replicas.get("orders", 0)
        assert partition is not None
        assert partition.log is not None
        while partition.log.next_offset < 3:
            await asyncio.sleep(0.001)
        for _ in range(5):
            await asyncio.sleep(0)
        counts = [len(broker.replicas.produces)]
        client.connection.close()
        counts.append(len(broker.replicas.produces))
        may_flush.set()
        assert counts == [int(closes_while_it_waits), 0]

    with_client(tmp_path, work)


# --- a partition that moved ------------------------------------------------------------------------------------------


def put_other_broker(client: Client) -> None:
    client.broker.metadata.put_broker(BrokerEndpoint(2, "elsewhere", 9093, "there"), listener="PLAINTEXT")


def told(response: ProduceResponse) -> tuple[ErrorCode, tuple[int, int] | None, list[tuple[int, str, int, str | None]]]:
    (answer,) = response.responses[0].partition_responses
    leader = answer.current_leader
    return (
        ErrorCode.of(answer.error_code),
        None if leader is None else (leader.leader_id, leader.leader_epoch),
        [(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints],
    )


@pytest.mark.parametrize("version", [9, 10, 12, 13])
def test_the_new_leader_of_a_partition_is_named(tmp_path: Path, version: int) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        put_other_broker(client)
        partition = client.broker.replicas.get("orders", 0)
        assert partition is not None
        follow(partition, 2, leader_epoch=4)
        response = await client.ask(request(client, batch_of(b"a")), ProduceResponse, version)
        named = ((2, 4), [(2, "elsewhere", 9093, "there")]) if version >= 10 else (None, [])
        assert told(response) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, *named)

    with_client(tmp_path, work)


@pytest.mark.parametrize("version", [9, 12, 13])
def test_the_new_leader_is_named_to_a_producer_that_waited(tmp_path: Path, version: int) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        put_other_broker(client)
        partition = client.broker.replicas.get("orders", 0)
        assert partition is not None
        lead(partition, leader_epoch=3, isr=(1, 2), replicas=(1, 2))
        client.send(request(client, batch_of(b"a")), version)
        await asyncio.sleep(0)
        assert not client.is_answered
        follow(partition, 2, leader_epoch=4)
        named = ((2, 4), [(2, "elsewhere", 9093, "there")]) if version >= 10 else (None, [])
        response = await client.answer(ProduceResponse, version)
        assert told(response) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, *named)

    with_client(tmp_path, work)


def test_a_partition_that_this_broker_does_not_have_is_led_elsewhere(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        put_other_broker(client)
        state = PartitionState((2, 3), 2, 7, (2, 3), 1, 0)
        client.broker.metadata.put_topic(TopicState("orders", random_uuid(), (state,)))
        response = await client.ask(request(client, batch_of(b"a")), ProduceResponse, VERSION)
        assert told(response) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, (2, 7), [(2, "elsewhere", 9093, "there")])

    with_client(tmp_path, work)
