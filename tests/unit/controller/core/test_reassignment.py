"""Partitions that move: by request, by node, cancelled, across failovers."""

from __future__ import annotations

from ottla.base.coordination import Create, SetData
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.controller.core.reassignment import reassigned_to
from ottla.controller.errors import ControllerError
from ottla.zookeeper import paths
from ottla.zookeeper.znodes import PartitionLeader, ReplicaAssignment, encode_reassignment
from support.control.cluster import ControlCluster, on_cluster

T0 = TopicPartition("t", 0)


def test_replicas_of_a_move_are_the_target_and_the_origin() -> None:
    moved = reassigned_to(ReplicaAssignment((1, 2, 3)), (3, 4))
    assert moved == ReplicaAssignment((3, 4, 1, 2), adding=(4,), removing=(1, 2))
    assert reassigned_to(moved, (5,)) == ReplicaAssignment((5, 3, 1, 2), adding=(5,), removing=(3, 1, 2))
    assert reassigned_to(moved, (3, 1, 2)) == ReplicaAssignment((3, 1, 2))


@on_cluster
async def test_a_partition_moves_when_the_new_replicas_are_in_sync(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3, 4)
    await cluster.create("t", (1, 2))
    await cluster.controller.reassign(T0, (3, 4))
    await cluster.settle()
    moving = ReplicaAssignment((3, 4, 1, 2), adding=(3, 4), removing=(1, 2))
    assert cluster.assignment("t").partitions[0] == moving
    assert cluster.state("t") == PartitionLeader(1, 1, (1, 2), 1)  # only the epoch: the leader learns of the new ones
    assert cluster.hosts[1].roles[T0].adding_replicas == [3, 4]
    assert cluster.hosts[3].roles[T0].is_new
    assert list(await cluster.controller.reassignments()) == [T0]
    assert cluster.controller.reassigning_count == 1
    await cluster.alter_isr("t", (1, 2, 3))
    assert cluster.assignment("t").partitions[0] == moving
    await cluster.alter_isr("t", (1, 2, 3, 4))
    assert cluster.assignment("t").partitions[0] == ReplicaAssignment((3, 4))
    state = cluster.state("t")
    assert (state.leader, state.isr) == (3, (3, 4))
    assert cluster.hosts[1].deleted == [T0]
    assert cluster.hosts[2].deleted == [T0]
    assert cluster.hosts[4].roles[T0].replicas == [3, 4]
    assert cluster.hosts[4].metadata[T0].replicas == [3, 4]
    assert await cluster.controller.reassignments() == {}


@on_cluster
async def test_a_move_that_keeps_the_leader(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (1, 2))
    await cluster.controller.reassign(T0, (1, 3))
    await cluster.alter_isr("t", (1, 2, 3))
    assert cluster.assignment("t").partitions[0] == ReplicaAssignment((1, 3))
    assert (cluster.state("t").leader, cluster.state("t").isr) == (1, (1, 3))
    assert cluster.hosts[1].roles[T0].replicas == [1, 3]


@on_cluster
async def test_a_cancelled_move_deletes_the_new_replicas(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (1, 2))
    await cluster.controller.reassign(T0, (3, 2))
    await cluster.controller.reassign(T0, None)
    await cluster.settle()
    assert cluster.assignment("t").partitions[0].replicas in ((2, 1), (1, 2))
    assert cluster.assignment("t").partitions[0].adding == ()
    assert cluster.hosts[3].deleted == [T0]
    assert await cluster.controller.reassignments() == {}
    assert cluster.state("t").isr == (1, 2)


@on_cluster
async def test_a_move_cannot_be_cancelled_if_only_new_replicas_are_in_sync(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3, 4)
    await cluster.create("t", (2,))
    await cluster.controller.reassign(T0, (3, 4))
    await cluster.settle()
    await cluster.alter_isr("t", (2, 3))
    await cluster.kill(2)
    assert (cluster.state("t").leader, cluster.state("t").isr) == (3, (3,))
    for target in (None, (4,)):
        failure = (await cluster.controller.reassign_all({T0: target}))[T0]
        assert isinstance(failure, ControllerError)
        assert failure.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert "its only replicas in sync are on brokers 3" in failure.reason
    await cluster.settle()
    assert cluster.hosts[3].deleted == []
    assert cluster.state("t").leader == 3
    await cluster.restart(2)
    await cluster.alter_isr("t", (3, 2))
    assert await cluster.controller.reassign_all({T0: None}) == {T0: None}
    await cluster.settle()
    assert cluster.hosts[3].deleted == [T0]
    assert (cluster.state("t").leader, cluster.state("t").isr) == (2, (2,))


