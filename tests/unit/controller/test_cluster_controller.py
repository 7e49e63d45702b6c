"""The controller of a cluster: election, brokers that come and go, topics, ISRs, deletion."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType

import pytest

from ottla.base.coordination import Create, SessionState, SetData, Watch, Znode
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.controller.errors import ControllerError
from ottla.controller.wanted_topics import NewPartitionCount, WantedTopic
from ottla.wire.messages.alter_partition import AlterPartitionBrokerState, AlterPartitionPartitionResponse
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.wire.messages.stop_replica import StopReplicaRequest
from ottla.wire.messages.update_metadata import UpdateMetadataRequest
from ottla.zookeeper import paths
from ottla.zookeeper.znodes import ControllerRegistration, PartitionLeader, ReplicaAssignment, TopicAssignment
from support.control.cluster import ControlCluster, on_cluster
from support.trees.memory_tree import MemorySession

T0 = TopicPartition("t", 0)


def code(answer: AlterPartitionPartitionResponse | int) -> int:
    return answer if isinstance(answer, int) else answer.error_code


# --- election -------------------------------------------------------------------------------------------------------


@on_cluster
async def test_the_first_broker_is_elected_and_the_others_know_it(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    assert cluster.active.broker_id == 1
    assert cluster.controller.epoch == 1
    assert [member.controller.controller_id for member in cluster.members.values()] == [1, 1, 1]
    data = cluster.tree.data(paths.CONTROLLER)
    assert data is not None
    assert ControllerRegistration.decode(paths.CONTROLLER, data).broker_id == 1
    assert cluster.tree.data(paths.CONTROLLER_EPOCH) == b"1"
    assert cluster.tree.data(paths.FEATURE) == b'{"features":{},"version":2,"status":1}'


@on_cluster
async def test_another_broker_takes_over_with_a_higher_epoch(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (1, 2, 3))
    await cluster.kill(1)
    assert cluster.active.broker_id in (2, 3)
    assert cluster.controller.epoch == 2
    state = cluster.state("t")
    assert (state.leader, state.isr, state.leader_epoch, state.controller_epoch) == (2, (2, 3), 1, 2)
    assert cluster.hosts[2].roles[T0].leader == 2
    assert cluster.leader_in_metadata(3, "t") == 2


@on_cluster
async def test_a_new_controller_tells_each_role_once_and_the_urgent_ones_first(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("untouched", (2, 3), (3, 2))
    await cluster.create("smaller", (2, 3, 1))
    await cluster.create("lost", (1, 2, 3), (1, 3, 2))
    for host in cluster.hosts.values():
        host.requests.clear()
    await cluster.kill(1)
    for broker_id in (2, 3):
        requests = cluster.hosts[broker_id].requests
        roles = [
            (topic.topic_name, each.partition_index)
            for request in requests
            if isinstance(request, LeaderAndIsrRequest)
            for topic in request.topic_states
            for each in topic.partition_states
        ]
        assert roles == [("lost", 0), ("lost", 1), ("smaller", 0), ("untouched", 0), ("untouched", 1)]
        told = [
            (topic.topic_name, each.partition_index)
            for request in requests
            if isinstance(request, UpdateMetadataRequest)
            for topic in request.topic_states
            for each in topic.partition_states
        ]
        assert told == roles
        assert cluster.hosts[broker_id].metadata[TopicPartition("untouched", 0)].leader == 2
        assert cluster.hosts[broker_id].metadata[TopicPartition("smaller", 0)].offline_replicas == [1]
    assert (cluster.state("smaller").leader, cluster.state("smaller").isr) == (2, (2, 3))


@on_cluster
async def test_a_controller_whose_session_expired_changes_nothing_any_more(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    old = cluster.members[1]
    cluster.tree.expire(old.session)  # it has not noticed yet
    await cluster.settle()
    new = cluster.members[2]
    assert new.controller.is_active
    with pytest.raises(ControllerError) as caught:
        await old.controller.create_topic(WantedTopic("t", 1, 1))
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    assert cluster.tree.data(paths.topic("t")) is None


@on_cluster
async def test_a_replaced_controller_is_refused_by_the_tree(cluster: ControlCluster) -> None:
    """Its session lives, but another controller has raised the epoch."""
    await cluster.start(1, 2)
    old = cluster.members[1]
    old.session.watches.clear()  # the news does not reach it
    cluster.tree.apply([SetData(paths.CONTROLLER_EPOCH, b"7")], 0)
    with pytest.raises(ControllerError) as caught:
        await old.controller.create_topic(WantedTopic("t", 1, 1))
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    assert cluster.tree.data(paths.topic("t")) is None
    await cluster.settle()
    assert cluster.controller.epoch == 8


@on_cluster
async def test_an_expired_controller_runs_again(cluster: ControlCluster) -> None:
    await cluster.start(1)
    member = cluster.members[1]
    await member.lose_session()
    assert not member.controller.is_active
    assert member.controller.controller_id == -1
    member.reconnect()
    await member.controller.rejoin()
    assert member.controller.is_active
    assert member.controller.epoch == 2


@on_cluster
@pytest.mark.parametrize("lost", ["before", "after"])
async def test_a_lost_answer_does_not_prevent_an_election(cluster: ControlCluster, lost: str) -> None:
    await cluster.start(1, 2)
    losses = iter([lost])
    cluster.members[2].session.lose = lambda operations: (
        next(losses, None) if operations[0].path == paths.CONTROLLER else None
    )
    await cluster.kill(1)
    assert cluster.active.broker_id == 2


@on_cluster
async def test_closing_resigns_at_once(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    await cluster.members[1].controller.close()
    await cluster.settle()
    assert cluster.active.broker_id == 2


# --- topics ---------------------------------------------------------------------------------------------------------


@on_cluster
async def test_a_new_topic_gets_leaders_and_is_sent_to_all_brokers(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (2, 3), (3, 1))
    state = cluster.state("t", 0)
    assert state == PartitionLeader(2, 0, (2, 3), 1)
    role = cluster.hosts[3].roles[T0]
    assert (role.leader, role.leader_epoch, role.is_new, role.partition_epoch) == (2, 0, True, 0)
    assert T0 not in cluster.hosts[1].roles
    for broker_id in (1, 2, 3):
        assert cluster.leader_in_metadata(broker_id, "t", 0) == 2
        assert cluster.leader_in_metadata(broker_id, "t", 1) == 3


@on_cluster
async def test_requests_carry_epochs_and_ids(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (1, 2))
    request = next(each for each in cluster.hosts[2].requests if isinstance(each, LeaderAndIsrRequest))
    assert (request.controller_id, request.controller_epoch, request.type) == (1, 1, 0)
    assert request.broker_epoch == cluster.hosts[2].epoch
    assert request.topic_states[0].topic_id == cluster.assignment("t").topic_id
    assert [each.broker_id for each in request.live_leaders] == [1]
    news = [each for each in cluster.hosts[2].requests if isinstance(each, UpdateMetadataRequest)]
    assert news[-1].topic_states[0].topic_id == cluster.assignment("t").topic_id
    assert [each.id for each in news[-1].live_brokers] == [1, 2]


@on_cluster
async def test_replicas_are_spread(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    topic = await cluster.controller.create_topic(WantedTopic("t", 6, 2))
    leaders = [partition.leader for partition in topic.partitions]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
    held = [replica for partition in topic.partitions for replica in partition.replicas]
    assert {held.count(broker_id) for broker_id in (1, 2, 3)} == {4}


@on_cluster
async def test_a_topic_that_another_program_made_is_found(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    made = TopicAssignment(None, {0: ReplicaAssignment((2, 1))})  # without an id, as old tools do
    cluster.tree.apply([Create(paths.topic("t"), made.encode())], 0)
    await cluster.settle()
    assert cluster.state("t").leader == 2
    assert cluster.assignment("t").topic_id is not None
    grown = TopicAssignment(cluster.assignment("t").topic_id, {**made.partitions, 1: ReplicaAssignment((1, 2))})
    cluster.tree.apply([SetData(paths.topic("t"), grown.encode())], 0)
    await cluster.settle()
    assert cluster.state("t", 1).leader == 1


@on_cluster
async def test_any_broker_creates_topics_automatically(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    (outcome,) = await cluster.members[2].controller.auto_create_topics([WantedTopic("t", 2, 2)], "automatically")
    assert not isinstance(outcome, ControllerError)
    await cluster.settle()
    assert cluster.state("t", 1).isr == cluster.assignment("t").partitions[1].replicas
    (again,) = await cluster.members[2].controller.auto_create_topics([WantedTopic("t", 2, 2)], "automatically")
    assert isinstance(again, ControllerError)
    assert again.code is ErrorCode.TOPIC_ALREADY_EXISTS


@on_cluster
async def test_partitions_are_added(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (1, 2))
    (outcome,) = await cluster.controller.grow_topics([NewPartitionCount("t", 3)])
    assert not isinstance(outcome, ControllerError)
    await cluster.settle()
    assert sorted(partition.leader for partition in outcome.partitions) == [1, 2, 3]
    assert cluster.state("t", 2).leader == cluster.assignment("t").partitions[2].replicas[0]


@on_cluster
async def test_other_brokers_refuse(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    with pytest.raises(ControllerError) as caught:
        await cluster.members[2].controller.create_topics([WantedTopic("t", 1, 1)])
    assert caught.value.code is ErrorCode.NOT_CONTROLLER


@on_cluster
async def test_what_cannot_be_created_is_refused(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("a.b", (1,))
    wanted = [
        WantedTopic("a.b", 1, 1),
        WantedTopic("a_b", 1, 1),
        WantedTopic("c", 1, 3),
        WantedTopic("d", assignments=[(0, (1, 9))]),
        WantedTopic("e/f", 1, 1),
    ]
    outcomes = await cluster.controller.create_topics(wanted)
    assert [each.code for each in outcomes if isinstance(each, ControllerError)] == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]


@on_cluster
async def test_a_large_topic_is_written_in_parts(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.controller.create_topic(WantedTopic("t", 1000, 3))
    assert cluster.state("t", 999).leader > 0
    assert max(len(operations) for operations in cluster.tree.transactions) <= 301


@on_cluster
async def test_a_failover_finishes_a_creation(cluster: ControlCluster) -> None:
    """The topic's node was written, its states were not."""
    await cluster.start(1, 2)
    made = TopicAssignment(None, {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((2, 1))})
    cluster.members[1].session.watches.clear()
    cluster.tree.apply([Create(paths.topic("t"), made.encode())], 0)
    await cluster.kill(1)
    assert [cluster.state("t", index).leader for index in (0, 1)] == [2, 2]


