"""The follower's core in dialogues with a leader."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.log.config import LogConfig
from ottla.replication.fetching.followed import State
from ottla.replication.fetching.settings import FetchSettings
from ottla.replication.partition import Partition
from ottla.testing.disk_faults import DiskOperation
from ottla.testing.manual_clock import ManualClock
from ottla.wire.messages.fetch import FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse
from ottla.wire.messages.list_offsets import ListOffsetsRequest
from ottla.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from support.replication.following import Following
from support.replication.leader_side import LeaderSide
from support.replication.roles import follow, lead
from support.replication.simulated_replica import SimulatedReplica, batch, content

NAME = TopicPartition("orders", 0)
ID = Uuid(b"topic-id-of-orde")
REPLICAS = (1, 2)


class World:
    """Broker 1 leads, broker 2 follows."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.clock = ManualClock()
        self.loop = loop
        self.one = SimulatedReplica(1, loop, self.clock)
        self.two = SimulatedReplica(2, loop, self.clock)
        self.side = LeaderSide(self.one.partitions)
        self.following = Following(self.side, self.clock)

    def host(
        self, name: TopicPartition = NAME, config: LogConfig | None = None, topic_id: Uuid = ID
    ) -> tuple[Partition, Partition]:
        config = config or LogConfig()
        return self.one.host(name, topic_id, config), self.two.host(name, topic_id, config)

    def led(
        self, name: TopicPartition = NAME, config: LogConfig | None = None, topic_id: Uuid = ID, epoch: int = 0
    ) -> tuple[Partition, Partition]:
        leader, follower = self.host(name, config, topic_id)
        self.roles(leader, follower, epoch)
        self.following.follow(follower)
        return leader, follower

    @staticmethod
    def roles(leader: Partition, follower: Partition, epoch: int) -> None:
        lead(leader, leader_epoch=epoch, isr=REPLICAS, replicas=REPLICAS)
        follow(follower, leader.broker_id, leader_epoch=epoch, isr=REPLICAS, replicas=REPLICAS)


@pytest.fixture
def world() -> Iterator[World]:
    loop = asyncio.new_event_loop()
    yield World(loop)
    loop.close()


def write(partition: Partition, *values: bytes) -> None:
    partition.append(batch(*values), all_replicas=False)


def end_of(partition: Partition) -> int:
    assert partition.log is not None
    return partition.log.next_offset


def answer_with(world: World, request: FetchRequest, error: ErrorCode, key: Uuid = ID) -> None:
    """The leader refuses partition 0."""
    refused = FetchPartitionResponse(partition_index=0, error_code=error, high_watermark=-1, records=b"")
    session_id = request.session_id or 1
    topics = [FetchTopicResponse(topic_id=key, partitions=[refused])]
    world.following.take(request, FetchResponse(session_id=session_id, responses=topics))


def ask_fetch(world: World) -> FetchRequest:
    request = world.following.ask()
    assert isinstance(request, FetchRequest)
    return request


# --- fetching -----------------------------------------------------------------------------------------------------


def test_a_follower_copies_its_leader_and_then_learns_the_high_watermark(world: World) -> None:
    leader, follower = world.led()
    write(leader, b"a", b"b")
    write(leader, b"c")
    world.following.step()
    assert content(follower.log) == content(leader.log)
    assert (leader.high_watermark, follower.high_watermark) == (0, 0)
    world.following.step()
    assert (leader.high_watermark, follower.high_watermark) == (3, 3)
    assert world.following.stats.bytes_in == leader.log.size if leader.log else False
    assert world.following.core.partitions[NAME].lag == 0


def test_a_request_names_the_follower_its_epochs_and_the_topic_id(world: World) -> None:
    leader, _ = world.led(epoch=4)
    write(leader, b"a")
    request = world.following.step()
    assert isinstance(request, FetchRequest)
    assert request.replica_state is not None
    assert (request.replica_id, request.replica_state.replica_id, request.replica_state.replica_epoch) == (-1, 2, 77)
    assert request.topics[0].topic_id == ID
    assert request.topics[0].partitions[0].current_leader_epoch == 4
    assert world.following.fetched() == {0: (0, -1)}
    world.following.step()
    assert world.following.fetched() == {0: (1, 4)}


