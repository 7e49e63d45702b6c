"""Preferred and unclean elections, the balance of leaders, and requests for producer ids."""

from __future__ import annotations

import asyncio

import pytest

from ottla.base.coordination import Create, SetData, Watch, Znode
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.controller import cluster_controller
from ottla.controller.errors import ControllerError
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.zookeeper import paths
from ottla.zookeeper.paths import ConfigKind
from ottla.zookeeper.znodes import PartitionLeader, ProducerIdBlock, encode_config, encode_partitions
from support.control.cluster import ControlCluster, on_cluster
from support.trees.memory_tree import MemorySession

T0 = TopicPartition("t", 0)


async def moved_away(cluster: ControlCluster) -> None:
    """Broker 3 leads t-0, although broker 2 is preferred and in sync."""
    await cluster.start(1, 2, 3)
    await cluster.create("t", (2, 3))
    await cluster.kill(2)
    await cluster.restart(2)
    await cluster.alter_isr("t", (3, 2))
    assert cluster.state("t").leader == 3
    assert cluster.controller.preferred_imbalance_count == 1


@on_cluster
async def test_the_preferred_leader_is_elected(cluster: ControlCluster) -> None:
    await moved_away(cluster)
    assert await cluster.controller.elect_leaders([T0], unclean=False) == {T0: None}
    await cluster.settle()
    assert cluster.state("t") == PartitionLeader(2, 2, (3, 2), 1)
    assert cluster.hosts[3].roles[T0].leader == 2
    assert cluster.controller.preferred_imbalance_count == 0
    failure = (await cluster.controller.elect_leaders([T0], unclean=False))[T0]
    assert isinstance(failure, ControllerError)
    assert failure.code is ErrorCode.ELECTION_NOT_NEEDED
    assert await cluster.controller.elect_leaders(None, unclean=False) == {}


@on_cluster
async def test_a_preferred_leader_that_is_out_of_sync_is_not_elected(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (2, 3))
    await cluster.kill(2)
    await cluster.restart(2)
    outcomes = await cluster.controller.elect_leaders([T0, TopicPartition("u", 0)], unclean=False)
    codes = [failure.code for failure in outcomes.values() if failure is not None]
    assert sorted(codes) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]


@on_cluster
async def test_old_tools_ask_for_preferred_leaders_by_a_node(cluster: ControlCluster) -> None:
    await moved_away(cluster)
    for _ in range(2):  # the node is watched again
        cluster.tree.apply([Create(paths.PREFERRED_REPLICA_ELECTION, encode_partitions([T0]))], 0)
        await cluster.settle()
        assert cluster.state("t").leader == 2
        assert paths.PREFERRED_REPLICA_ELECTION not in cluster.tree.nodes


@on_cluster
async def test_leaders_are_balanced(cluster: ControlCluster) -> None:
    await moved_away(cluster)
    active = cluster.controller._active
    assert active is not None
    active.put("leader balance", active._rebalance)
    await cluster.settle()
    assert cluster.state("t").leader == 2


async def lost(cluster: ControlCluster, configs: dict[str, str] | None = None) -> None:
    """Broker 2, the last in sync, is dead; broker 3 is alive, but behind."""
    await cluster.start(1, 2, 3)
    await cluster.create("t", (2, 3), configs=configs)
    await cluster.alter_isr("t", (2,))
    await cluster.kill(2)


@on_cluster
async def test_without_a_replica_in_sync_there_is_no_leader(cluster: ControlCluster) -> None:
    await lost(cluster)
    assert cluster.state("t") == PartitionLeader(-1, 1, (2,), 1)
    failure = (await cluster.controller.elect_leaders([T0], unclean=False))[T0]
    assert isinstance(failure, ControllerError)
    assert failure.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


@on_cluster
async def test_an_unclean_election_on_request(cluster: ControlCluster) -> None:
    await lost(cluster)
    assert await cluster.controller.elect_leaders([T0], unclean=True) == {T0: None}
    await cluster.settle()
    assert cluster.state("t") == PartitionLeader(3, 2, (3,), 1, is_recovering=True)
    assert cluster.hosts[3].roles[T0].leader_recovery_state == 1
    assert cluster.controller.unclean_election_count == 1
    answer = await cluster.alter_isr("t", (3,), leader_recovery_state=0)  # it has recovered
    assert not isinstance(answer, int)
    assert answer.error_code == ErrorCode.NONE
    assert not cluster.state("t").is_recovering
    failure = (await cluster.controller.elect_leaders([T0], unclean=True))[T0]
    assert isinstance(failure, ControllerError)
    assert failure.code is ErrorCode.ELECTION_NOT_NEEDED


@on_cluster
async def test_an_unclean_election_by_the_topics_config(cluster: ControlCluster) -> None:
    await lost(cluster, {"unclean.leader.election.enable": "true"})
    assert cluster.state("t").leader == 3
    assert cluster.state("t").is_recovering


