"""Markers for partitions of this broker and of others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition, random_uuid
from ottla.broker.metadata.metadata_cache import BrokerEndpoint, TopicChange
from ottla.broker.transactions.marker_appender import MarkerAppender
from ottla.broker.transactions.marker_sender import BrokerMarkerSender
from ottla.controller.state import PartitionState
from ottla.coordinator.transactions.seams import EndMarker
from ottla.wire.messages.write_txn_markers import (
    TxnMarkerPartitionResponse,
    TxnMarkerResponse,
    TxnMarkerTopicResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.wire.peer import PeerError
from support.brokers import batch_of
from support.brokers.small_broker import BROKER_ID, TOPIC_ID, SmallBroker, small_broker
from support.replication.roles import follow, lead
from support.waiting import until

OTHER = 2
MINE, THEIRS, MORE = (TopicPartition("orders", index) for index in range(3))
MARKER = EndMarker(5, 0, True, 3, 1)
NONE = ErrorCode.NONE


class OtherBroker:
    """Answers WriteTxnMarkers; `outcomes` are the next errors of each partition."""

    def __init__(self) -> None:
        self.requests: list[WriteTxnMarkersRequest] = []
        self.outcomes: dict[TopicPartition, list[ErrorCode]] = {}
        self.failures: list[Exception] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.is_closed = False

    async def send(self, request: WriteTxnMarkersRequest, *_: object, **__: object) -> WriteTxnMarkersResponse:
        self.requests.append(request)
        await self.may_answer.wait()
        if self.is_closed:
            raise PeerError("closed")
        if self.failures:
            raise self.failures.pop(0)
        return WriteTxnMarkersResponse(
            markers=[
                TxnMarkerResponse(
                    producer_id=marker.producer_id,
                    topics=[
                        TxnMarkerTopicResponse(
                            name=topic.name,
                            partitions=[
                                TxnMarkerPartitionResponse(
                                    partition_index=index, error_code=self._outcome(TopicPartition(topic.name, index))
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    def _outcome(self, name: TopicPartition) -> ErrorCode:
        left = self.outcomes.get(name)
        return left.pop(0) if left else NONE

    def close(self) -> None:
        self.is_closed = True
        self.may_answer.set()


class Groups:
    def __init__(self) -> None:
        self.ended: list[tuple[int, int, int, bool]] = []

    def end_transaction(self, index: int, marker_end: int, producer_id: int, *, committed: bool) -> None:
        self.ended.append((index, marker_end, producer_id, committed))


class World:
    """Partition 0 of the topic is led here, the others by another broker."""

    def __init__(self, broker: SmallBroker) -> None:
        self.broker = broker
        self.mine, theirs, more = broker.topic("orders", 3)
        for each in (theirs, more):
            follow(each, leader=OTHER, leader_epoch=1, isr=(OTHER,), replicas=(OTHER, BROKER_ID))
        self.tell(OTHER)
        self.other = OtherBroker()
        self.groups = Groups()
        appender = MarkerAppender(broker.replicas, broker.metadata, self.groups)
        loop = asyncio.get_running_loop()
        self.sender = BrokerMarkerSender(broker.replicas, broker.metadata, appender, loop, self._open)
        self.done: list[ErrorCode] = []

    def _open(self, broker_id: int) -> Any:
        assert broker_id == OTHER
        return self.other

    def tell(self, leader: int, *alive: int) -> None:
        """Metadata from the controller: who leads partitions 1 and 2."""
        brokers = alive or (BROKER_ID, OTHER)
        states = {
            index: PartitionState((OTHER, BROKER_ID), who, 1, (who,), 1, 1)
            for index, who in enumerate((BROKER_ID, leader, leader))
        }
        endpoints = [("PLAINTEXT", BrokerEndpoint(each, "host", each)) for each in brokers]
        self.broker.metadata.update(1, endpoints, [TopicChange("orders", TOPIC_ID, states)])

    def write(self, *names: TopicPartition, marker: EndMarker = MARKER) -> Any:
        return self.sender.write(marker, names, self.done.append)

    async def ended(self) -> list[ErrorCode]:
        await until(lambda: self.done, "the markers are not written")
        return self.done


Test = Callable[[World], Coroutine[Any, Any, None]]
Run = Callable[[Test], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(test: Test) -> None:
        async def main() -> None:
            with small_broker(tmp_path) as broker:
                world = World(broker)
                try:
                    await asyncio.wait_for(test(world), 30)
                finally:
                    await world.sender.close()

        asyncio.run(main())

    return run


def produce(world: World) -> None:
    records = batch_of(b"a", transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
    world.mine.append(bytearray(records), all_replicas=True)


def test_own_partitions_are_written_directly(run: Run) -> None:
    async def test(world: World) -> None:
        produce(world)
        world.write(MINE)
        assert world.mine.log is not None
        assert world.mine.log.first_unstable_offset is None
        assert world.done == []  # never before `write` returns
        assert await world.ended() == [NONE]
        assert not world.other.requests
        assert not world.groups.ended

    run(test)


def test_only_replicas_of_own_partitions_are_written_at_once(run: Run) -> None:
    async def test(world: World) -> None:
        log = world.mine.log
        assert log is not None
        produce(world)
        assert not world.sender.write_now(MARKER, [MINE, THEIRS])
        assert not world.sender.write_now(MARKER, [MINE, TopicPartition("gone", 0)])
        assert log.next_offset == 1  # none has the marker
        lead(world.mine, leader_epoch=2, isr=(BROKER_ID,), replicas=(BROKER_ID, OTHER))
        assert not world.sender.write_now(MARKER, [MINE])
        assert log.next_offset == 1
        lead(world.mine, leader_epoch=3, isr=(BROKER_ID,), replicas=(BROKER_ID,))
        assert world.sender.write_now(MARKER, [MINE])
        assert (log.next_offset, log.first_unstable_offset) == (2, None)
        assert not world.sender.write_now(MARKER._replace(coordinator_epoch=2), [MINE])  # refused
        assert log.next_offset == 2
        await world.sender.close()
        assert not world.sender.write_now(MARKER, [MINE])

    run(test)


def test_nothing_is_written_at_once_where_the_disk_is_awaited(run: Run) -> None:
    async def test(world: World) -> None:
        log = world.mine.log
        assert log is not None
        produce(world)
        log.config = replace(log.config, flush_messages=1)
        assert not world.sender.write_now(MARKER, [MINE])
        assert log.next_offset == 1

    run(test)


def test_all_partitions_of_a_leader_are_in_one_request(run: Run) -> None:
    async def test(world: World) -> None:
        world.write(MINE, THEIRS, MORE)
        assert await world.ended() == [NONE]
        (request,) = world.other.requests
        (marker,) = request.markers
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (5, 0, 3)
        assert (marker.transaction_result, marker.transaction_version) == (True, 1)
        assert [(each.name, sorted(each.partition_indexes)) for each in marker.topics] == [("orders", [1, 2])]

    run(test)


def test_markers_that_come_meanwhile_share_the_next_request(run: Run) -> None:
    async def test(world: World) -> None:
        world.other.may_answer.clear()
        world.write(THEIRS)
        await until(lambda: world.other.requests, "nothing is sent")
        for producer_id in (6, 7, 7):  # the last one is the same producer: its outcomes could not be told apart
            world.write(THEIRS, marker=MARKER._replace(producer_id=producer_id))
        world.other.may_answer.set()
        await until(lambda: len(world.done) == 4, "the markers are not written")
        asked = [[each.producer_id for each in request.markers] for request in world.other.requests]
        assert asked == [[5], [6, 7], [7]]

    run(test)


def test_what_fails_is_tried_again(run: Run) -> None:
    async def test(world: World) -> None:
        world.other.outcomes[THEIRS] = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS]
        world.other.failures = [PeerError("no connection"), RuntimeError("a defect")]
        world.write(THEIRS, MORE)
        assert await world.ended() == [NONE]
        asked = [each.markers[0].topics[0].partition_indexes for each in world.other.requests]
        assert [sorted(each) for each in asked] == [[1, 2], [1, 2], [1, 2], [1], [1]]

    run(test)


def test_an_own_partition_that_fails_unexpectedly_is_tried_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        produce(world)
        append, failures = world.mine.append_marker, [RuntimeError("a defect")]

        def append_marker(**marker: Any) -> int:
            if failures:
                raise failures.pop()
            return append(**marker)

        monkeypatch.setattr(type(world.mine), "append_marker", lambda _, **marker: append_marker(**marker))
        world.write(MINE, THEIRS)
        assert await world.ended() == [NONE]
        assert world.mine.log is not None
        assert world.mine.log.first_unstable_offset is None

    run(test)


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_a_replaced_coordinator_or_producer_ends_the_write(run: Run, error: ErrorCode) -> None:
    async def test(world: World) -> None:
        world.other.outcomes[THEIRS] = [error]
        world.other.outcomes[MORE] = [ErrorCode.REQUEST_TIMED_OUT]
        world.write(THEIRS, MORE)
        assert await world.ended() == [error]
        world.sender.metadata_changed()
        await asyncio.sleep(0)
        assert len(world.other.requests) == 1
        assert world.sender.waiting_count == 0

    run(test)


def test_a_new_leader_gets_what_the_former_one_did_not_take(run: Run) -> None:
    async def test(world: World) -> None:
        world.other.may_answer.clear()  # as if it hung
        world.write(THEIRS)
        await until(lambda: world.other.requests, "nothing is sent")
        partition = world.broker.replicas.get(*THEIRS)
        assert partition is not None
        lead(partition, leader_epoch=2, isr=(BROKER_ID,), replicas=(OTHER, BROKER_ID))
        world.tell(BROKER_ID, BROKER_ID)
        world.sender.metadata_changed()
        assert world.other.is_closed
        assert await world.ended() == [NONE]
        assert partition.log is not None
        assert partition.log.next_offset == 1

    run(test)


def test_a_partition_without_a_leader_waits_for_one(run: Run) -> None:
    async def test(world: World) -> None:
        world.tell(-1)
        world.write(MINE, THEIRS)
        await asyncio.sleep(0)
        assert (world.done, world.sender.waiting_count) == ([], 1)
        world.tell(OTHER)
        world.sender.metadata_changed()
        assert await world.ended() == [NONE]

    run(test)


def test_deleted_partitions_are_dropped_if_the_metadata_is_known(run: Run) -> None:
    async def test(world: World) -> None:
        gone = TopicPartition("gone", 0)
        world.broker.metadata.is_told = False
        world.write(MINE, gone)
        await asyncio.sleep(0)
        assert (world.done, world.sender.waiting_count) == ([], 1)
        world.tell(OTHER)
        world.sender.metadata_changed()
        assert await world.ended() == [NONE]

    run(test)


def test_partitions_that_the_controller_has_yet_to_name_are_not_deleted(run: Run) -> None:
    """A coordinator that has just started completes the transactions that it finds."""

    async def test(world: World) -> None:
        late = TopicPartition("late", 0)
        world.broker.metadata.expect({"late": [0]})
        world.tell(OTHER)
        world.write(MINE, late)
        await asyncio.sleep(0)
        assert (world.done, world.sender.waiting_count) == ([], 1)
        world.broker.metadata.expect({})
        world.sender.metadata_changed()
        assert await world.ended() == [NONE]

    run(test)


def test_partitions_that_the_tree_has_are_not_deleted(run: Run) -> None:
    """The controller created their topic, and died before it told this broker."""

    async def test(world: World) -> None:
        new, gone = TopicPartition("new", 0), TopicPartition("gone", 0)
        asked: list[TopicPartition] = []
        failures: list[Exception] = [TimeoutError()]

        async def is_in_tree(name: TopicPartition) -> bool:
            asked.append(name)
            if failures:
                raise failures.pop()
            return name != gone

        world.sender = BrokerMarkerSender(
            world.broker.replicas,
            world.broker.metadata,
            MarkerAppender(world.broker.replicas, world.broker.metadata, world.groups),
            asyncio.get_running_loop(),
            world._open,
            is_in_tree,
        )
        write = world.write(MINE, new, gone)
        await until(lambda: write.left == {new} and not write.in_flight)
        assert set(asked) == {new, gone}
        assert (world.done, world.sender.waiting_count) == ([], 1)
        state = PartitionState((OTHER,), OTHER, 0, (OTHER,), 1, 0)
        endpoints = [("PLAINTEXT", BrokerEndpoint(each, "host", each)) for each in (BROKER_ID, OTHER)]
        world.broker.metadata.update(2, endpoints, [TopicChange("new", random_uuid(), {0: state})])
        world.sender.metadata_changed()
        assert await world.ended() == [NONE]
        (marker,) = world.other.requests[0].markers
        assert [topic.name for topic in marker.topics] == ["new"]

    run(test)


def test_nothing_is_told_after_a_cancellation(run: Run) -> None:
    async def test(world: World) -> None:
        world.write(MINE).cancel()  # it is written already, and its coordinator does not want to know
        world.other.outcomes[THEIRS] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        world.write(THEIRS).cancel()
        world.write(MORE)
        assert await world.ended() == [NONE]
        world.sender.metadata_changed()
        await asyncio.sleep(0)
        assert world.done == [NONE]

    run(test)


def test_a_marker_waits_for_the_other_replicas(run: Run) -> None:
    async def test(world: World) -> None:
        now_s = world.broker.replicas.environment.clock_s()
        lead(world.mine, leader_epoch=1, isr=(BROKER_ID, OTHER), replicas=(BROKER_ID, OTHER))
        world.write(MINE)
        await asyncio.sleep(0)
        assert world.done == []
        for offset in (0, 1):
            world.mine.follower_fetched(
                OTHER,
                fetch_offset=offset,
                log_start_offset=0,
                leader_end_offset_at_read=1,
                broker_epoch=-1,
                now_s=now_s,
            )
        world.broker.replicas.produces.changed(world.mine)
        world.broker.replicas.produces.look_now()  # which a running broker's loop does
        assert await world.ended() == [NONE]

    run(test)


def test_a_marker_for_offsets_ends_the_transaction_in_the_group_coordinator_once(run: Run) -> None:
    async def test(world: World) -> None:
        (offsets,) = world.broker.topic("__consumer_offsets")
        world.write(offsets.name)
        assert world.groups.ended == [(0, 1, 5, True)]
        assert await world.ended() == [NONE]
        fenced = MARKER._replace(coordinator_epoch=1)
        world.write(offsets.name, marker=fenced)
        await until(lambda: len(world.done) == 2, "the write does not end")
        assert world.done[1] is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert len(world.groups.ended) == 1

    run(test)
