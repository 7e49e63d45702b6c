"""The leader's fast path for followers in sync: read as the codec reads, served as the general path serves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import Uuid
from ottla.broker.fetching import fast_follower_fetch
from ottla.broker.fetching.fast_follower_fetch import FastFollowerFetch, fetch_reader
from ottla.records import iter_records
from ottla.replication.partition import Partition
from ottla.wire.codec import encode, reader_of
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchReplicaState,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from ottla.wire.messages.produce import ProducePartition, ProduceRequest, ProduceResponse, ProduceTopic
from support.brokers import Client, batch_of, with_client
from support.replication.roles import follow, lead

VERSION = 17
EPOCH = 5
LEADER, ONE, TWO = REPLICAS = (1, 2, 3)
LONG_MS = 20_000

_INT32 = st.integers(-(2**31), 2**31 - 1)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_UUIDS = st.binary(min_size=16, max_size=16).map(Uuid)
_PARTITIONS = st.builds(
    FetchPartition,
    partition=_INT32,
    current_leader_epoch=_INT32,
    fetch_offset=_INT64,
    last_fetched_epoch=_INT32,
    log_start_offset=_INT64,
    partition_max_bytes=_INT32,
    replica_directory_id=st.just(Uuid(bytes(16))) | _UUIDS,
)
_TOPICS = st.builds(FetchTopic, topic_id=_UUIDS, partitions=st.lists(_PARTITIONS, min_size=1, max_size=2))
_REQUESTS = st.builds(
    FetchRequest,
    replica_state=st.none() | st.builds(FetchReplicaState, replica_id=st.integers(-1, 3), replica_epoch=_INT64),
    max_wait_ms=_INT32,
    session_id=_INT32,
    session_epoch=_INT32,
    topics=st.lists(_TOPICS, max_size=2),
    forgotten_topics_data=st.lists(st.builds(ForgottenTopic, topic_id=_UUIDS, partitions=st.just([1])), max_size=1),
    rack_id=st.sampled_from(["", "r"]),
)
_READERS = {version: fetch_reader(version) for version in (14, 15, 17, 18)}
"""Kept over all examples, as a broker keeps them."""


def read_or_error(read: Any, frame: bytes) -> Any:
    try:
        request = read(memoryview(frame))
    except (ProtocolError, IndexError) as error:
        return type(error)
    return request.as_request() if isinstance(request, FastFollowerFetch) else request


@given(request=_REQUESTS, version=st.sampled_from(sorted(_READERS)), cut=st.integers(0, 60), is_cut=st.booleans())
def test_reads_what_the_codec_reads(request: FetchRequest, version: int, cut: int, is_cut: bool) -> None:
    if version < 15:
        request.replica_state = None
    frame = encode(request, version)
    if is_cut:
        frame = frame[: max(len(frame) - cut, 0)]
    for _ in range(2):
        assert read_or_error(_READERS[version], frame) == read_or_error(reader_of(FetchRequest, version), frame)


def test_recognises_a_follower_that_it_has_seen() -> None:
    read = fetch_reader(VERSION)
    topic = FetchTopic(topic_id=Uuid(b"i" * 16), partitions=[FetchPartition(partition=1, fetch_offset=7)])
    request = FetchRequest(
        replica_state=FetchReplicaState(replica_id=2, replica_epoch=9), session_id=4, session_epoch=3, topics=[topic]
    )
    assert isinstance(read(memoryview(encode(request, VERSION))), FetchRequest)
    request.session_epoch, topic.partitions[0].fetch_offset = 4, 8
    known = read(memoryview(encode(request, VERSION)))
    assert isinstance(known, FastFollowerFetch)
    assert known.follower == (2, 9)
    request.replica_state = FetchReplicaState(replica_id=3, replica_epoch=9)
    assert isinstance(read(memoryview(encode(request, VERSION))), FetchRequest)


class Follower:
    """Fetches one partition as a follower in sync does."""

    def __init__(self, client: Client, replica_id: int) -> None:
        self.client = Client(client.broker)
        self.replica_id = replica_id
        self.session_id = self.epoch = self.offset = 0
        self.broker_epoch = 50
        self.index = 0

    def send(self, *, max_wait_ms: int = LONG_MS, **fields: int) -> None:
        topic = self.client.broker.metadata.topic("orders")
        assert topic is not None
        settings = {
            "partition": self.index,
            "fetch_offset": self.offset,
            "last_fetched_epoch": EPOCH,
            "current_leader_epoch": EPOCH,
            "log_start_offset": 0,
            "partition_max_bytes": 1 << 20,
            **fields,
        }
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 26,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic(topic_id=topic.topic_id, partitions=[FetchPartition(**settings)])],  # type: ignore[arg-type]
            replica_state=FetchReplicaState(replica_id=self.replica_id, replica_epoch=self.broker_epoch),
        )
        self.client.send(request, VERSION)

    async def response(self) -> FetchResponse:
        response = await self.client.answer(FetchResponse, VERSION)
        self.session_id, self.epoch = response.session_id, self.epoch + 1
        return response

    async def answer(self) -> FetchPartitionResponse:
        response = await self.response()
        assert ErrorCode.of(response.error_code) is ErrorCode.NONE
        (topic,) = response.responses
        (answer,) = topic.partitions
        self.offset += len(list(iter_records(bytes(answer.records or b""))))
        return answer

    async def begin(self) -> None:
        """A full fetch, and one that makes the follower known."""
        for _ in range(2):
            self.send(max_wait_ms=1)
            await self.response()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each request that was recognised: whether the fast path served it."""
    outcomes: list[bool] = []
    fetch_fast = fast_follower_fetch.fetch_fast

    def watched(*given: Any) -> Any:
        result = fetch_fast(*given)
        outcomes.append(result is not None)
        return result

    monkeypatch.setattr("ottla.broker.handlers.fetch.fetch_fast", watched)
    return outcomes