def test_a_round_without_news_names_no_partition(world: World) -> None:
    for number in range(20):
        world.led(TopicPartition("orders", number))
    world.following.steps(3)
    request = world.following.step()
    assert isinstance(request, FetchRequest)
    assert (request.topics, request.forgotten_topics_data) == ([], [])
    assert (request.session_epoch, request.max_wait_ms) == (3, 500)
    write(world.one.partitions[TopicPartition("orders", 7)], b"a")
    world.following.steps(2)
    assert world.following.fetched() == {7: (1, 0)}


def test_a_leader_that_forgot_the_session_gets_everything_again_at_once(world: World) -> None:
    leader, follower = world.led()
    world.following.steps(2)
    world.side.sessions.clear()
    write(leader, b"a")
    world.following.step()
    assert end_of(follower) == 0
    request = world.following.step()
    assert isinstance(request, FetchRequest)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert end_of(follower) == 1


def test_a_wrong_session_epoch_ends_the_old_session(world: World) -> None:
    world.led()
    world.following.steps(2)
    (session_id,) = world.side.sessions
    world.side.sessions[session_id].epoch = 99
    world.following.step()
    request = world.following.step()
    assert isinstance(request, FetchRequest)
    assert (request.session_id, request.session_epoch) == (session_id, 0)
    assert len(world.side.sessions) == 1


def test_a_session_that_always_fails_is_not_retried_in_a_busy_loop(world: World) -> None:
    world.led()
    request = ask_fetch(world)
    world.following.take(request, FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH))
    request = ask_fetch(world)
    world.following.take(request, FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH))
    assert world.following.ask() is None
    assert world.following.core.wake_s(0.0) == pytest.approx(0.05)


def test_a_lost_connection_is_tried_again_with_growing_delays(world: World) -> None:
    _, follower = world.led()
    world.following.step()
    delays = []
    for _ in range(7):
        delays.append(world.following.core.lost(world.clock.monotonic_s()))
        assert world.following.ask() is None
        world.clock.advance_ms(round(delays[-1] * 1000))
        assert world.following.ask() is not None
    assert delays == [0.02, 0.05, 0.1, 0.2, 0.4, 1.0, 1.0]
    world.following.core.lost(world.clock.monotonic_s())
    world.following.follow(follower)  # the controller says that this leader is there
    request = ask_fetch(world)
    assert request.session_epoch == 0


def test_a_full_fetch_that_is_answered_in_part_begins_again(world: World) -> None:
    world.led()
    world.led(TopicPartition("orders", 1))
    request = ask_fetch(world)
    one = FetchTopicResponse(topic_id=ID, partitions=[FetchPartitionResponse(partition_index=0, records=b"")])
    world.following.take(request, FetchResponse(session_id=5, responses=[one]))
    world.clock.advance_ms(1000)
    assert ask_fetch(world).session_epoch == 0


def test_topics_without_an_id_are_fetched_by_name_in_a_new_session(world: World) -> None:
    leader, follower = world.led()
    world.following.steps(2)
    old, copy = world.led(TopicPartition("old", 0), topic_id=ZERO_UUID)
    write(leader, b"a")
    write(old, b"b")
    request = world.following.step()
    assert isinstance(request, FetchRequest)
    assert request.session_epoch == 0
    assert [topic.topic for topic in request.topics] == ["orders", "old"]
    assert world.following.core.fetch_version(17) == 12
    assert (end_of(follower), end_of(copy)) == (1, 1)
    world.following.core.remove(old.name)
    world.following.step()
    assert world.following.core.fetch_version(17) == 17
    write(leader, b"c")
    world.following.step()
    assert end_of(follower) == 2


def test_a_fetch_larger_than_a_segment_is_split(world: World) -> None:
    leader, follower = world.led(config=LogConfig(segment_bytes=300))
    for _ in range(10):
        write(leader, b"x" * 100)
    world.side.max_bytes = 2**20
    world.following.steps(12)
    assert content(follower.log) == content(leader.log)