@on_cluster
async def test_wrong_moves_are_refused(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (1,))
    outcomes = await cluster.controller.reassign_all(
        {T0: None, TopicPartition("t", 9): (1,), TopicPartition("u", 0): (1,)}
    )
    assert [each.code for each in outcomes.values() if each is not None] == [
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    for target in ((), (2, 2), (-1,), (9,)):
        failure = (await cluster.controller.reassign_all({T0: target}))[T0]
        assert isinstance(failure, ControllerError)
        assert failure.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    failure = (await cluster.controller.reassign_all({T0: (1, 2)}, may_change_factor=False))[T0]
    assert isinstance(failure, ControllerError)
    assert failure.code is ErrorCode.INVALID_REPLICATION_FACTOR


@on_cluster
async def test_a_new_controller_goes_on(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3, 4)
    await cluster.create("t", (2, 3))
    await cluster.controller.reassign(T0, (4, 3))
    await cluster.settle()
    await cluster.kill(1)
    assert list(await cluster.controller.reassignments()) == [T0]
    await cluster.alter_isr("t", (2, 3, 4))
    assert cluster.assignment("t").partitions[0] == ReplicaAssignment((4, 3))
    assert (cluster.state("t").leader, cluster.state("t").isr) == (4, (3, 4))
    assert T0 in cluster.hosts[2].deleted


@on_cluster
async def test_a_new_controller_finishes_what_is_complete(cluster: ControlCluster) -> None:
    """The last controller died between the ISR and the rest."""
    await cluster.start(1, 2, 3, 4)
    await cluster.create("t", (2, 3))
    await cluster.controller.reassign(T0, (4, 3))
    await cluster.settle()
    path = paths.partition_state("t", 0)
    state = cluster.state("t")
    full = PartitionLeader(state.leader, state.leader_epoch, (2, 3, 4), state.controller_epoch)
    cluster.tree.apply([SetData(path, full.encode())], 0)
    await cluster.kill(1)
    assert cluster.assignment("t").partitions[0] == ReplicaAssignment((4, 3))
    assert T0 in cluster.hosts[2].deleted


@on_cluster
async def test_old_tools_ask_by_a_node(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (1, 2))
    wanted = {T0: (2, 3), TopicPartition("unknown", 0): (1,)}
    cluster.tree.apply([Create(paths.REASSIGN_PARTITIONS, encode_reassignment(wanted))], 0)
    await cluster.settle()
    assert cluster.tree.data(paths.REASSIGN_PARTITIONS) == encode_reassignment({T0: (2, 3)})
    await cluster.alter_isr("t", (1, 2, 3))
    assert paths.REASSIGN_PARTITIONS not in cluster.tree.nodes
    assert cluster.assignment("t").partitions[0] == ReplicaAssignment((2, 3))
    cluster.tree.apply([Create(paths.REASSIGN_PARTITIONS, encode_reassignment({T0: (3,)}))], 0)
    await cluster.settle()
    assert cluster.assignment("t").partitions[0] == ReplicaAssignment((3,))
    assert paths.REASSIGN_PARTITIONS not in cluster.tree.nodes


@on_cluster
async def test_a_topic_that_moves_is_deleted_afterwards(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (1, 2))
    await cluster.controller.reassign(T0, (1, 3))
    await cluster.settle()
    await cluster.controller.delete_topics(["t"])
    await cluster.settle()
    assert paths.topic("t") in cluster.tree.nodes
    await cluster.controller.reassign_all({T0: None})
    await cluster.settle()
    # A cancellation of a topic that is being deleted is refused as in Kafka; its move ends with the ISR.
    await cluster.alter_isr("t", (1, 2, 3))
    assert paths.topic("t") not in cluster.tree.nodes


@on_cluster
async def test_a_dead_target_is_waited_for(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (1, 2))
    await cluster.controller.reassign(T0, (1, 3))
    await cluster.settle()
    await cluster.kill(3)
    assert list(await cluster.controller.reassignments()) == [T0]
    await cluster.restart(3)
    assert cluster.hosts[3].roles[T0].leader == 1
    await cluster.alter_isr("t", (1, 2, 3))
    assert cluster.assignment("t").partitions[0] == ReplicaAssignment((1, 3))
