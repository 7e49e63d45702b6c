"""The controller of a cluster when things happen in an unlucky order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ottla.base.coordination import CoordinationError, Create, Delete, Operation, SessionState, SetData, Watch
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.controller import cluster_controller
from ottla.controller.errors import ControllerError
from ottla.controller.wanted_topics import WantedTopic
from ottla.testing.manual_clock import ManualClock
from ottla.wire.messages.alter_partition import AlterPartitionPartitionResponse
from ottla.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicResponse,
)
from ottla.zookeeper import paths
from ottla.zookeeper.znodes import ControllerRegistration, PartitionLeader
from support.control.cluster import ControlCluster, Member, on_cluster
from support.trees.memory_tree import MemorySession


def delay_write(cluster: ControlCluster, member: Member, path: str) -> None:
    """The next write to the node loses its connection, and is done only after the node was read, just before the second
    try: a server may still have had it in its queue."""
    late: list[Sequence[Operation]] = []

    def lose(operations: Sequence[Operation]) -> str | None:
        if all(each.path != path for each in operations):
            return None
        if not late:
            late.append(operations)
            return "before"
        member.session.lose = lambda _: None
        cluster.tree.apply(late[0], member.session.session_id)
        return None

    member.session.lose = lose


@on_cluster
async def test_an_own_write_that_is_done_late_is_not_taken_for_that_of_another(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (1, 2, 3))
    delay_write(cluster, cluster.active, paths.partition_state("t", 0))
    answer = await cluster.alter_isr("t", (1, 2))
    assert isinstance(answer, AlterPartitionPartitionResponse)
    assert (answer.error_code, answer.isr, answer.partition_epoch) == (0, [1, 2], 1)
    again = await cluster.alter_isr("t", (1, 2, 3))
    assert isinstance(again, AlterPartitionPartitionResponse)
    assert (again.error_code, again.isr, again.partition_epoch) == (0, [1, 2, 3], 2)


@on_cluster
async def test_so_is_a_new_partition(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    delay_write(cluster, cluster.active, paths.partition_state("t", 0))
    await cluster.create("t", (1, 2))
    assert cluster.state("t") == PartitionLeader(1, 0, (1, 2), 1)
    # As new: a broker with a failed log directory would create no other.
    assert [role.is_new for role in cluster.hosts[2].roles.values()] == [True]


@on_cluster
async def test_a_broker_that_answers_before_the_suspicion_is_handled_is_not_suspected(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    cluster.active.links.silent[2]()
    cluster.active.links.heard[2]()
    await cluster.settle()
    # A suspected broker gets no replicas while there are others.
    created = await cluster.controller.create_topic(WantedTopic("t", partition_count=2, replication_factor=1))
    assert {each.replicas for each in created.partitions} == {(1,), (2,)}


@on_cluster
async def test_a_controller_that_is_elected_while_it_closes_resigns(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    member = cluster.members[2]
    transact = member.session.transact
    closing: list[asyncio.Task[None]] = []

    async def close_first(operations: Sequence[Operation]) -> None:
        if operations[0].path == paths.CONTROLLER:
            closing.append(asyncio.ensure_future(member.controller.close()))
            await asyncio.sleep(0)
        await transact(operations)

    member.session.transact = close_first  # type: ignore[method-assign]
    await cluster.kill(1)
    await asyncio.gather(*closing)
    assert closing
    assert not member.controller.is_active
    assert cluster.tree.data(paths.CONTROLLER) is None


@on_cluster
async def test_an_election_that_fails_is_tried_again(cluster: ControlCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_controller, "_RETRY_AFTER_FAILURE_S", 0.0)
    await cluster.start(1, 2)
    failures = iter([CoordinationError(paths.CONTROLLER, "the server has too much to do")])

    def lose(operations: Sequence[Operation]) -> None:
        if operations[0].path == paths.CONTROLLER:
            for failure in failures:
                raise failure

    cluster.members[2].session.lose = lose
    await cluster.kill(1)
    assert cluster.active.broker_id == 2


@on_cluster
async def test_a_controller_that_was_elected_again_is_not_taken_for_gone(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (1, 2))
    other = cluster.members[2]
    # It deposes the controller, and then is too late for the election.
    other.session.lose = lambda operations: (
        "before"
        if operations[0].path == paths.CONTROLLER and cluster.tree.data(paths.CONTROLLER_EPOCH) == b"1"
        else None
    )
    other.links.controller_gone()
    await cluster.settle()
    assert (cluster.active.broker_id, cluster.controller.epoch) == (1, 2)
    await cluster.active.controller.close()
    await cluster.settle()
    assert (cluster.active.broker_id, cluster.controller.epoch) == (2, 3)
    assert cluster.state("t") == PartitionLeader(1, 0, (1, 2), 1)


@on_cluster
async def test_clients_learn_that_zookeeper_is_away(cluster: ControlCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise they would hear nothing, and take the broker for dead."""
    monkeypatch.setattr(cluster_controller, "_LOOK_AGAIN_S", 0.001)
    await cluster.start(1, 2)
    member = cluster.active
    clock = ManualClock()
    monkeypatch.setattr(member.controller, "_clock", clock)
    answers = asyncio.Event()
    children = type(member.session).children

    async def late(session: MemorySession, path: str, watch: Watch | None = None) -> list[str]:
        await answers.wait()
        return await children(session, path, watch)

    monkeypatch.setattr(MemorySession, "children", late)
    blocked = asyncio.ensure_future(member.controller._queue.call("blocked", lambda: member.session.children("/")))
    member.controller.session_state(SessionState.DISCONNECTED)
    creating = asyncio.ensure_future(member.controller.create_topic(WantedTopic("t", 1, 1)))
    await asyncio.sleep(0.02)
    assert not creating.done()  # it may be back soon
    clock.advance_ms(11_000)
    with pytest.raises(ControllerError, match="lost its connection to ZooKeeper") as refused:
        await creating
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
    with pytest.raises(ControllerError, match="lost its connection to ZooKeeper"):
        await member.controller.create_topic(WantedTopic("u", 1, 1))  # not even tried
    answers.set()
    member.controller.session_state(SessionState.CONNECTED)
    await blocked
    await cluster.settle()
    assert cluster.tree.children(paths.TOPICS) == ["t"]  # what had begun was done
    await member.controller.create_topic(WantedTopic("u", 1, 1))