# --- answers that come too late -----------------------------------------------------------------------------------


def test_an_answer_from_before_a_new_epoch_is_dropped(world: World) -> None:
    leader, follower = world.led()
    write(leader, b"a")
    request = ask_fetch(world)
    response = world.side.answer(request, 17)
    world.roles(leader, follower, 1)
    world.following.follow(follower)
    world.following.take(request, response)
    assert end_of(follower) == 0
    world.following.step()
    assert end_of(follower) == 1


def test_an_answer_for_a_removed_partition_is_dropped(world: World) -> None:
    leader, follower = world.led()
    write(leader, b"a")
    request = ask_fetch(world)
    response = world.side.answer(request, 17)
    world.following.core.remove(NAME)
    world.following.take(request, response)
    assert end_of(follower) == 0
    assert world.following.ask() is None


def test_a_partition_whose_role_changed_is_left_alone(world: World) -> None:
    leader, follower = world.led()
    write(leader, b"a")
    request = ask_fetch(world)
    response = world.side.answer(request, 17)
    lead(follower, leader_epoch=1, isr=REPLICAS, replicas=REPLICAS)
    world.following.take(request, response)
    assert end_of(follower) == 0
    assert NAME not in world.following.core.partitions
    assert not world.following.stats.failed


def test_a_removed_partition_is_forgotten_with_the_next_request_for_others(world: World) -> None:
    world.led()
    world.led(TopicPartition("orders", 1))
    world.following.steps(2)
    world.following.core.remove(NAME)
    request = world.following.step()
    assert isinstance(request, FetchRequest)
    assert [(topic.topic_id, topic.partitions) for topic in request.forgotten_topics_data] == [(ID, [0])]
    assert list(next(iter(world.side.sessions.values())).partitions) == [(ID, 1)]


# --- truncation ---------------------------------------------------------------------------------------------------


def diverged(world: World) -> tuple[Partition, Partition]:
    """Broker 1 has epochs 0, 2; broker 2 has 0, 1 with more records, and follows in epoch 2."""
    one, two = world.host()
    for partition in (one, two):
        lead(partition, leader_epoch=0, isr=(partition.broker_id,), replicas=REPLICAS)
        write(partition, b"same")
        write(partition, b"same")
    lead(two, leader_epoch=1, isr=(2,), replicas=REPLICAS)
    write(two, b"lost")
    write(two, b"lost too")
    world.roles(one, two, 2)
    write(one, b"other")
    return one, two


def test_records_that_the_leader_does_not_have_are_cut_off(world: World) -> None:
    leader, follower = diverged(world)
    world.following.follow(follower)
    world.following.step()
    assert world.following.fetched() == {0: (4, 1)}
    assert end_of(follower) == 2
    world.following.steps(2)
    assert content(follower.log) == content(leader.log)


def test_the_recovery_point_of_a_log_that_was_cut_is_written_down(world: World) -> None:
    _, follower = diverged(world)
    assert follower.log is not None
    follower.log.flush()
    world.two.checkpoint()
    assert world.two.saved[NAME].recovery_point == 4
    world.following.follow(follower)
    world.following.step()
    assert end_of(follower) == 2
    assert world.two.saved[NAME].recovery_point == 2


def test_with_several_unknown_epochs_it_takes_several_rounds(world: World) -> None:
    one, two = world.host()
    for partition, epochs in ((one, (0, 2, 4)), (two, (0, 1, 3, 5))):
        for epoch in epochs:
            lead(partition, leader_epoch=epoch, isr=(partition.broker_id,), replicas=REPLICAS)
            write(partition, b"same" if epoch == 0 else b"%d" % epoch)
    world.roles(one, two, 6)
    world.following.follow(two)
    world.following.steps(6)
    assert content(two.log) == content(one.log)