@on_cluster
@pytest.mark.parametrize("topic", ["t", None])
async def test_an_unclean_election_when_the_config_is_set(cluster: ControlCluster, topic: str | None) -> None:
    await lost(cluster)
    path = paths.config(ConfigKind.TOPICS, "t")
    cluster.tree.apply([SetData(path, encode_config({"unclean.leader.election.enable": "true"}))], 0)
    cluster.controller.unclean_election_enabled(topic)
    await cluster.settle()
    assert cluster.state("t").leader == 3


@on_cluster
async def test_blocks_of_producer_ids_do_not_overlap(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    controller = cluster.controller

    async def allocate(broker_id: int, broker_epoch: int) -> tuple[int, int, int]:
        request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        answer = await controller.allocate_producer_ids(request)
        return answer.error_code, answer.producer_id_start, answer.producer_id_len

    assert await allocate(1, cluster.hosts[1].epoch) == (0, 0, 1000)
    assert await allocate(2, cluster.hosts[2].epoch) == (0, 1000, 1000)
    data = cluster.tree.data(paths.PRODUCER_ID_BLOCK)
    assert data is not None
    assert ProducerIdBlock.decode(paths.PRODUCER_ID_BLOCK, data) == ProducerIdBlock(2, 1000, 1999)
    assert (await allocate(2, 1))[0] == ErrorCode.STALE_BROKER_EPOCH
    assert (await allocate(9, 1))[0] == ErrorCode.BROKER_ID_NOT_REGISTERED
    other = await cluster.members[2].controller.allocate_producer_ids(AllocateProducerIdsRequest(broker_id=2))
    assert other.error_code == ErrorCode.NOT_CONTROLLER


@on_cluster
async def test_isr_changes_of_old_brokers_are_sent_to_all_brokers(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (1, 2))
    cluster.tree.apply([SetData(paths.partition_state("t", 0), PartitionLeader(1, 0, (1,), 1).encode())], 0)
    cluster.tree.apply([Create(paths.ISR_CHANGE_PREFIX, encode_partitions([T0]), sequential=True)], 0)
    await cluster.settle()
    assert cluster.hosts[2].metadata[T0].isr == [1]
    assert cluster.tree.children(paths.ISR_CHANGES) == []


# --- crashes of machines --------------------------------------------------------------------------------------------


async def all_down(cluster: ControlCluster) -> None:
    """Brokers 2 and 3 went down with the last controller, both in sync: nobody saw it."""
    await cluster.start(1, 2, 3)
    await cluster.create("t", (2, 3))
    for broker_id in (1, 2, 3):
        member = cluster.members[broker_id]
        member.host.is_running = False
        member.controller._active = None
        cluster.tree.expire(member.session)
        await member.controller.close()


@on_cluster
async def test_a_replica_that_may_have_lost_records_does_not_lead_over_one_that_did_not(
    cluster: ControlCluster,
) -> None:
    await all_down(cluster)
    cluster.members[2].has_crashed = True
    await cluster.restart(2)
    assert cluster.state("t").leader == -1
    assert cluster.state("t").isr == (2, 3)
    await cluster.restart(3)
    assert cluster.state("t").leader == 3
    assert cluster.state("t").isr == (3,)
    assert cluster.hosts[2].roles[T0].leader == 3


@on_cluster
async def test_it_leads_if_nobody_else_comes_back(cluster: ControlCluster) -> None:
    await all_down(cluster)
    cluster.members[2].has_crashed = True
    await cluster.restart(2)
    active = cluster.controller._active
    assert active is not None
    active._trust(active.context.brokers[2])
    await cluster.settle()
    assert cluster.state("t").leader == 2


@on_cluster
async def test_it_leads_at_once_if_all_have_crashed(cluster: ControlCluster) -> None:
    await all_down(cluster)
    cluster.members[2].has_crashed = cluster.members[3].has_crashed = True
    await cluster.restart(2)
    assert cluster.state("t").leader == -1
    await cluster.restart(3)
    assert cluster.state("t").leader == 2


@on_cluster
async def test_a_lone_replica_leads_whatever_happened(cluster: ControlCluster) -> None:
    await cluster.start(1, 2)
    await cluster.create("t", (2,))
    await cluster.kill(2)
    cluster.members[2].has_crashed = True
    await cluster.restart(2)
    assert cluster.state("t").leader == 2


@on_cluster
async def test_a_new_controller_takes_a_crashed_broker_out_of_the_isr(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (2, 3))
    member = cluster.members[2]
    cluster.members[1].session.watches.clear()  # the controller does not see that broker 2 comes back
    cluster.tree.expire(member.session)
    member.host.is_running = False
    await member.controller.close()
    member.has_crashed = True
    await member.start()
    await cluster.kill(1)
    assert (cluster.state("t").leader, cluster.state("t").isr) == (3, (3,))
    assert cluster.hosts[2].roles[T0].leader == 3


@on_cluster
async def test_registrations_that_outlast_their_processes_do_not_count(cluster: ControlCluster) -> None:
    """All machines went down; one is back, and the sessions of the others have not expired yet."""
    await cluster.start(1, 2, 3)
    await cluster.create("t", (1, 2, 3))
    for broker_id in (2, 3):
        cluster.members[broker_id].host.is_running = False
    member = cluster.members[1]
    member.host.is_running = False
    for broker_id in (2, 3):  # they do not take over
        cluster.members[broker_id].session.watches.clear()
    cluster.tree.expire(member.session)
    await member.controller.close()
    member.has_crashed = True
    await cluster.restart(1)
    assert cluster.active.broker_id == 1
    assert (cluster.state("t").leader, cluster.state("t").isr) == (-1, (1, 2, 3))
    refused = (await cluster.controller.elect_leaders([T0], unclean=False))[T0]
    assert isinstance(refused, ControllerError)  # it is preferred, but in doubt
    for broker_id in (2, 3):
        member.links.silent[broker_id]()
        await cluster.settle()
    assert (cluster.state("t").leader, cluster.state("t").isr) == (-1, (1, 2, 3))
    cluster.tree.expire(cluster.members[2].session)
    cluster.members[2].host.restart()
    await cluster.members[2].controller.close()
    await cluster.restart(2)
    assert (cluster.state("t").leader, cluster.state("t").isr) == (2, (2,))
    assert cluster.hosts[1].roles[T0].leader == 2
    await cluster.alter_isr("t", (2, 1))  # it has caught up, and is as good as any
    assert await cluster.controller.elect_leaders([T0], unclean=False) == {T0: None}
    cluster.tree.expire(cluster.members[3].session)
    await cluster.members[3].controller.close()
    await cluster.restart(3)
    assert cluster.state("t").leader == 1


@on_cluster
async def test_clocks_of_machines_do_not_tell_who_may_have_lost_records(cluster: ControlCluster) -> None:
    """A machine may have any time when it comes back after a power cut."""
    await all_down(cluster)
    member = cluster.members[2]
    member.has_crashed = True
    member.clock.set_now_ms(0)
    await cluster.restart(1)
    await cluster.restart(2)
    assert (cluster.state("t").leader, cluster.state("t").isr) == (-1, (2, 3))
    await cluster.restart(3)
    assert (cluster.state("t").leader, cluster.state("t").isr) == (3, (3,))


@pytest.mark.parametrize(("passed_ms", "leader", "isr"), [(29_000, -1, (2, 3)), (31_000, 2, (2,))])
def test_a_new_controller_takes_the_age_of_a_doubt_from_zookeeper(
    passed_ms: int, leader: int, isr: tuple[int, ...]
) -> None:
    @on_cluster
    async def work(cluster: ControlCluster) -> None:
        await all_down(cluster)
        cluster.members[2].has_crashed = True
        cluster.members[2].clock.set_now_ms(2**42)
        await cluster.restart(1)
        await cluster.restart(2)
        cluster.members[1].session.watches.clear()
        cluster.members[2].session.watches.clear()
        cluster.tree.passed_ms += passed_ms
        await cluster.kill(1)
        await cluster.restart(1)
        assert (cluster.state("t").leader, cluster.state("t").isr) == (leader, isr)

    work()


@on_cluster
async def test_the_first_isr_member_to_come_back_may_lead(cluster: ControlCluster) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create("t", (2, 3))
    active = cluster.active
    for broker_id in (2, 3):  # both are gone before the controller looks
        cluster.members[broker_id].host.is_running = False
        await cluster.members[broker_id].controller.close()
    for broker_id in (2, 3):
        cluster.tree.expire(cluster.members[broker_id].session)
    await cluster.settle()
    assert cluster.active is active
    assert (cluster.state("t").leader, cluster.state("t").isr) == (-1, (2, 3))
    await cluster.restart(2)
    assert (cluster.state("t").leader, cluster.state("t").isr) == (2, (2,))
    await cluster.kill(2)
    await cluster.restart(3)
    assert cluster.state("t").leader == -1  # broker 2 may have committed something alone


@on_cluster
async def test_an_epoch_that_cannot_be_read_is_reported_once_and_waited_for(
    cluster: ControlCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cluster_controller, "_RETRY_AFTER_FAILURE_S", 0.001)
    await cluster.start(1, 2)
    cluster.tree.apply([SetData(paths.CONTROLLER_EPOCH, b"garbage")], 0)
    await cluster.members[1].kill()
    reads = 0
    get = MemorySession.get

    async def counted(session: MemorySession, path: str, watch: Watch | None = None) -> Znode | None:
        nonlocal reads
        reads += path == paths.CONTROLLER_EPOCH
        return await get(session, path, watch)

    monkeypatch.setattr(MemorySession, "get", counted)
    while reads < 20:
        await asyncio.sleep(0.001)
    told = [record for record in caplog.records if "cannot run for election" in record.message]
    assert len(told) == 1
    assert "/controller_epoch" in told[0].message
    assert told[0].exc_info is None
    cluster.tree.apply([SetData(paths.CONTROLLER_EPOCH, b"7")], 0)
    while not cluster.members[2].controller.is_active:
        await asyncio.sleep(0.001)
    assert cluster.controller.epoch == 8
