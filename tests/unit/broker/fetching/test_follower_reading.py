"""Fetches of followers: what they get, what the leader learns from them, and what a session looks at."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.broker.fetching import follower_reading
from ottla.broker.fetching.follower_reading import FollowerReading
from ottla.broker.fetching.follower_session import FollowerSession
from ottla.broker.metadata.metadata_cache import BrokerEndpoint
from ottla.controller.state import PartitionState, TopicState
from ottla.records import iter_records
from ottla.replication.follower_state import FollowerState
from ottla.replication.partition import Partition
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchReplicaState,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from support.brokers import Client, batch_of, with_client
from support.replication.roles import follow, lead

VERSION = 17
LEADER, FOLLOWER, OTHER = 1, 2, 3
REPLICAS = (LEADER, FOLLOWER, OTHER)
LONG_MS = 20_000


@dataclass
class Follower:
    """Fetches as a follower does, with a session."""

    client: Client
    replica_id: int = FOLLOWER
    broker_epoch: int = 50
    session_id: int = 0
    epoch: int = 0
    version: int = VERSION
    topic: str = "orders"

    def __post_init__(self) -> None:
        self.client = Client(self.client.broker)  # each has its own connection

    def request(
        self, offsets: dict[int, int], *, max_wait_ms: int, forget: tuple[int, ...] = (), **fields: int
    ) -> FetchRequest:
        known = self.client.broker.metadata.topic(self.topic)
        assert known is not None
        settings = {"partition_max_bytes": 1 << 20, "current_leader_epoch": 5, "log_start_offset": 0, **fields}
        partitions = [
            FetchPartition(partition=index, fetch_offset=offset, **settings)  # type: ignore[arg-type]
            for index, offset in offsets.items()
        ]
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 26,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic(topic=self.topic, topic_id=known.topic_id, partitions=partitions)] if partitions else [],
            forgotten_topics_data=[ForgottenTopic(topic=self.topic, topic_id=known.topic_id, partitions=list(forget))]
            if forget
            else [],
        )
        if self.version >= 15:
            request.replica_state = FetchReplicaState(replica_id=self.replica_id, replica_epoch=self.broker_epoch)
        else:
            request.replica_id = self.replica_id
        return request

    def send(
        self,
        offsets: dict[int, int] | None = None,
        *,
        max_wait_ms: int = LONG_MS,
        forget: tuple[int, ...] = (),
        **fields: int,
    ) -> None:
        self.client.send(self.request(offsets or {}, max_wait_ms=max_wait_ms, forget=forget, **fields), self.version)

    async def answer(self) -> dict[int, FetchPartitionResponse]:
        response = await self.client.answer(FetchResponse, self.version)
        assert ErrorCode.of(response.error_code) is ErrorCode.NONE
        self.session_id, self.epoch = response.session_id, self.epoch + 1
        self.endpoints = response.node_endpoints
        return {each.partition_index: each for topic in response.responses for each in topic.partitions}

    async def fetch(
        self,
        offsets: dict[int, int] | None = None,
        *,
        max_wait_ms: int = 0,
        forget: tuple[int, ...] = (),
        **fields: int,
    ) -> dict[int, FetchPartitionResponse]:
        self.send(offsets, max_wait_ms=max_wait_ms, forget=forget, **fields)
        return await self.answer()

    @property
    def session(self) -> FollowerSession:
        found = self.client.broker.fetch_sessions._sessions[self.session_id]
        assert isinstance(found, FollowerSession)
        return found


def partition_of(client: Client, index: int = 0) -> Partition:
    partition = client.broker.replicas.get("orders", index)
    assert partition is not None
    return partition


def append(client: Client, *values: bytes, index: int = 0) -> None:
    partition_of(client, index).append(bytearray(batch_of(*values)), all_replicas=False)


async def led_topic(client: Client, partitions: int = 1, isr: tuple[int, ...] = REPLICAS, **configs: str) -> None:
    await client.create_topic("orders", partitions=partitions, **configs)
    environment = client.broker.replicas.environment
    for index in range(partitions):
        lead(partition_of(client, index), leader_epoch=5, isr=isr, replicas=REPLICAS, now_s=environment.clock_s())


def values(answer: FetchPartitionResponse) -> list[bytes | None]:
    return [record.value for record in iter_records(bytes(answer.records or b""))]


def state_of(partition: Partition, replica_id: int = FOLLOWER) -> FollowerState:
    return next(each for each in partition.followers() if each.replica_id == replica_id)


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 14, 15, 17, 18])
def test_a_follower_reads_what_is_not_committed(tmp_path: Path, version: int) -> None:
    async def work(client: Client) -> None:
        await led_topic(client)
        append(client, b"a", b"b")
        follower = Follower(client, version=version)
        answer = (await follower.fetch({0: 0}))[0]
        assert (values(answer), answer.high_watermark) == ([b"a", b"b"], 0)

    with_client(tmp_path, work)


def test_fetches_of_all_followers_move_the_high_watermark(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await led_topic(client)
        append(client, b"a", b"b")
        one, other = Follower(client, FOLLOWER), Follower(client, OTHER)
        await one.fetch({0: 2})
        assert partition_of(client).high_watermark == 0
        answer = (await other.fetch({0: 2}))[0]
        assert partition_of(client).high_watermark == 2
        assert answer.high_watermark == 2
        state = state_of(partition_of(client))
        assert (state.log_end, state.log_start, state.broker_epoch) == (2, 0, 50)

    with_client(tmp_path, work)


def test_a_follower_waits_for_records(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await led_topic(client, 2)
        follower = Follower(client)
        await follower.fetch({0: 0, 1: 0})
        follower.send()
        await asyncio.sleep(0)
        assert not follower.client.is_answered
        append(client, b"a", index=1)
        answers = await follower.answer()
        assert {index: values(answer) for index, answer in answers.items()} == {1: [b"a"]}
        assert len(client.broker.replicas.follower_fetches) == 0

    with_client(tmp_path, work)


def test_a_follower_learns_soon_of_a_high_watermark_that_moves_while_it_waits(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await led_topic(client)
        append(client, b"a")
        one, other = Follower(client, FOLLOWER), Follower(client, OTHER)
        await one.fetch({0: 0})
        await other.fetch({0: 0})
        one.send({0: 1})
        await asyncio.sleep(0)
        assert not one.client.is_answered
        other.send({0: 1})
        for follower in (one, other):
            answer = (await follower.answer())[0]
            assert (answer.high_watermark, values(answer)) == (1, [])
        assert len(client.broker.replicas.follower_fetches) == 0

    with_client(tmp_path, work)


def test_partitions_without_news_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(client: Client) -> None:
        await led_topic(client, 20)
        follower = Follower(client)
        assert len(await follower.fetch(dict.fromkeys(range(20), 0))) == 20
        assert not follower.session.unsettled
        looked_at: list[int] = []
        read_one = FollowerReading._read_one

        def counted(self: FollowerReading, followed: object, *given: object, **named: object) -> object:
            looked_at.append(followed.index)  # type: ignore[attr-defined]
            return read_one(self, followed, *given, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(FollowerReading, "_read_one", counted)
        assert await follower.fetch() == {}
        assert looked_at == []
        append(client, b"a", index=3)
        assert list(await follower.fetch()) == [3]
        assert list(await follower.fetch({3: 1})) == []
        assert looked_at == [3, 3]
        assert not follower.session.unsettled

    with_client(tmp_path, work)


def test_a_follower_is_caught_up_with_partitions_without_news(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        environment, now_s = client.broker.replicas.environment, 1000.0
        environment.clock_s = lambda: now_s
        await led_topic(client)
        follower = Follower(client)
        await follower.fetch({0: 0})
        now_s = 2000.0
        await follower.fetch()
        append(client, b"a")
        partition = partition_of(client)
        state = state_of(partition)
        assert state.last_caught_up_s == 2000.0
        proposals: list[object] = []
        environment.propose = lambda _, role: proposals.append(role.isr)
        partition.shrink_isr(2010.0, 30.0)
        assert proposals == [(LEADER, FOLLOWER)], "the other one has not fetched for long"

    with_client(tmp_path, work)


def test_a_follower_that_ends_its_session_was_caught_up_until_then(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        environment, now_s = client.broker.replicas.environment, 1000.0
        environment.clock_s = lambda: now_s
        await led_topic(client)
        follower = Follower(client)
        await follower.fetch({0: 0})
        now_s = 2000.0
        follower.send()
        follower.client.connection.close()
        assert state_of(partition_of(client)).last_caught_up_s == 2000.0
        assert len(client.broker.fetch_sessions) == 0
        assert len(client.broker.replicas.follower_fetches) == 0
        append(client, b"a")

    with_client(tmp_path, work)


def test_a_follower_that_catches_up_is_proposed_until_it_is_in_sync(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await led_topic(client, isr=(LEADER,))
        append(client, b"a")
        proposals: list[tuple[int, ...]] = []
        client.broker.replicas.environment.propose = lambda _, role: proposals.append(role.isr)
        partition, follower = partition_of(client), Follower(client)
        await follower.fetch({0: 0})
        assert proposals == []
        await follower.fetch({0: 1})
        assert proposals == [(LEADER, FOLLOWER)]
        partition.isr_answered(partition._leadership.proposal, ErrorCode.INELIGIBLE_REPLICA, partition.role)  # type: ignore[union-attr,arg-type]
        await follower.fetch()
        assert proposals == [(LEADER, FOLLOWER)] * 2, "nothing changed, but it is still not in sync"

    with_client(tmp_path, work)


def test_records_that_the_follower_did_not_take_are_sent_again(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await led_topic(client)
        append(client, b"a")
        follower = Follower(client)
        await follower.fetch({0: 0})
        assert values((await follower.fetch(max_wait_ms=LONG_MS))[0]) == [b"a"]

    with_client(tmp_path, work)


def test_a_forgotten_partition_is_not_looked_at(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await led_topic(client, 2)
        follower = Follower(client)
        await follower.fetch({0: 0, 1: 0})
        append(client, b"a", index=0)
        append(client, b"b", index=1)
        assert list(await follower.fetch(forget=(0,))) == [1]
        append(client, b"c", index=0)
        assert list(follower.session.unsettled.values()) == [
            follower.session.partitions[next(iter(follower.session.partitions))]
        ]

    with_client(tmp_path, work)


def test_a_new_session_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await led_topic(client)
        old, new = Follower(client), Follower(client)
        await old.fetch({0: 0})
        await new.fetch({0: 0})
        assert len(old.session.unsettled) == 1, "it is not told of changes any more"
        append(client, b"a")
        for follower in (new, old):
            assert values((await follower.fetch())[0]) == [b"a"]

    with_client(tmp_path, work)


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_fetch_without_a_session_leaves_nothing_behind(tmp_path: Path, is_kept: bool) -> None:
    async def work(client: Client) -> None:
        await led_topic(client)
        client.broker.fetch_sessions.slots = 1000 if is_kept else 0
        follower = Follower(client, epoch=-1 if is_kept else 0)
        follower.send({0: 0})
        await asyncio.sleep(0)
        append(client, b"a")
        assert values((await follower.answer())[0]) == [b"a"]
        assert follower.session_id == 0
        assert not partition_of(client)._readers

    with_client(tmp_path, work)


@pytest.mark.parametrize(
    ("offset", "epoch", "code"),
    [
        (9, 5, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, 4, ErrorCode.FENCED_LEADER_EPOCH),
        (0, 6, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_errors_are_returned_at_once(tmp_path: Path, offset: int, epoch: int, code: ErrorCode) -> None:
    async def work(client: Client) -> None:
        await led_topic(client)
        follower = Follower(client)
        answer = (await follower.fetch({0: offset}, max_wait_ms=LONG_MS, current_leader_epoch=epoch))[0]
        assert ErrorCode.of(answer.error_code) is code
        assert state_of(partition_of(client)).log_end == -1

    with_client(tmp_path, work)


@pytest.mark.parametrize(
    ("epoch", "code"), [(5, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
)
def test_a_broker_that_is_not_assigned_is_refused(tmp_path: Path, epoch: int, code: ErrorCode) -> None:
    async def work(client: Client) -> None:
        await led_topic(client)
        stranger = Follower(client, replica_id=9)
        answer = (await stranger.fetch({0: 0}, current_leader_epoch=epoch))[0]
        assert ErrorCode.of(answer.error_code) is code

    with_client(tmp_path, work)


def test_a_fetch_from_before_a_restart_is_refused(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await led_topic(client)
        await Follower(client, broker_epoch=60).fetch({0: 0})
        answer = (await Follower(client, broker_epoch=50).fetch({0: 0}))[0]
        assert ErrorCode.of(answer.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    with_client(tmp_path, work)


def test_a_diverging_follower_learns_where_and_does_not_count(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        partition = partition_of(client)
        lead(partition, leader_epoch=3, isr=REPLICAS, replicas=REPLICAS)
        append(client, b"a", b"b")
        lead(partition, leader_epoch=5, isr=REPLICAS, replicas=REPLICAS)
        follower = Follower(client)
        answer = (await follower.fetch({0: 1}, max_wait_ms=LONG_MS, last_fetched_epoch=4))[0]
        assert answer.diverging_epoch is not None
        assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (3, 2)
        assert state_of(partition).log_end == -1

    with_client(tmp_path, work)


def test_a_replaced_leader_answers_waiting_fetches_with_the_new_leader(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await led_topic(client)
        client.broker.metadata.put_broker(BrokerEndpoint(OTHER, "elsewhere", 9093, "r"), listener="PLAINTEXT")
        follower = Follower(client)
        await follower.fetch({0: 0})
        follower.send()
        await asyncio.sleep(0)
        follow(partition_of(client), OTHER, leader_epoch=6)
        answer = (await follower.answer())[0]
        assert ErrorCode.of(answer.error_code) is ErrorCode.FENCED_LEADER_EPOCH
        assert answer.current_leader is not None
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (OTHER, 6)
        assert [(each.node_id, each.host, each.port) for each in follower.endpoints] == [(OTHER, "elsewhere", 9093)]

    with_client(tmp_path, work)


def test_a_deleted_partition_is_reported_and_one_of_another_broker_too(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await led_topic(client)
        follower = Follower(client)
        await follower.fetch({0: 0})
        follower.send()
        await asyncio.sleep(0)
        state = PartitionState(
            replicas=(OTHER,), leader=OTHER, leader_epoch=1, isr=(OTHER,), controller_epoch=1, version=0
        )
        known = client.broker.metadata.topic("orders")
        assert known is not None
        client.broker.metadata.put_topic(TopicState("orders", known.topic_id, (state,)))
        await client.broker.replicas.delete_many([TopicPartition("orders", 0)])
        answer = (await follower.answer())[0]
        assert ErrorCode.of(answer.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert answer.current_leader is not None
        assert answer.current_leader.leader_id == OTHER

    with_client(tmp_path, work)


def test_records_that_retention_deleted_are_reported(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await led_topic(client)
        append(client, b"a", b"b")
        one, other = Follower(client, FOLLOWER), Follower(client, OTHER)
        await one.fetch({0: 2})
        await other.fetch({0: 2})
        await one.fetch()
        one.send()
        await asyncio.sleep(0)
        log = partition_of(client).log
        assert log is not None
        log.advance_log_start(1)
        client.broker.replicas.log_start_moved(TopicPartition("orders", 0))
        assert (await one.answer())[0].log_start_offset == 1

    with_client(tmp_path, work)


@dataclass
class Quota:
    throttled: set[TopicPartition] = field(default_factory=set)
    exceeded: bool = True
    recorded: int = 0

    def must_wait(self, name: TopicPartition, *, is_in_sync: bool) -> bool:
        return self.exceeded and not is_in_sync and name in self.throttled

    def record(self, name: TopicPartition, size: int) -> None:
        assert name in self.throttled
        self.recorded += size


def test_a_throttled_follower_gets_no_records_unless_it_is_in_sync(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await led_topic(client, isr=(LEADER, OTHER))
        quota = Quota({TopicPartition("orders", 0)})
        client.broker.replicas.environment.leader_quota = quota
        append(client, b"a")
        behind, in_sync = Follower(client), Follower(client, OTHER)
        answer = (await behind.fetch({0: 0}))[0]
        assert (answer.error_code, values(answer)) == (0, [])
        assert values((await in_sync.fetch({0: 0}))[0]) == [b"a"]
        recorded = quota.recorded
        assert recorded == len(batch_of(b"a"))
        quota.exceeded = False
        assert values((await behind.fetch())[0]) == [b"a"]
        assert quota.recorded == 2 * recorded

    with_client(tmp_path, work)


def test_a_follower_may_know_a_topic_before_the_metadata(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await led_topic(client)
        follower = Follower(client)
        request = follower.request({0: 0}, max_wait_ms=0)
        known = client.broker.metadata.topic("orders")
        assert known is not None
        client.broker.metadata.remove_topic(known)
        answer = (await client.ask(request, FetchResponse, VERSION)).responses[0].partitions[0]
        assert ErrorCode.of(answer.error_code) is ErrorCode.NONE
        client.broker.metadata.put_topic(known)

    with_client(tmp_path, work)


def test_a_failure_of_one_partition_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(client: Client) -> None:
        await led_topic(client, 2)
        append(client, b"a", index=1)
        read = Partition.read

        def broken(self: Partition, *given: object, **named: object) -> object:
            if self.name.partition == 0:
                raise ZeroDivisionError
            return read(self, *given, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(Partition, "read", broken)
        monkeypatch.setattr(follower_reading._logger, "disabled", True)
        answers = await Follower(client).fetch({0: 0, 1: 0})
        assert ErrorCode.of(answers[0].error_code) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert values(answers[1]) == [b"a"]

    with_client(tmp_path, work)


def test_a_consumer_cannot_go_on_with_a_followers_session(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await led_topic(client)
        follower = Follower(client)
        await follower.fetch({0: 0})
        request = FetchRequest(session_id=follower.session_id, session_epoch=follower.epoch)
        response = await client.ask(request, FetchResponse, VERSION)
        assert ErrorCode.of(response.error_code) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    with_client(tmp_path, work)


def test_a_new_leadership_is_noticed_by_followers_that_send_no_epoch(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await led_topic(client)
        follower = Follower(client)
        await follower.fetch({0: 0}, current_leader_epoch=-1)
        follower.send()
        await asyncio.sleep(0)
        lead(partition_of(client), leader_epoch=6, isr=REPLICAS, replicas=REPLICAS)
        client.broker.replicas.follower_fetches.close()
        await follower.answer()
        assert len(follower.session.unsettled) == 1
        await follower.fetch()
        assert state_of(partition_of(client)).log_end == 0

    with_client(tmp_path, work)


def test_each_partition_gets_its_turn(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await led_topic(client, 3)
        for index in range(3):
            append(client, b"x" * 1000, index=index)
        follower = Follower(client)
        request = follower.request(dict.fromkeys(range(3), 0), max_wait_ms=0)
        request.max_bytes = 500
        follower.client.send(request, VERSION)
        sent = [[index for index, answer in (await follower.answer()).items() if answer.records]]
        for _ in range(3):
            again = follower.request({}, max_wait_ms=0)
            again.max_bytes = 500
            follower.client.send(again, VERSION)
            sent.append([index for index, answer in (await follower.answer()).items() if answer.records])
        assert sent == [[0], [1], [2], [0]]

    with_client(tmp_path, work)


def test_a_follower_waits_for_as_many_bytes_as_it_wants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(client: Client) -> None:
        await led_topic(client, 2)
        append(client, b"a", index=0)
        follower = Follower(client)
        request = follower.request({0: 0, 1: 0}, max_wait_ms=LONG_MS)
        request.min_bytes = 3 * len(batch_of(b"a"))
        monkeypatch.setattr(follower_reading, "OFFSETS_TOLD_WITHIN_S", 20.0)
        follower.client.send(request, VERSION)
        append(client, b"b", index=1)
        await asyncio.sleep(0)
        assert not follower.client.is_answered
        append(client, b"c", index=1)
        answers = await follower.answer()
        assert {index: values(answer) for index, answer in answers.items()} == {0: [b"a"], 1: [b"b", b"c"]}

    with_client(tmp_path, work)