def test_an_old_leader_that_wrote_nothing_in_its_epoch_loses_nothing(world: World) -> None:
    one, two = world.host()
    lead(one, leader_epoch=0, isr=REPLICAS, replicas=REPLICAS)
    follow(two, 1, leader_epoch=0)
    write(one, b"a")
    world.following.follow(two)
    world.following.steps(2)
    lead(two, leader_epoch=1, isr=REPLICAS, replicas=REPLICAS)
    world.roles(one, two, 2)
    world.following.follow(two)
    world.following.steps(3)
    assert content(two.log) == content(one.log)
    assert end_of(two) == 1


def test_a_log_without_epochs_keeps_only_what_was_committed(world: World) -> None:
    leader, follower = world.host()
    lead(leader, leader_epoch=0, isr=(1,), replicas=REPLICAS)
    write(leader, b"a")
    write(leader, b"b")
    assert follower.log is not None
    follower.log.append_as_follower(batch(b"a", epoch=-1))
    follower.log.append_as_follower(batch(b"never", epoch=-1, base_offset=1))
    follower.log.set_high_watermark(1)
    world.roles(leader, follower, 1)
    world.following.follow(follower)
    world.following.step()
    assert world.following.fetched() == {0: (1, -1)}
    assert end_of(follower) == 2


def test_an_old_leader_is_asked_for_the_ends_of_epochs(world: World) -> None:
    world.side.fetch_version = 11
    leader, follower = diverged(world)
    world.following.follow(follower)
    request = world.following.step()
    assert isinstance(request, OffsetForLeaderEpochRequest)
    assert request.replica_id == 2
    assert end_of(follower) == 2
    request = world.following.step()
    assert isinstance(request, FetchRequest)
    assert (request.replica_id, request.replica_state) == (2, None)
    assert content(follower.log) == content(leader.log)


def test_an_old_leader_is_asked_again_while_the_epochs_differ(world: World) -> None:
    world.side.fetch_version = 11
    one, two = world.host()
    for partition, epochs in ((one, (0, 2, 4)), (two, (0, 1, 3, 5))):
        for epoch in epochs:
            lead(partition, leader_epoch=epoch, isr=(partition.broker_id,), replicas=REPLICAS)
            write(partition, b"same" if epoch == 0 else b"%d" % epoch)
    world.roles(one, two, 6)
    world.following.follow(two)
    world.following.steps(8)
    assert content(two.log) == content(one.log)
    asked = [type(request) for request in world.following.requests]
    assert asked.index(FetchRequest) == 3
    assert set(asked[3:]) == {FetchRequest}


def test_nothing_is_kept_of_a_log_that_parts_before_the_leaders_log_start(world: World) -> None:
    leader, follower = world.host()
    lead(leader, leader_epoch=1, isr=(1,), replicas=REPLICAS)
    write(leader, b"a", b"b")
    write(leader, b"c")
    leader.delete_records(2)
    lead(follower, leader_epoch=0, isr=(2,), replicas=REPLICAS)
    for _ in range(5):
        write(follower, b"other")
    world.roles(leader, follower, 2)
    world.following.follow(follower)
    world.following.step()
    assert follower.log is not None
    assert (follower.log.log_start_offset, follower.log.next_offset) == (2, 2)
    world.following.steps(3)
    assert content(follower.log) == content(leader.log)


def test_a_log_that_ends_within_a_batch_of_the_leader_loses_its_last_batch(world: World) -> None:
    """A leader that forgot in a crash that its log started within the batch: its epoch seems to begin there."""
    leader, follower = world.host()
    lead(leader, leader_epoch=1, isr=(1,), replicas=REPLICAS)
    write(leader, b"a", b"b")
    lead(follower, leader_epoch=0, isr=(2,), replicas=REPLICAS)
    write(follower, b"other")
    assert leader.log is not None
    leader.log.epochs.truncate_from_start(1)
    world.roles(leader, follower, 2)
    world.following.follow(follower)
    world.following.steps(4)
    assert content(follower.log) == content(leader.log)


# --- out of range -------------------------------------------------------------------------------------------------