async def led_topic(client: Client, partitions: int = 1) -> Partition:
    await client.create_topic("orders", partitions=partitions)
    for index in range(partitions):
        partition = client.broker.replicas.get("orders", index)
        assert partition is not None
        now_s = client.broker.replicas.environment.clock_s()
        lead(partition, leader_epoch=EPOCH, isr=REPLICAS, replicas=REPLICAS, now_s=now_s)
    found = client.broker.replicas.get("orders", 0)
    assert found is not None
    return found


def append(partition: Partition, *values: bytes) -> None:
    partition.append(memoryview(bytearray(batch_of(*values))), all_replicas=False)


def values(answer: FetchPartitionResponse) -> list[bytes | None]:
    return [record.value for record in iter_records(bytes(answer.records or b""))]


def test_producers_are_answered_when_all_followers_have_their_record(tmp_path: Path, served: list[bool]) -> None:
    async def work(client: Client) -> None:
        partition = await led_topic(client)
        append(partition, b"first")
        followers = [Follower(client, replica) for replica in (ONE, TWO)]
        for follower in followers:
            await follower.begin()
            follower.offset = 1
            follower.send()
        data = ProduceTopic(name="orders", partition_data=[ProducePartition(index=0, records=batch_of(b"second"))])
        client.send(ProduceRequest(acks=-1, timeout_ms=LONG_MS, topic_data=[data]), 9)
        for follower in followers:
            answer = await follower.answer()
            assert (values(answer), answer.high_watermark, answer.error_code) == ([b"second"], 1, 0)
            assert not client.is_answered
            served.clear()
            follower.send()
            assert served == [True]
        produced = (await client.answer(ProduceResponse, 9)).responses[0].partition_responses[0]
        assert (produced.error_code, produced.base_offset) == (0, 1)
        assert partition.high_watermark == 2
        for follower in followers:
            answer = await follower.answer()
            assert (values(answer), answer.high_watermark) == ([], 2), "told soon, without records"
        assert len(client.broker.replicas.follower_fetches) == 0

    with_client(tmp_path, work)


