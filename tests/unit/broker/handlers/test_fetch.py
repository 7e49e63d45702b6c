"""Fetch: what is read, how much of it, when it is answered, and what a session leaves out."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.file_slice import FileSlice
from ottla.base.ids import random_uuid
from ottla.broker.fetching.reading import FetchReading
from ottla.log.append_origin import AppendOrigin
from ottla.log.errors import CorruptRecordsError
from ottla.log.partition_log import LogRead, PartitionLog
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
from support.brokers import Client, batch_of, with_client
from support.replication.roles import lead

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
def test_unreadable_partitions_are_reported_at_once(
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


def test_any_negative_leader_epoch_is_none(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        append(client, b"a")
        answer = await fetch(client, request(client, asked(0, current_leader_epoch=-2)), 17)
        assert ErrorCode.of(answer.error_code) is ErrorCode.NONE

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
        assert ErrorCode.of(answer.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    with_client(tmp_path, work)


def test_a_partition_that_is_unknown_does_not_keep_the_others_from_waiting(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        client.send(request(client, asked(index=7), asked(index=0), max_wait_ms=20_000), VERSION)
        await asyncio.sleep(0)
        assert not client.is_answered
        append(client, b"a")
        response = await client.answer(FetchResponse, VERSION)
        assert [(answer.error_code, values(answer)) for answer in response.responses[0].partitions] == [
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
            (ErrorCode.NONE, [b"a"]),
        ]

    with_client(tmp_path, work)


def test_nothing_waits_on_behalf_of_a_client_that_left(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", partitions=2)
        fetches = client.broker.replicas.fetches
        staying = Client(client.broker)
        staying.send(request(client, asked(index=0), max_wait_ms=20_000), VERSION)
        for _ in range(100):
            client.send(request(client, asked(index=0), asked(index=1), max_wait_ms=20_000), VERSION)
        assert len(fetches) == 101
        client.connection.close()
        assert len(fetches) == 1
        append(client, b"a")
        assert values(only(await staying.answer(FetchResponse, VERSION))) == [b"a"]
        assert not client.is_answered

    with_client(tmp_path, work)


# --- how many bytes are waited for ------------------------------------------------------------------------------------

SIZE = len(batch_of(b"x" * 1000))
LONG_MS = 120_000
"""Longer than a test waits for an answer."""


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_bytes_that_are_there_before_a_fetch_waits_count(tmp_path: Path, isolation_level: int) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", partitions=3)
        append(client, b"x" * 1000, index=1)
        partitions = [asked(index=index) for index in range(3)]
        waiting: dict[str, Any] = {"min_bytes": 2 * SIZE, "max_wait_ms": LONG_MS, "isolation_level": isolation_level}
        client.send(request(client, *partitions, **waiting), VERSION)
        await asyncio.sleep(0)
        assert not client.is_answered
        append(client, b"x" * 1000, index=2)
        response = await client.answer(FetchResponse, VERSION)
        assert [len(values(answer)) for answer in response.responses[0].partitions] == [0, 1, 1]

    with_client(tmp_path, work)


def test_a_reader_in_an_older_segment_does_not_wait(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", segment_bytes=str(3 * SIZE))
        for _ in range(4):
            append(client, b"x" * 1000)
        waiting: dict[str, Any] = {"min_bytes": 10 * SIZE, "max_wait_ms": LONG_MS}
        assert len(values(await fetch(client, request(client, asked(2), **waiting)))) == 1
        # And the one in the newest is woken as soon as a newer one comes.
        client.send(request(client, asked(3), **waiting), VERSION)
        for _ in range(2):
            append(client, b"x" * 1000)
            await asyncio.sleep(0.001)
            assert not client.is_answered
        append(client, b"x" * 1000)
        assert len(values(only(await client.answer(FetchResponse, VERSION)))) == 3

    with_client(tmp_path, work)


def test_no_fetch_waits_for_more_than_it_may_get(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", partitions=2)
        for index in range(2):
            append(client, b"x" * 1000, index=index)
        # Two are there; only one can be given, since a part of the second would be of no use.
        asking = request(
            client, asked(index=0), asked(index=1), min_bytes=1 << 20, max_bytes=2 * SIZE - 1, max_wait_ms=LONG_MS
        )
        response = await client.ask(asking, FetchResponse, VERSION)
        assert [len(answer.records or b"") for answer in response.responses[0].partitions] == [SIZE, 0]
        # Nor for any where nothing may be given.
        for max_bytes in (0, -1):
            asking = request(client, asked(1), max_bytes=max_bytes, max_wait_ms=LONG_MS)
            assert values(await fetch(client, asking)) == []

    with_client(tmp_path, work)


def test_of_each_partition_no_more_than_its_limit_is_counted(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", partitions=2)
        for _ in range(5):
            append(client, b"x" * 1000)
        partitions = asked(index=0, max_bytes=2 * SIZE), asked(index=1, max_bytes=2 * SIZE)
        client.send(request(client, *partitions, min_bytes=3 * SIZE, max_wait_ms=LONG_MS), VERSION)
        append(client, b"x" * 1000)
        await asyncio.sleep(0.001)
        assert not client.is_answered
        append(client, b"x" * 1000, index=1)
        response = await client.answer(FetchResponse, VERSION)
        assert [len(values(answer)) for answer in response.responses[0].partitions] == [2, 1]

    with_client(tmp_path, work)


# --- how many bytes are given -----------------------------------------------------------------------------------------


LIMITS = [
    # Of the answer, of each partition, where the first partition is read from, and the bytes of each partition.
    (1, 1 << 20, 0, [SIZE, 0, 0]),
    (0, 1 << 20, 0, [SIZE, 0, 0]),
    (SIZE + 30, 1 << 20, 0, [SIZE + 30, 0, 0]),
    (3 * SIZE + 30, 1 << 20, 0, [3 * SIZE, 0, 0]),
    (4 * SIZE + 30, 1 << 20, 0, [3 * SIZE, SIZE + 30, 0]),
    (7 * SIZE - 1, 1 << 20, 0, [3 * SIZE, 3 * SIZE, 0]),
    (7 * SIZE, 1 << 20, 0, [3 * SIZE, 3 * SIZE, SIZE]),
    (1 << 20, 0, 0, [SIZE, 0, 0]),
    (1 << 20, 1, 0, [SIZE, 0, 0]),
    (1 << 20, SIZE - 1, 0, [SIZE, 0, 0]),
    (1 << 20, SIZE, 0, [SIZE, SIZE, SIZE]),
    (1 << 20, 2 * SIZE - 1, 0, [2 * SIZE - 1] * 3),
    # The first partition has nothing: the next one may exceed the limits.
    (1, 1 << 20, 3, [0, SIZE, 0]),
    (1 << 20, 1, 3, [0, SIZE, 0]),
]


@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_only_the_first_batch_of_an_answer_may_exceed_the_limits(tmp_path: Path, session_epoch: int) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", partitions=3)
        for index in range(3):
            for _ in range(3):
                append(client, b"x" * 1000, index=index)
        for max_bytes, partition_max_bytes, first_offset, sizes in LIMITS:
            partitions = [
                asked(0 if index else first_offset, index=index, max_bytes=partition_max_bytes) for index in range(3)
            ]
            asking = request(client, *partitions, max_bytes=max_bytes, session_epoch=session_epoch)
            response = await client.ask(asking, FetchResponse, VERSION)
            found = [len(answer.records or b"") for answer in response.responses[0].partitions]
            assert found == sizes, (max_bytes, partition_max_bytes, first_offset)

    with_client(tmp_path, work)


def test_a_negative_limit_is_an_error_where_there_is_something_to_read(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", partitions=3)
        for index in range(3):
            append(client, b"x" * 1000, index=index)

        async def seen(asking: FetchRequest) -> list[tuple[int, int]]:
            response = await client.ask(asking, FetchResponse, VERSION)
            return [(each.error_code, len(each.records or b"")) for each in response.responses[0].partitions]

        partitions = asked(index=0, max_bytes=-1), asked(1, index=1, max_bytes=-1), asked(index=2)
        assert await seen(request(client, *partitions)) == [(-1, 0), (0, 0), (0, SIZE)]
        known = asked(index=0), asked(index=1), asked(index=2)
        assert await seen(request(client, asked(index=7), *known, max_bytes=-1)) == [(3, 0), (-1, 0), (0, SIZE), (0, 0)]

    with_client(tmp_path, work)


# --- what goes wrong --------------------------------------------------------------------------------------------------


def test_a_disk_that_fails_while_fetches_wait_is_reported_to_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        waiting = [Client(client.broker) for _ in range(3)]
        for each in waiting:
            each.send(request(client, asked(), max_wait_ms=20_000), VERSION)

        def broken(_: FileSlice) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(FileSlice, "read", broken)
            append(client, bytes(10_000))  # more than a look-up reads
            # As the server does when the requests of a moment are handled: the producer is answered behind this.
            client.broker.replicas.fetches.look_now()
        for each in waiting:
            answer = only(await each.answer(FetchResponse, VERSION))
            assert ErrorCode.of(answer.error_code) is ErrorCode.KAFKA_STORAGE_ERROR
        assert partition_of(client).log is None, "the directory is offline"

    # With another directory: a broker without any stops.
    with_client(tmp_path, work, log_dirs=f"{tmp_path / 'first'},{tmp_path / 'second'}")


def test_one_partition_that_cannot_be_read_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = PartitionLog.read

    def broken(log: PartitionLog, *arguments: Any, **options: Any) -> LogRead:
        if log.partition.partition == 0:
            raise ZeroDivisionError
        return real(log, *arguments, **options)

    async def work(client: Client) -> None:
        await client.create_topic("orders", partitions=2)
        client.send(request(client, asked(index=0), asked(index=1), max_wait_ms=20_000), VERSION)
        monkeypatch.setattr(PartitionLog, "read", broken)
        for index in range(2):
            append(client, b"a", index=index)
        response = await client.answer(FetchResponse, VERSION)
        found = [(answer.error_code, values(answer)) for answer in response.responses[0].partitions]
        assert found == [(ErrorCode.UNKNOWN_SERVER_ERROR, []), (ErrorCode.NONE, [b"a"])]

    with_client(tmp_path, work)
    assert "reading orders-0 at offset 0 failed" in caplog.text
    caplog.clear()


def test_bytes_that_cannot_be_counted_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> int:
        raise CorruptRecordsError("a batch that is no batch")

    async def work(client: Client) -> None:
        await client.create_topic("orders")
        append(client, b"a")
        waiting: dict[str, Any] = {"min_bytes": 1 << 20, "max_wait_ms": LONG_MS}
        client.send(request(client, asked(), **waiting), VERSION)
        monkeypatch.setattr(PartitionLog, "bytes_before", broken)
        append(client, b"b")
        assert values(only(await client.answer(FetchResponse, VERSION))) == [b"a", b"b"]
        assert values(await fetch(client, request(client, asked(), **waiting))) == [b"a", b"b"]

    with_client(tmp_path, work)


@pytest.mark.parametrize("version", [4, VERSION])
def test_a_fetch_that_fails_while_it_waits_is_answered_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    def broken(*_: object) -> FetchResponse:
        raise ZeroDivisionError

    async def work(client: Client) -> None:
        await client.create_topic("orders", partitions=2)
        client.send(request(client, asked(index=0), asked(index=1), max_wait_ms=20_000), version)
        with monkeypatch.context() as patch:
            patch.setattr(FetchReading, "response", broken)
            append(client, b"a")
            client.broker.replicas.fetches.look_now()
        response = await client.answer(FetchResponse, version)
        assert response.error_code == (0 if version < 7 else ErrorCode.UNKNOWN_SERVER_ERROR)
        assert [answer.error_code for answer in response.responses[0].partitions] == [-1, -1]

    with_client(tmp_path, work)
    assert "could not read" in caplog.text
    caplog.clear()


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
        lead(partition, leader_epoch=0, isr=(1,), replicas=(1,))
        answer = only(await client.answer(FetchResponse, VERSION))
        assert [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()] == [(1, 1)]
        assert answer.last_stable_offset == 4

    with_client(tmp_path, work)


def test_a_reader_whose_epoch_ended_elsewhere_learns_where(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        append(client, b"a")
        lead(partition_of(client), leader_epoch=4, isr=(1,), replicas=(1,))
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


def test_partitions_of_a_session_take_turns(tmp_path: Path) -> None:
    """Each incremental fetch moves those that gave records to the end. As in Kafka, the first, full one does not."""

    async def work(client: Client) -> None:
        await client.create_topic("orders", partitions=3)
        for index in range(3):
            for _ in range(3):
                append(client, b"x" * 1000, index=index)
        asking = request(client, *(asked(index=index) for index in range(3)), session_epoch=0, max_bytes=3 * SIZE + 90)
        session_id, turns = 0, []
        for epoch in range(5):
            asking.session_id, asking.session_epoch = session_id, epoch
            response = await client.ask(asking, FetchResponse, VERSION)
            session_id, asking.topics = response.session_id, []
            partitions = response.responses[0].partitions
            turns.append([(each.partition_index, len(each.records)) for each in partitions if each.records])
        assert turns == [[(index, 3 * SIZE)] for index in (0, 0, 1, 2, 0)]

    with_client(tmp_path, work)


def test_a_session_hears_of_a_topic_that_was_deleted_and_made_again(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        for topic in ("orders", "others"):
            await client.create_topic(topic)
        old = request(client, asked())
        session_id = await begin(client, asked())
        by_name = request(client, asked(), session_epoch=0)
        named_id = (await client.ask(by_name, FetchResponse, 12)).session_id

        async def told(epoch: int) -> list[ErrorCode]:
            asking = request(client, session_id=session_id, session_epoch=epoch)
            answers = [await client.ask(asking, FetchResponse, VERSION), await client.ask(old, FetchResponse, VERSION)]
            asking = request(client, session_id=named_id, session_epoch=epoch)
            answers.append(await client.ask(asking, FetchResponse, 12))
            return [ErrorCode.of(only(answer).error_code) for answer in answers]

        await client.broker.controller.delete_topic("orders")
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await told(1) == [unknown, ErrorCode.UNKNOWN_TOPIC_ID, unknown]
        assert await told(2) == [unknown, ErrorCode.UNKNOWN_TOPIC_ID, unknown]
        await client.create_topic("orders")
        assert await told(3) == [ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NONE]

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


def test_a_missing_session_is_reported(tmp_path: Path) -> None:
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