def test_a_leader_that_deleted_what_comes_next_makes_the_follower_start_there(world: World) -> None:
    leader, follower = world.host()
    lead(leader, leader_epoch=0, isr=(1,), replicas=REPLICAS)
    write(leader, b"a")
    write(leader, b"b")
    write(leader, b"c")
    leader.delete_records(2)
    world.roles(leader, follower, 1)
    world.following.follow(follower)
    world.following.steps(5)
    asked = [type(request) for request in world.following.requests]
    assert asked[:3] == [FetchRequest, ListOffsetsRequest, ListOffsetsRequest]
    assert follower.log is not None
    assert (follower.log.log_start_offset, follower.log.next_offset) == (2, 3)


def test_a_leader_whose_log_starts_within_a_batch(world: World) -> None:
    leader, follower = world.host()
    lead(leader, leader_epoch=0, isr=(1,), replicas=REPLICAS)
    write(leader, b"a", b"b", b"c")
    leader.delete_records(1)
    world.roles(leader, follower, 1)
    world.following.follow(follower)
    world.following.steps(6)
    assert follower.log is not None
    assert (follower.log.log_start_offset, follower.log.next_offset) == (1, 3)
    assert content(follower.log) == content(leader.log)


def test_a_leader_with_a_shorter_log_cuts_the_follower(world: World) -> None:
    leader, follower = world.led()
    write(leader, b"a")
    world.following.steps(2)
    assert follower.log is not None
    follower.log.append_as_follower(batch(b"extra", base_offset=1))
    world.following.follow(follower)
    request = ask_fetch(world)
    answer_with(world, request, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert isinstance(world.following.step(), ListOffsetsRequest)
    assert end_of(follower) == 1
    assert isinstance(world.following.step(), FetchRequest)


def test_an_error_while_looking_for_offsets_goes_back_to_fetching(world: World) -> None:
    leader, _ = world.led()
    request = ask_fetch(world)
    answer_with(world, request, ErrorCode.OFFSET_OUT_OF_RANGE)
    world.side.partitions = {}
    assert isinstance(world.following.step(), ListOffsetsRequest)
    assert world.following.ask() is None
    world.clock.advance_ms(20)
    world.side.partitions = {NAME: leader}
    assert isinstance(world.following.step(), FetchRequest)


# --- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_errors_that_pass_are_retried_soon_and_then_slowly(world: World, error: ErrorCode) -> None:
    world.led()
    delays = []
    for _ in range(7):
        request = ask_fetch(world)
        answer_with(world, request, error)
        assert world.following.ask() is None
        delays.append(round((world.following.core.wake_s(0.0) - world.clock.monotonic_s()) * 1000))
        world.clock.advance_ms(delays[-1])
    assert delays == [20, 50, 100, 200, 400, 1000, 1000]
    world.following.steps(2)  # the session is not known to the leader
    assert world.following.core.partitions[NAME].failures == 0


def test_a_storage_error_of_the_leader_waits_the_whole_delay(world: World) -> None:
    world.led()
    answer_with(world, ask_fetch(world), ErrorCode.KAFKA_STORAGE_ERROR)
    assert world.following.core.wake_s(0.0) == 1.0


def test_a_newer_epoch_at_the_leader_stops_following_until_the_next_leader_and_isr(world: World) -> None:
    leader, follower = world.led()
    lead(leader, leader_epoch=1, isr=REPLICAS, replicas=REPLICAS)
    world.following.step()
    assert world.following.stats.failed == {NAME}
    assert world.following.ask() is None
    follow(follower, 1, leader_epoch=1)
    write(leader, b"a")
    world.following.follow(follower)
    world.following.step()
    assert end_of(follower) == 1


def test_one_partition_that_waits_does_not_hold_the_others_up(world: World) -> None:
    world.led()
    leader, follower = world.led(TopicPartition("orders", 1))
    world.following.steps(2)
    request = ask_fetch(world)
    answer_with(world, request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    write(leader, b"a")
    request = ask_fetch(world)
    assert request.max_wait_ms == 20
    assert [topic.partitions for topic in request.forgotten_topics_data] == [[0]]
    world.side.sessions[request.session_id].epoch = request.session_epoch
    world.following.take(request, world.side.answer(request, 17))
    assert end_of(follower) == 1
    world.clock.advance_ms(20)
    assert set(world.following.fetched()) == set()
    world.following.step()
    assert set(world.following.fetched()) == {0, 1}


def test_damaged_records_are_fetched_again(world: World) -> None:
    leader, follower = world.led()
    write(leader, b"a")
    request = ask_fetch(world)
    response = world.side.answer(request, 17)
    assert isinstance(response, FetchResponse)
    answer = response.responses[0].partitions[0]
    assert answer.records is not None
    damaged = bytearray(answer.records)
    damaged[-1] ^= 1
    answer.records = bytes(damaged)
    world.following.take(request, response)
    assert end_of(follower) == 0
    world.clock.advance_ms(20)
    world.following.step()
    assert end_of(follower) == 1


def test_records_of_a_newer_epoch_than_the_leaders_are_left_out(world: World) -> None:
    leader, follower = world.led()
    write(leader, b"a")
    request = ask_fetch(world)
    response = world.side.answer(request, 17)
    assert isinstance(response, FetchResponse)
    answer = response.responses[0].partitions[0]
    assert answer.records is not None
    answer.records = bytes(answer.records) + bytes(batch(b"newer", epoch=1, base_offset=1))
    world.following.take(request, response)
    assert end_of(follower) == 1


def test_a_failed_disk_ends_the_following(world: World) -> None:
    leader, follower = world.led()
    world.led(TopicPartition("orders", 1))
    write(leader, b"a")
    write(world.one.partitions[TopicPartition("orders", 1)], b"b")
    world.two.disk.fail(errno.EIO, when=lambda _, path: "orders-0" in str(path))
    world.following.step()
    assert world.following.stats.failed == {NAME}
    assert follower.log is None
    assert end_of(world.two.partitions[TopicPartition("orders", 1)]) == 1


def test_records_that_do_not_continue_the_log_fail_the_partition(world: World) -> None:
    leader, follower = world.led()
    write(leader, b"a")
    world.following.step()
    write(leader, b"b")
    request = ask_fetch(world)
    response = world.side.answer(request, 17)
    assert isinstance(response, FetchResponse)
    response.responses[0].partitions[0].records = bytes(batch(b"a"))
    world.following.take(request, response)
    assert world.following.stats.failed == {NAME}
    assert end_of(follower) == 1


# --- the disk -----------------------------------------------------------------------------------------------------

FLUSHED = LogConfig(flush_messages=1)


def test_a_flushed_topic_is_fetched_on_once_its_records_are_on_disk(world: World) -> None:
    leader, follower = world.led(config=FLUSHED)
    write(leader, b"a")
    world.one.sync()
    world.following.step()
    assert (end_of(follower), world.two.sync_count) == (1, 1)
    assert world.following.ask() is None
    assert leader.high_watermark == 0
    world.two.sync()
    assert follower.log is not None
    assert follower.log.recovery_point == 1
    world.following.step()
    assert leader.high_watermark == 1


def test_a_follower_first_flushes_what_a_crash_left_unflushed(world: World) -> None:
    leader, follower = world.host(config=FLUSHED)
    lead(leader, leader_epoch=0, isr=(1,), replicas=REPLICAS)
    write(leader, b"a")
    assert follower.log is not None
    follower.log.append_as_follower(batch(b"a"))
    world.roles(leader, follower, 1)
    world.following.follow(follower)
    assert world.following.ask() is None
    world.two.sync()
    assert isinstance(world.following.step(), FetchRequest)


def test_others_wait_a_moment_for_the_disk_and_then_go_on(world: World) -> None:
    flushed, _ = world.led(config=FLUSHED)
    other, copy = world.led(TopicPartition("orders", 1))
    world.following.steps(3)
    write(flushed, b"a")
    world.following.step()
    assert world.following.ask() is None
    assert world.following.core.wake_s(0.0) == pytest.approx(0.02)
    world.clock.advance_ms(20)
    write(other, b"b")
    request = world.following.step()
    assert isinstance(request, FetchRequest)
    assert request.max_wait_ms == 20
    assert end_of(copy) == 1


def test_a_sync_that_fails_fails_the_partition(world: World) -> None:
    leader, _ = world.led(config=FLUSHED)
    write(leader, b"a")
    world.following.step()
    world.two.disk.fail(errno.EIO, when=DiskOperation.SYNC)
    world.two.sync()
    assert world.following.stats.failed == {NAME}


def test_the_end_of_an_earlier_sync_does_not_count_after_a_new_epoch(world: World) -> None:
    leader, follower = world.led(config=FLUSHED)
    write(leader, b"a")
    world.following.step()
    world.roles(leader, follower, 1)
    world.following.follow(follower)
    assert world.following.ask() is None
    assert world.two.sync_count == 2
    world.two.sync()
    assert isinstance(world.following.ask(), FetchRequest)


# --- throttling ---------------------------------------------------------------------------------------------------


def test_a_throttled_replica_waits_while_the_rate_is_exceeded_unless_it_is_in_sync(world: World) -> None:
    leader, follower = world.host()
    lead(leader, leader_epoch=0, isr=(1,), replicas=REPLICAS)
    follow(follower, 1, leader_epoch=0)
    world.following.follow(follower)
    other, copy = world.led(TopicPartition("orders", 1))
    quota = world.following.quota
    quota.limit = 1000
    quota.set_replicas("orders", "0:2", 2)
    world.side.max_bytes = 100
    for _ in range(30):
        write(leader, b"x" * 1000)
    write(other, b"y")
    world.following.steps(2)
    assert end_of(follower) == 1  # one batch is more than the limit
    request = world.following.step()
    assert isinstance(request, FetchRequest)
    assert request.max_wait_ms == 100
    assert end_of(follower) == 1
    assert end_of(copy) == 1
    world.clock.advance_ms(2000)
    world.following.step()
    assert end_of(follower) == 2
    quota.limit = None
    world.following.steps(40)
    assert end_of(follower) == 30
    quota.limit = 1
    write(leader, b"z")
    world.following.step()
    assert end_of(follower) == 31


# --- handing over -------------------------------------------------------------------------------------------------


def test_partitions_can_continue_in_another_core_even_while_they_wait_for_the_disk(world: World) -> None:
    leader, follower = world.led(config=FLUSHED)
    other, copy = world.led(TopicPartition("orders", 1))
    write(leader, b"a")
    world.following.step()
    second = Following(world.side, world.clock)
    world.following.core.hand_over(second.core)
    assert not world.following.core.partitions
    write(other, b"b")
    second.step()
    assert end_of(copy) == 1
    assert 0 not in second.fetched()
    world.two.sync()
    second.step()
    assert second.fetched()[0] == (1, 0)
    assert end_of(follower) == 1


def test_the_state_of_each_partition_can_be_seen(world: World) -> None:
    _, follower = world.led()
    followed = world.following.core.partitions[NAME]
    states = [followed.state]
    world.following.step()
    states.append(followed.state)
    assert states == [State.STARTING, State.FETCHING]
    assert repr(followed) == "Followed(orders-0, FETCHING, offset=0, epoch=0)"
    assert followed.partition is follower


def test_settings_bound_the_first_delays_too() -> None:
    settings = FetchSettings(backoff_ms=30)
    assert [settings.retry_s(n) for n in (1, 2, 9)] == [0.02, 0.03, 0.03]


def test_leaders_with_newer_epochs_are_one_line_of_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    names = [TopicPartition("orders", index) for index in range(5)]
    led = [world.led(name) for name in names]
    world.following.steps(2)
    for leader, _ in led:
        lead(leader, leader_epoch=1, isr=REPLICAS, replicas=REPLICAS)
    with caplog.at_level("INFO"):
        world.following.step()
    assert world.following.stats.failed == set(names)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "leader 1 of 5 partitions (orders-0, orders-1, orders-2, …) has a newer epoch" in line