def test_the_producer_is_answered_before_the_fetch_begins_to_wait(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        partition = await led_topic(client)
        lead(partition, leader_epoch=EPOCH, isr=(LEADER, ONE), replicas=(LEADER, ONE))
        append(partition, b"first")
        follower = Follower(client, ONE)
        await follower.begin()
        data = ProduceTopic(name="orders", partition_data=[ProducePartition(index=0, records=batch_of(b"second"))])
        client.send(ProduceRequest(acks=-1, timeout_ms=LONG_MS, topic_data=[data]), 9)
        assert not client.is_answered
        follower.offset = 2
        follower.send()
        assert client.is_answered, "in the same turn of the loop"

    with_client(tmp_path, work)


@pytest.mark.parametrize(
    "change",
    [
        {"last_fetched_epoch": EPOCH - 1},
        {"last_fetched_epoch": -1},
        {"current_leader_epoch": EPOCH - 1},
        {"current_leader_epoch": EPOCH + 1},
        {"fetch_offset": 0},
        {"fetch_offset": 2},
        {"partition": 1},
        {"partition_max_bytes": 0},
        {"max_wait_ms": 0},
    ],
)
def test_anything_else_takes_the_general_path(tmp_path: Path, served: list[bool], change: dict[str, int]) -> None:
    async def work(client: Client) -> None:
        partition = await led_topic(client)
        append(partition, b"first")
        follower = Follower(client, ONE)
        await follower.begin()
        follower.offset = 1
        served.clear()
        follower.send(**{"max_wait_ms": 1, **change})
        assert served == [False]
        await follower.response()

    with_client(tmp_path, work)


def test_a_session_that_is_unknown_or_of_another_follower_is_refused(tmp_path: Path, served: list[bool]) -> None:
    async def work(client: Client) -> None:
        append(await led_topic(client), b"first")
        for field, wrong, expected in (
            ("session_id", 12345, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            ("epoch", 77, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        ):
            follower = Follower(client, ONE)
            await follower.begin()
            follower.offset = 1
            setattr(follower, field, wrong)
            served.clear()
            follower.send()
            assert served == [False]
            assert ErrorCode.of((await follower.response()).error_code) is expected

    with_client(tmp_path, work)


def test_a_follower_that_restarted_is_not_taken_for_its_earlier_process(tmp_path: Path, served: list[bool]) -> None:
    async def work(client: Client) -> None:
        partition = await led_topic(client)
        append(partition, b"first")
        follower = Follower(client, ONE)
        await follower.begin()
        partition.follower_fetched(
            ONE, fetch_offset=0, log_start_offset=0, leader_end_offset_at_read=1, broker_epoch=51, now_s=1e9
        )
        follower.offset = 1
        served.clear()
        follower.send(max_wait_ms=1)
        assert served == [False]
        assert ErrorCode.of((await follower.answer()).error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    with_client(tmp_path, work)


def test_what_else_changes_while_it_waits_is_answered_as_always(tmp_path: Path, served: list[bool]) -> None:
    async def work(client: Client) -> None:
        partition = await led_topic(client, 2)
        other = client.broker.replicas.get("orders", 1)
        assert other is not None
        append(partition, b"first")
        follower = Follower(client, ONE)
        await follower.begin()
        follower.offset, follower.index = 0, 1
        follower.send(max_wait_ms=1)  # a second partition in the session
        await follower.response()
        follower.index, follower.offset = 0, 1
        follower.send(max_wait_ms=1)
        await follower.response()
        served.clear()
        follower.send()
        assert served == [True]
        append(partition, b"second")
        append(other, b"elsewhere")
        response = await follower.response()
        found = {each.partition_index: values(each) for each in response.responses[0].partitions}
        assert found == {0: [b"second"], 1: [b"elsewhere"]}
        follower.offset = 2
        follower.send(max_wait_ms=1)
        await follower.response()
        follower.index, follower.offset = 1, 1
        follower.send(max_wait_ms=1)
        await follower.response()
        served.clear()
        follower.send()
        assert served == [True]
        follow(other, TWO, leader_epoch=EPOCH + 1, isr=REPLICAS, replicas=REPLICAS)
        answer = await follower.answer()
        assert ErrorCode.of(answer.error_code) is ErrorCode.FENCED_LEADER_EPOCH

    with_client(tmp_path, work)


def test_many_records_are_sent_from_the_file(tmp_path: Path, served: list[bool]) -> None:
    async def work(client: Client) -> None:
        partition = await led_topic(client)
        append(partition, b"first")
        follower = Follower(client, ONE)
        await follower.begin()
        follower.offset = 1
        served.clear()
        follower.send()
        assert served == [True]
        large = b"x" * 100_000
        append(partition, large)
        assert values(await follower.answer()) == [large]

    with_client(tmp_path, work)


def test_a_connection_that_closes_ends_the_session(tmp_path: Path, served: list[bool]) -> None:
    async def work(client: Client) -> None:
        partition = await led_topic(client)
        append(partition, b"first")
        follower = Follower(client, ONE)
        await follower.begin()
        follower.offset = 1
        served.clear()
        follower.send()
        assert served == [True]
        follower.client.connection.close()
        await asyncio.sleep(0)
        assert len(client.broker.fetch_sessions) == 0
        assert len(client.broker.replicas.follower_fetches) == 0

    with_client(tmp_path, work)