@on_cluster
async def test_clients_of_other_brokers_learn_that_zookeeper_is_away(
    cluster: ControlCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_controller, "_LOOK_AGAIN_S", 0.001)
    await cluster.start(1, 2)
    member = cluster.members[2]
    clock = ManualClock()
    monkeypatch.setattr(member.controller, "_clock", clock)
    asked, answers = asyncio.Event(), asyncio.Event()

    async def late(*_: object) -> list[str]:
        asked.set()
        await answers.wait()
        return []

    monkeypatch.setattr(member.session, "children", late)
    member.controller.session_state(SessionState.DISCONNECTED)
    creating = asyncio.ensure_future(member.controller.auto_create_topics([WantedTopic("t", 1, 1)], "automatically"))
    await asked.wait()
    clock.advance_ms(11_000)
    with pytest.raises(ControllerError, match="Broker 2 has lost its connection to ZooKeeper") as refused:
        await asyncio.wait_for(creating, 5)
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT


@on_cluster
async def test_an_answer_from_before_a_restart_does_not_count(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (2, 3))
    active = cluster.controller._active
    assert active is not None
    before, topic_id = active.context.brokers[2], cluster.assignment("t").topic_id
    assert topic_id is not None
    failed = LeaderAndIsrResponse(
        topics=[
            LeaderAndIsrTopicResponse(
                topic_id=topic_id,
                partition_errors=[
                    LeaderAndIsrPartitionResponse(partition_index=0, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
                ],
            )
        ]
    )
    await cluster.kill(2)
    await cluster.restart(2)
    active._answered(before, LeaderAndIsrRequest(), failed)
    await cluster.settle()
    assert active.context.failed_replicas == {}
    active._answered(active.context.brokers[2], LeaderAndIsrRequest(), failed)
    await cluster.settle()
    assert active.context.failed_replicas == {2: {TopicPartition("t", 0)}}


@on_cluster
async def test_the_node_of_another_controller_is_not_removed(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    member, other = cluster.members[1], cluster.members[2]
    assert member is cluster.active
    node = cluster.tree.nodes[paths.CONTROLLER]

    def elect_another(_: Sequence[Operation]) -> str | None:
        member.session.lose = lambda _: None
        registration = ControllerRegistration(2, 0).encode()
        election: list[Operation] = [
            Delete(paths.CONTROLLER),
            Create(paths.CONTROLLER, registration, ephemeral=True),
            SetData(paths.CONTROLLER_EPOCH, b"7"),
        ]
        cluster.tree.apply(election, other.session.session_id)
        return None

    member.session.lose = elect_another
    await member.controller._remove_own()
    found = cluster.tree.nodes[paths.CONTROLLER]
    assert node is not None
    assert found is not None
    assert (found.version, found.owner) == (node.version, other.session.session_id)
    await member.controller._remove_own()  # it is not the own one
    assert cluster.tree.nodes[paths.CONTROLLER] == found