# --- brokers --------------------------------------------------------------------------------------------------------


@on_cluster
async def test_a_dead_broker_loses_its_leaderships_and_its_places(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (2, 3), (3, 2))
    await cluster.create("lone", (2,))
    await cluster.kill(2)
    assert cluster.state("t", 0) == PartitionLeader(3, 1, (3,), 1)
    assert cluster.state("t", 1) == PartitionLeader(3, 1, (3,), 1)
    assert cluster.state("lone") == PartitionLeader(-1, 1, (2,), 1)  # the last member stays
    assert cluster.leader_in_metadata(1, "lone") == -1
    assert cluster.hosts[3].metadata[T0].offline_replicas == [2]
    assert cluster.hosts[3].live == {1, 3}
    assert cluster.controller.offline_partition_count == 1


@on_cluster
async def test_the_death_of_a_broker_is_about_its_own_partitions_only(
    cluster: ControlCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many others there are."""
    await cluster.start(1, 2, 3, 4)
    await cluster.create("many", *[(1, 2, 3)] * 50)
    await cluster.create("few", (4, 1, 2), (2, 4, 3))
    read: list[str] = []
    get, get_many = MemorySession.get, MemorySession.get_many

    async def counted_get(session: MemorySession, path: str, watch: Watch | None = None) -> Znode | None:
        read.append(path)
        return await get(session, path, watch)

    async def counted_get_many(
        session: MemorySession, paths: Sequence[str], watch: Watch | None = None
    ) -> list[Znode | None]:
        read.extend(paths)
        return await get_many(session, paths, watch)

    monkeypatch.setattr(MemorySession, "get", counted_get)
    monkeypatch.setattr(MemorySession, "get_many", counted_get_many)
    for host in cluster.hosts.values():
        host.requests.clear()
    await cluster.kill(4)
    for broker_id in (1, 2, 3):
        named = {
            topic.topic_name
            for request in cluster.hosts[broker_id].requests
            if isinstance(request, (LeaderAndIsrRequest, UpdateMetadataRequest, StopReplicaRequest))
            for topic in request.topic_states
        }
        assert named == {"few"}
    assert read
    assert not [path for path in read if path.startswith(paths.topic("many"))]
    assert (cluster.state("few", 0).leader, cluster.state("few", 1).isr) == (1, (2, 3))


def test_the_death_of_a_broker_costs_the_same_however_many_other_partitions_there_are() -> None:
    """Counted in calls of the controller's functions."""
    costs: dict[int, int] = {}

    @on_cluster
    async def count(cluster: ControlCluster, others: int) -> None:
        def note(frame: FrameType, event: str, _: object) -> None:
            costs[others] += event == "call" and "/ottla/controller/" in frame.f_code.co_filename

        await cluster.start(1, 2, 3, 4)
        await cluster.create("many", *[(1, 2, 3)] * others)
        await cluster.create("few", (4, 1, 2), (2, 4, 3))
        costs[others] = 0
        sys.setprofile(note)
        try:
            await cluster.kill(4)
        finally:
            sys.setprofile(None)
        assert cluster.state("few", 0).leader == 1

    for others in (10, 200):
        count(others=others)
    assert costs[200] == costs[10] > 0


@on_cluster
async def test_a_broker_that_comes_back_gets_its_roles(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (2, 3))
    await cluster.create("lone", (2,))
    await cluster.kill(2)
    await cluster.restart(2)
    assert cluster.hosts[2].roles[T0].leader == 3
    assert cluster.state("lone") == PartitionLeader(2, 2, (2,), 1)
    assert cluster.hosts[2].live == {1, 2, 3}
    assert cluster.leader_in_metadata(2, "t", 0) == 3
    assert cluster.controller.offline_partition_count == 0


@on_cluster
async def test_a_bounced_broker_fails_and_starts_in_one_event(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (2, 1))
    member = cluster.members[2]
    cluster.tree.expire(member.session)
    member.controller.session_state(SessionState.EXPIRED)
    await member.controller.close()
    await member.start()  # before the controller has looked
    await cluster.settle()
    assert cluster.state("t") == PartitionLeader(1, 1, (1,), 1)
    assert cluster.hosts[2].roles[T0].leader == 1


@on_cluster
async def test_requests_wait_for_a_broker_that_cannot_be_reached(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    cluster.active.links.cut.add(2)
    await cluster.create("t", (1, 2))
    assert T0 not in cluster.hosts[2].roles
    cluster.active.links.cut.clear()
    cluster.active.links.wake()
    await cluster.settle()
    assert cluster.hosts[2].roles[T0].leader == 1


@on_cluster
async def test_new_endpoints_are_sent_to_all_brokers(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    path = paths.broker(2)
    data = cluster.tree.data(path)
    assert data is not None
    cluster.tree.apply([SetData(path, data.replace(b"9092", b"9999"))], 0)
    await cluster.settle()
    request = [each for each in cluster.hosts[1].requests if isinstance(each, UpdateMetadataRequest)][-1]
    assert {each.id: each.endpoints[0].port for each in request.live_brokers} == {1: 9092, 2: 9999}


@on_cluster
async def test_a_suspected_broker_loses_its_places_until_it_answers(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (2, 3))
    await cluster.create("lone", (2,))
    cluster.active.links.cut.add(2)
    cluster.active.links.silent[2]()
    await cluster.settle()
    assert cluster.state("t", 0) == PartitionLeader(3, 1, (3,), 1)
    assert cluster.state("lone") == PartitionLeader(-1, 1, (2,), 1)
    assert code(await cluster.alter_isr("t", (3, 2))) == ErrorCode.INELIGIBLE_REPLICA
    cluster.active.links.cut.clear()  # it still gets requests, and answers the first of them
    cluster.active.links.wake()
    await cluster.settle()
    assert cluster.hosts[2].roles[T0].leader == 3
    assert cluster.state("lone") == PartitionLeader(2, 2, (2,), 1)
    assert code(await cluster.alter_isr("t", (3, 2))) == ErrorCode.NONE


@on_cluster
async def test_a_failed_log_directory_takes_its_replicas_offline(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (2, 1), (2, 1))
    cluster.hosts[2].failed.add(T0)
    notification = Create(paths.LOG_DIR_EVENT_PREFIX, b'{"version":1,"broker":2,"event":1}', sequential=True)
    cluster.tree.apply([notification], 0)
    await cluster.settle()
    assert cluster.state("t", 0) == PartitionLeader(1, 1, (1,), 1)
    assert cluster.state("t", 1).leader == 2
    assert cluster.tree.children(paths.LOG_DIR_EVENTS) == []
    assert cluster.hosts[1].metadata[T0].offline_replicas == [2]


@on_cluster
async def test_a_log_directory_that_can_be_used_again_brings_its_replicas_back(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (2, 3))
    cluster.hosts[2].failed.add(T0)
    notification = Create(paths.LOG_DIR_EVENT_PREFIX, b'{"version":1,"broker":2,"event":1}', sequential=True)
    cluster.tree.apply([notification], 0)
    await cluster.settle()
    assert cluster.state("t") == PartitionLeader(3, 1, (3,), 1)
    cluster.hosts[2].failed.clear()
    cluster.tree.apply([notification], 0)
    await cluster.settle()
    assert cluster.hosts[1].metadata[T0].offline_replicas == []
    assert cluster.hosts[2].roles[T0].leader == 3


@on_cluster
async def test_a_deletion_goes_on_when_a_log_directory_can_be_used_again(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (2, 3))
    cluster.hosts[2].failed.add(T0)
    notification = Create(paths.LOG_DIR_EVENT_PREFIX, b'{"version":1,"broker":2,"event":1}', sequential=True)
    cluster.tree.apply([notification], 0)
    await cluster.settle()
    await cluster.active.controller.delete_topics(["t"])
    await cluster.settle()
    assert cluster.tree.children(paths.DELETE_TOPICS) == ["t"]
    cluster.hosts[2].failed.clear()
    cluster.tree.apply([notification], 0)
    await cluster.settle()
    assert cluster.tree.children(paths.DELETE_TOPICS) == []
    assert cluster.tree.children(paths.TOPICS) == []


@on_cluster
async def test_a_replica_outside_of_the_isr_returns_when_its_directory_does(cluster: ControlCluster) -> None:
    """Nothing raises the leader epoch when such a replica is stopped."""
    await cluster.start(1, 2, 3)
    await cluster.create("t", (1, 2, 3))
    await cluster.alter_isr("t", (1, 2))
    epoch = cluster.state("t").leader_epoch
    notification = Create(paths.LOG_DIR_EVENT_PREFIX, b'{"version":1,"broker":3,"event":1}', sequential=True)
    cluster.hosts[3].failed.add(T0)
    cluster.tree.apply([notification], 0)
    await cluster.settle()
    assert T0 in cluster.hosts[3].stopped
    cluster.hosts[3].failed.clear()
    cluster.tree.apply([notification], 0)
    await cluster.settle()
    assert cluster.state("t").leader_epoch == epoch
    assert T0 not in cluster.hosts[3].stopped
    assert cluster.hosts[1].metadata[T0].offline_replicas == []


# --- ISRs -----------------------------------------------------------------------------------------------------------


@on_cluster
async def test_a_leader_changes_its_isr(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (1, 2, 3))
    answer = await cluster.alter_isr("t", (1, 2))
    assert isinstance(answer, AlterPartitionPartitionResponse)
    assert (answer.error_code, answer.leader_id, answer.isr, answer.partition_epoch) == (0, 1, [1, 2], 1)
    assert cluster.state("t") == PartitionLeader(1, 0, (1, 2), 1)
    assert cluster.hosts[3].metadata[T0].isr == [1, 2]


@on_cluster
async def test_proposals_are_checked_in_kafkas_order(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (1, 2, 3))
    await cluster.alter_isr("t", (1, 2))
    alter = cluster.alter_isr
    assert code(await alter("t", (1, 2), broker_epoch=0)) == ErrorCode.STALE_BROKER_EPOCH
    assert code(await alter("t", (1,), leader_epoch=5)) == ErrorCode.NOT_CONTROLLER
    assert code(await alter("t", (1,), partition_epoch=5)) == ErrorCode.NOT_CONTROLLER
    assert code(await alter("t", (1,), leader_epoch=-1)) == ErrorCode.FENCED_LEADER_EPOCH
    assert code(await alter("t", (1, 2), partition_epoch=0)) == ErrorCode.NONE  # already so
    assert code(await alter("t", (1,), partition_epoch=0)) == ErrorCode.INVALID_UPDATE_VERSION
    assert code(await alter("t", (1,), leader_recovery_state=1)) == ErrorCode.INVALID_REQUEST
    await cluster.kill(3)
    assert code(await alter("t", (1, 2, 3))) == ErrorCode.INELIGIBLE_REPLICA


@on_cluster
async def test_an_isr_that_no_leader_can_mean_is_refused(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (1, 2))
    before = cluster.state("t")
    for isr in ((2,), (), (1, 2, 1), (1, 2, 3)):  # without the leader, empty, a member twice, one without a replica
        assert code(await cluster.alter_isr("t", isr)) == ErrorCode.INVALID_REQUEST, isr
    assert cluster.state("t") == before
    assert code(await cluster.alter_isr("t", (1,))) == ErrorCode.NONE


@on_cluster
async def test_a_restarted_follower_is_not_taken_for_in_sync(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (1, 2))
    before = cluster.hosts[2].epoch
    await cluster.kill(2)
    await cluster.restart(2)
    members = [
        AlterPartitionBrokerState(broker_id=1, broker_epoch=cluster.hosts[1].epoch),
        AlterPartitionBrokerState(broker_id=2, broker_epoch=before),
    ]
    answer = await cluster.alter_isr("t", (1, 2), new_isr_with_epochs=members)
    assert code(answer) == ErrorCode.INELIGIBLE_REPLICA


@on_cluster
async def test_a_state_that_another_program_wrote_is_not_overwritten(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (1, 2))
    written = PartitionLeader(1, 0, (1,), 1).encode()
    version = cluster.version("t")
    cluster.tree.apply([SetData(paths.partition_state("t", 0), written)], 0)
    assert code(await cluster.alter_isr("t", (1, 2), partition_epoch=version)) == ErrorCode.NONE  # as the cache says
    assert code(await cluster.alter_isr("t", (2, 1), partition_epoch=version)) == ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.state("t").isr == (1,)
    await cluster.kill(2)  # an election reads it again
    await cluster.kill(1)
    await cluster.restart(2)
    assert cluster.state("t").leader == -1 or cluster.state("t").isr == (1,)


# --- shutdown -------------------------------------------------------------------------------------------------------


@on_cluster
async def test_a_broker_that_shuts_down_hands_over(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (2, 3), (3, 2))
    await cluster.create("lone", (2,))
    request = ControlledShutdownRequest(broker_id=2, broker_epoch=cluster.hosts[2].epoch)
    response = await cluster.controller.controlled_shutdown(request)
    await cluster.settle()
    assert response.error_code == ErrorCode.NONE
    assert response.remaining_partitions == []  # nobody else could lead the lone one
    assert cluster.state("lone").leader == 2
    assert cluster.state("t", 0) == PartitionLeader(3, 1, (3,), 1)
    assert cluster.state("t", 1).isr == (3,)
    assert cluster.hosts[2].roles[T0].leader == 3
    assert code(await cluster.alter_isr("t", (3, 2))) == ErrorCode.INELIGIBLE_REPLICA
    stale = ControlledShutdownRequest(broker_id=2, broker_epoch=1)
    assert (await cluster.controller.controlled_shutdown(stale)).error_code == ErrorCode.STALE_BROKER_EPOCH


# --- deletion -------------------------------------------------------------------------------------------------------


@on_cluster
async def test_a_topic_is_deleted_everywhere(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    before = set(cluster.tree.nodes)
    await cluster.create("t", (1, 2), (2, 3))
    (error,) = await cluster.controller.delete_topics(["t"])
    assert error is None
    await cluster.settle()
    assert set(cluster.tree.nodes) == before
    assert cluster.hosts[2].deleted == [T0, TopicPartition("t", 1)]
    assert all(not host.metadata for host in cluster.hosts.values())
    await cluster.create("t", (3,))
    assert cluster.state("t").leader == 3


@on_cluster
async def test_a_deletion_waits_for_a_broker_that_is_down(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (1, 2))
    await cluster.kill(2)
    await cluster.controller.delete_topics(["t"])
    await cluster.settle()
    assert cluster.hosts[1].deleted == [T0]
    assert cluster.tree.data(paths.topic("t")) is not None
    (again,) = await cluster.controller.create_topics([WantedTopic("t", 1, 1)])
    assert isinstance(again, ControllerError)
    await cluster.restart(2)
    assert T0 in cluster.hosts[2].deleted
    assert paths.topic("t") not in cluster.tree.nodes
    assert paths.deleted_topic("t") not in cluster.tree.nodes


@on_cluster
async def test_a_new_controller_goes_on_with_a_deletion(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (2, 3))
    cluster.active.links.cut |= {2, 3}
    await cluster.controller.delete_topics(["t"])
    await cluster.kill(1)
    assert paths.topic("t") not in cluster.tree.nodes
    assert T0 in cluster.hosts[2].deleted


@on_cluster
async def test_a_marker_of_another_program_deletes_a_topic(cluster: ControlCluster) -> None:
    await cluster.start(1)
    await cluster.create("t", (1,))
    cluster.tree.apply([Create(paths.deleted_topic("t"))], 0)
    cluster.tree.apply([Create(paths.deleted_topic("unknown"))], 0)
    await cluster.settle()
    assert paths.topic("t") not in cluster.tree.nodes
    assert cluster.tree.children(paths.DELETE_TOPICS) == []


# --- a controller that is gone --------------------------------------------------------------------------------------


@on_cluster
async def test_a_controller_whose_process_is_gone_is_deposed(cluster: ControlCluster) -> None:
    """Its session lasts: nobody waits for it."""
    await cluster.start(1, 2, 3)
    await cluster.create("t", (1, 2, 3))
    await cluster.create("u", (2, 1, 3))
    cluster.hosts[1].is_running = False
    cluster.members[3].links.controller_gone()
    await cluster.settle()
    members = [member for member in cluster.members.values() if member.broker_id != 1]
    (active,) = [member for member in members if member.controller.is_active]
    assert active.controller.epoch == 2
    if active.broker_id == 2:
        active.links.controller_gone()  # it has found out later, by itself
        await cluster.settle()
    assert cluster.state("t") == PartitionLeader(2, 1, (2, 3), 2)
    assert cluster.state("u").isr == (2, 3)
    assert paths.broker(1) in cluster.tree.nodes


@on_cluster
async def test_a_deposed_controller_that_is_there_resigns_and_goes_on(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (1, 2))
    cluster.members[2].links.controller_gone()
    await cluster.settle()
    assert cluster.active.broker_id in (1, 2)
    assert cluster.state("t").leader in (1, 2)
    assert cluster.controller.epoch == 2
    assert code(await cluster.alter_isr("t", (1, 2) if cluster.state("t").leader == 1 else (2, 1))) == ErrorCode.NONE


@on_cluster
async def test_the_last_controller_leaves_the_isrs(cluster: ControlCluster) -> None:
    """Its nodes went with its session, so that no controller saw it die."""
    await cluster.start(1, 2, 3)
    await cluster.create("t", (2, 1, 3))
    await cluster.kill(1)
    assert cluster.state("t") == PartitionLeader(2, 1, (2, 3), 2)


@on_cluster
async def test_brokers_that_died_without_a_controller_leave_the_isrs(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3, 4)
    await cluster.create("t", (2, 3, 4), (3, 2, 4))
    cluster.members[1].session.watches.clear()  # it does not see the next broker die
    cluster.members[3].host.is_running = False
    cluster.tree.expire(cluster.members[3].session)
    assert cluster.state("t").isr == (2, 3, 4)
    await cluster.kill(1)
    assert cluster.state("t", 0) == PartitionLeader(2, 1, (2, 4), 2)
    assert cluster.state("t", 1) == PartitionLeader(2, 1, (2, 4), 2)
    assert cluster.hosts[2].metadata[T0].offline_replicas == [3]
    await cluster.restart(3)
    assert cluster.hosts[3].roles[T0].leader == 2


@on_cluster
async def test_news_for_an_earlier_reign_does_not_swallow_news_for_this_one(cluster: ControlCluster) -> None:
    """Both wait in the same queue."""
    await cluster.start(1, 2)
    await cluster.create("t", (2, 1))
    controller = cluster.members[1].controller
    active = controller._active
    assert active is not None
    active.put("broker change", active.brokers_changed, once=True)
    controller._resign()
    controller._queue.put_once("controller change", controller._elect)
    cluster.tree.expire(cluster.members[2].session)
    cluster.members[2].host.is_running = False
    await cluster.settle()
    assert controller.is_active
    assert cluster.state("t").leader == 1


@on_cluster
async def test_a_new_controller_tells_of_partitions_without_live_replicas(cluster: ControlCluster) -> None:
    """The last one may have written that their leader is gone, and told nobody."""
    await cluster.start(1, 2, 3)
    await cluster.create("t", (2,))
    cluster.active.links.cut |= {1, 3}
    await cluster.kill(2)
    assert cluster.leader_in_metadata(3, "t") == 2
    await cluster.kill(1)
    assert cluster.leader_in_metadata(3, "t") == -1


@on_cluster
async def test_a_deletion_waits_for_a_suspected_broker(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (1, 2))
    cluster.active.links.cut.add(2)
    cluster.active.links.silent[2]()
    await cluster.controller.delete_topics(["t"])
    await cluster.settle()
    assert paths.topic("t") in cluster.tree.nodes
    cluster.active.links.cut.clear()
    cluster.active.links.wake()
    await cluster.settle()
    assert paths.topic("t") not in cluster.tree.nodes
    assert cluster.hosts[2].deleted == [T0]
