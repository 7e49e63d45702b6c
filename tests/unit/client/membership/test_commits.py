"""Offsets on bad days of a coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition, random_uuid
from ottla.client.cluster import Cluster, ClusterOptions
from ottla.client.errors import (
    CommitFailedError,
    MemberFencedError,
    RebalanceInProgressError,
    RefusedError,
    RequestTimeoutError,
)
from ottla.client.membership.commits import GroupCommits
from ottla.client.membership.coordinator import CoordinatorLink, Lane
from ottla.client.membership.ledger import CommitLedger
from ottla.client.membership.metadata import GroupMetadata
from ottla.client.offsets import OffsetAndMetadata
from ottla.client.subscriptions.subscription import Subscription
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.metadata import MetadataBroker, MetadataRequest
from ottla.wire.messages.offset_commit import OffsetCommitRequest
from ottla.wire.messages.offset_fetch import OffsetFetchRequest
from ottla.wire.schema import Request
from support.clients.scripted_broker import KAFKA_2_1, TOPIC_ID, Answer, HangUp
from unit.client.membership.scripted_group import ScriptedGroup

QUICK = ClusterOptions(retry_backoff_s=0.001, retry_backoff_max_s=0.002, reconnect_backoff_s=0.001)
FIRST, SECOND = TopicPartition("events", 0), TopicPartition("events", 1)
MEMBER = GroupMetadata("group", 3, "member-1", None)


class Offsets:
    """Of a member that a test can change."""

    def __init__(self, cluster: Cluster, *, has_epochs: bool = False, timeout_s: float = 20.0) -> None:
        self.member: GroupMetadata | None = MEMBER
        self.refused: list[tuple[GroupMetadata, ErrorCode]] = []
        self.subscription = Subscription()
        self.ledger = CommitLedger(self.subscription, lambda: self.member)
        self.offsets = GroupCommits(
            cluster,
            CoordinatorLink(cluster, "group"),
            self.ledger,
            lambda: self.member,
            lambda member, code: self.refused.append((member, code)),
            has_epochs=has_epochs,
            timeout_s=timeout_s,
        )

    async def commit(self, **offsets: int) -> None:
        """By the numbers of partitions, behind a p."""
        asked = self.ledger.ask(
            {TopicPartition("events", int(name[1:])): OffsetAndMetadata(offset) for name, offset in offsets.items()}
        )
        await self.offsets.commit(dict.fromkeys(asked.offsets, asked))


@asynccontextmanager
async def offsets_of(broker: ScriptedGroup, **options: Any) -> AsyncIterator[Offsets]:
    async with broker, Cluster(broker.bootstrap, QUICK) as cluster:
        yield Offsets(cluster, **options)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario()

    asyncio.run(bounded())


def commits(broker: ScriptedGroup) -> list[dict[int, int]]:
    """What each request asked to be committed."""
    return [
        {one.partition_index: one.committed_offset for topic in request.topics for one in topic.partitions}
        for request in broker.requests
        if isinstance(request, OffsetCommitRequest)
    ]


@pytest.mark.parametrize(
    "bad",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
        HangUp(),
    ],
    ids=lambda bad: getattr(bad, "name", "hang-up"),
)
def test_retriable_errors_are_retried(bad: ErrorCode | HangUp) -> None:
    async def scenario() -> None:
        broker = ScriptedGroup(bad={OffsetCommitRequest: [bad, bad], OffsetFetchRequest: [bad]}, topics={"events": 2})
        async with offsets_of(broker) as offsets:
            await offsets.commit(p0=5, p1=6)
            assert broker.committed == {0: 5, 1: 6}
            assert await offsets.offsets.committed([FIRST]) == {FIRST: OffsetAndMetadata(5)}
            moved = bad in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            assert len(broker.of(FindCoordinatorRequest)) == (4 if moved else 1)

    run(scenario)


def test_only_what_was_refused_is_sent_again() -> None:
    async def scenario() -> None:
        broker = ScriptedGroup(bad_partitions=[{1: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}], topics={"events": 2})
        async with offsets_of(broker) as offsets:
            await offsets.commit(p0=5, p1=6)
            assert commits(broker) == [{0: 5, 1: 6}, {1: 6}]

    run(scenario)


def test_a_retry_does_not_undo_a_newer_commit() -> None:
    async def scenario() -> None:
        broker = ScriptedGroup(topics={"events": 2})
        async with offsets_of(broker) as offsets:
            again = asyncio.Event()
            first_answer = broker.script

            async def later(request: Any) -> Any:
                await again.wait()
                broker.script = first_answer
                return broker._commit(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

            broker.script = lambda one: later(one) if isinstance(one, OffsetCommitRequest) else first_answer(one)
            older = asyncio.create_task(offsets.commit(p0=5, p1=6))
            while not commits(broker):
                await asyncio.sleep(0.001)
            broker.script = first_answer
            newer = asyncio.create_task(offsets.commit(p0=7))
            while len(commits(broker)) < 2:
                await asyncio.sleep(0.001)
            again.set()
            await asyncio.gather(older, newer)
            assert broker.committed == {0: 7, 1: 6}
            assert commits(broker)[2:] == [{1: 6}]

    run(scenario)


@pytest.mark.parametrize(
    ("code", "error", "is_told"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, CommitFailedError, True),
        (ErrorCode.ILLEGAL_GENERATION, CommitFailedError, True),
        (ErrorCode.REBALANCE_IN_PROGRESS, RebalanceInProgressError, True),
        (ErrorCode.FENCED_INSTANCE_ID, MemberFencedError, True),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, RefusedError, False),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, RefusedError, False),
    ],
)
def test_fatal_errors_are_raised_at_once(code: ErrorCode, error: type[Exception], is_told: bool) -> None:
    async def scenario() -> None:
        broker = ScriptedGroup(bad={OffsetCommitRequest: [code]})
        async with offsets_of(broker) as offsets:
            with pytest.raises(error, match="group"):
                await offsets.commit(p0=5)
            assert len(commits(broker)) == 1
            assert offsets.refused == ([(MEMBER, code)] if is_told else [])

    run(scenario)


def test_a_consumer_that_is_not_a_member_does_not_commit() -> None:
    async def scenario() -> None:
        broker = ScriptedGroup()
        async with offsets_of(broker) as offsets:
            offsets.member = None
            with pytest.raises(CommitFailedError, match="poll"):
                await offsets.commit(p0=5)
            assert not commits(broker)

    run(scenario)


def test_a_stale_epoch_is_tried_again_with_the_new_one() -> None:
    async def scenario() -> None:
        stale: list[ErrorCode | HangUp] = [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.STALE_MEMBER_EPOCH]
        broker = ScriptedGroup(bad={OffsetCommitRequest: stale[:], OffsetFetchRequest: stale[:]})
        async with offsets_of(broker, has_epochs=True) as offsets:
            committing = asyncio.create_task(offsets.commit(p0=5))
            while not commits(broker):
                await asyncio.sleep(0.001)
            offsets.member = MEMBER._replace(generation_id=4)
            await committing
            last = broker.of(OffsetCommitRequest)[-1]
            assert isinstance(last, OffsetCommitRequest)
            assert last.generation_id_or_member_epoch == 4
            assert await offsets.offsets.committed([FIRST]) == {FIRST: OffsetAndMetadata(5)}
            asked = broker.of(OffsetFetchRequest)[-1]
            assert isinstance(asked, OffsetFetchRequest)
            assert (asked.groups[0].member_id, asked.groups[0].member_epoch) == ("member-1", 4)

    run(scenario)


def test_patience_ends_with_the_reason() -> None:
    async def scenario() -> None:
        broker = ScriptedGroup(bad={OffsetCommitRequest: [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 10_000})
        async with offsets_of(broker, timeout_s=1.0) as offsets:
            with pytest.raises(RequestTimeoutError, match=r"1 s.*COORDINATOR_LOAD_IN_PROGRESS"):
                await offsets.commit(p0=5)

    run(scenario)


def test_topics_are_called_by_their_ids_once_those_are_known() -> None:
    async def scenario() -> None:
        broker = ScriptedGroup()
        async with offsets_of(broker) as offsets:
            await offsets.commit(p0=5)
            await offsets.offsets._cluster.refresh(["events"])
            await offsets.commit(p0=6)
            assert await offsets.offsets.committed([FIRST]) == {FIRST: OffsetAndMetadata(6)}
            by_name, by_id = [one.topics[0] for one in broker.requests if isinstance(one, OffsetCommitRequest)]
            assert (by_name.name, by_id.name, by_id.topic_id) == ("events", "", TOPIC_ID)

    run(scenario)


def test_a_broker_of_kafka_2_1_is_asked_in_its_words() -> None:
    async def scenario() -> None:
        broker = ScriptedGroup(newest=KAFKA_2_1, topics={"events": 2})
        async with offsets_of(broker) as offsets:
            offsets.member = GroupMetadata("group", 3, "member-1", "instance")
            await offsets.commit(p0=5)
            found = await offsets.offsets.committed([FIRST, SECOND])
            assert found == {FIRST: OffsetAndMetadata(5), SECOND: None}

    run(scenario)


def test_a_retry_leaves_out_partitions_that_are_another_members_by_now() -> None:
    async def scenario() -> None:
        broker = ScriptedGroup(topics={"events": 2})
        async with offsets_of(broker) as offsets:
            offsets.subscription.subscribe(["events"])
            offsets.subscription.assigned_by_group([FIRST, SECOND])

            def rebalance(request: Any) -> Any:
                broker.script = broker._act
                offsets.subscription.assigned_by_group([SECOND])
                offsets.member = MEMBER._replace(generation_id=4)
                return broker._commit(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

            broker.script = lambda one: rebalance(one) if isinstance(one, OffsetCommitRequest) else broker._act(one)
            with pytest.raises(CommitFailedError, match=r"events-0"):
                await offsets.commit(p0=5, p1=6)
            assert broker.committed == {1: 6}

    run(scenario)


def test_a_listener_commits_what_it_gives_up_in_the_generation_that_ends() -> None:
    async def scenario() -> None:
        broker = ScriptedGroup(topics={"events": 2})
        async with offsets_of(broker) as offsets:
            offsets.subscription.subscribe(["events"])
            offsets.subscription.assigned_by_group([FIRST])
            asked = offsets.ledger.ask({FIRST: OffsetAndMetadata(5)})
            offsets.subscription.assigned_by_group([])
            await offsets.offsets.commit({FIRST: asked})
            assert broker.committed == {0: 5}

    run(scenario)


# Topics that are deleted.


@pytest.mark.parametrize(
    ("is_created_again", "is_fetched"),
    [(True, True), (False, True), (False, False)],
    ids=["created again", "deleted", "deleted before the first fetch"],
)
def test_positions_of_a_deleted_topic_are_not_committed(is_created_again: bool, is_fetched: bool) -> None:
    """Nor tried until the time is over: a consumer that closes would wait for that."""

    async def scenario() -> None:
        broker = ScriptedGroup(topics={"events": 1, "others": 1})
        async with offsets_of(broker, timeout_s=20.0) as offsets:
            other = TopicPartition("others", 0)
            await offsets.offsets._cluster.refresh(["events"])
            offsets.subscription.assign_manually([FIRST])
            offsets.subscription.state(FIRST).topic_id = TOPIC_ID if is_fetched else None
            usual = broker.script

            def changed(request: Any) -> Any:
                if isinstance(request, MetadataRequest) and request.topics:
                    answer = broker.metadata(request)
                    for topic in answer.topics:
                        topic.topic_id = random_uuid()
                    return answer
                if isinstance(request, OffsetCommitRequest) and any(one.topic_id == TOPIC_ID for one in request.topics):
                    return broker._commit(request, ErrorCode.UNKNOWN_TOPIC_ID)
                return usual(request)

            broker.script = changed
            if not is_created_again:
                del broker.topics["events"]
            asked = offsets.ledger.ask({FIRST: OffsetAndMetadata(5), other: OffsetAndMetadata(6)})
            words = "created again" if is_created_again else "deleted"
            with pytest.raises(CommitFailedError, match=f"events-0 was not committed: the topic .*{words}"):
                await offsets.offsets.commit({FIRST: asked})
            await offsets.offsets.commit({other: asked})
            assert broker.committed == {0: 6}

    run(scenario)


def test_positions_are_not_committed_by_name_while_the_topic_is_unknown() -> None:
    """Another topic may have its name: a group that starts there would skip its first records."""

    async def scenario() -> None:
        broker = ScriptedGroup(topics={"events": 1})
        async with offsets_of(broker) as offsets:
            offsets.subscription.assign_manually([FIRST])
            offsets.subscription.state(FIRST).topic_id = random_uuid()
            with pytest.raises(CommitFailedError, match="created again"):
                await offsets.commit(p0=5)
            assert commits(broker) == []

    run(scenario)


def test_positions_are_committed_for_the_topic_that_was_consumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if another gets its name while the coordinator is looked up."""

    async def scenario() -> None:
        broker = ScriptedGroup(topics={"events": 1})
        async with offsets_of(broker) as offsets:
            cluster, coordinator = offsets.offsets._cluster, offsets.offsets._coordinator
            await cluster.refresh(["events"])
            offsets.subscription.assign_manually([FIRST])
            offsets.subscription.state(FIRST).topic_id = TOPIC_ID
            usual, connection = broker.script, coordinator.connection

            def changed(request: Any) -> Any:
                if isinstance(request, MetadataRequest) and request.topics:
                    answer = broker.metadata(request)
                    answer.topics[0].topic_id = random_uuid()
                    return answer
                if isinstance(request, OffsetCommitRequest):
                    return broker._commit(request, ErrorCode.UNKNOWN_TOPIC_ID)
                return usual(request)

            async def slow_connection(lane: Lane) -> Any:
                broker.script = changed
                await cluster.refresh(["events"])
                return await connection(lane)

            monkeypatch.setattr(coordinator, "connection", slow_connection)
            with pytest.raises(CommitFailedError, match="created again"):
                await offsets.commit(p0=5)
            asked = [request for request in broker.requests if isinstance(request, OffsetCommitRequest)]
            assert [topic.topic_id for request in asked for topic in request.topics] == [TOPIC_ID]

    run(scenario)


def test_an_id_that_is_known_no_more_is_looked_up_before_offsets_are_asked_for_again() -> None:
    async def scenario() -> None:
        broker = ScriptedGroup()
        async with offsets_of(broker) as offsets:
            cluster = offsets.offsets._cluster
            await cluster.refresh(["events"])
            usual, new_id = broker.script, random_uuid()

            def changed(request: Any) -> Any:
                if isinstance(request, MetadataRequest) and request.topics:
                    answer = broker.metadata(request)
                    answer.topics[0].topic_id = new_id
                    return answer
                if isinstance(request, OffsetFetchRequest):
                    found = broker._fetch(request, ErrorCode.NONE)
                    for topic in found.groups[0].topics:
                        topic.partitions[0].error_code = 0 if topic.topic_id == new_id else ErrorCode.UNKNOWN_TOPIC_ID
                    return found
                return usual(request)

            broker.script = changed
            assert await offsets.offsets.committed([FIRST]) == {FIRST: None}

    run(scenario)


def test_a_coordinator_that_is_at_another_address_by_now_is_found_there() -> None:
    async def scenario() -> None:
        async with ScriptedGroup() as former, ScriptedGroup() as broker:
            place = former.address

            def script(request: Request) -> Answer | None:
                if isinstance(request, MetadataRequest):
                    answer = broker.metadata(request)
                    answer.brokers.append(MetadataBroker(node_id=9, host=place.host, port=place.port))
                    return answer
                if isinstance(request, FindCoordinatorRequest):
                    key = request.coordinator_keys[0]
                    found = Coordinator(key=key, node_id=9, host=place.host, port=place.port, error_message=None)
                    return FindCoordinatorResponse(coordinators=[found])
                return None

            broker.script = script
            async with Cluster([broker.address], QUICK) as cluster, ScriptedGroup() as latter:
                link = CoordinatorLink(cluster, "group")
                connection = await link.connection(Lane.OFFSETS)
                assert connection.address == former.address
                await former.__aexit__(None, None, None)
                await connection.wait_closed()
                place = latter.address
                connection = await cluster.retry(lambda: link.connection(Lane.OFFSETS), timeout_s=5)
                assert connection.address == latter.address

    asyncio.run(scenario())
