"""The controllers of a cluster against their promises: real controllers on a tree in memory, brokers that come, go,
lose their sessions and answer late, twice or never, leaders that propose ISRs from what they were told.

Promises, checked at every write to the tree:

- a leader epoch never falls, and a new leader or an ISR changed by the controller has a new one;
- one leader per leader epoch, in the tree and among all brokers;
- a leader was in the ISR before, unless the election was unclean and the partition says so;
- an ISR is never empty, and has the leader in it;
- whoever writes a state is the controller of the present epoch.

At rest, when everything that can answer does:

- one controller; brokers know the leaders, ISRs and roles that are in the tree; no replica that has a role is stopped;
- a partition with a live replica in its ISR has a live leader, and no dead replicas in its ISR;
- a topic that is marked for deletion is gone if all its brokers are there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from models.step_loop import StepLoop
from ottla.base.coordination import SessionState
from ottla.base.ids import TopicPartition
from ottla.controller.cluster_controller import ClusterController
from ottla.controller.wanted_topics import NewPartitionCount, WantedTopic
from ottla.wire.messages.alter_partition import (
    AlterPartitionBrokerState,
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionTopic,
)
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.zookeeper import paths
from ottla.zookeeper.transaction import StoredNode
from ottla.zookeeper.znodes import PartitionLeader, TopicAssignment, decode_controller_epoch
from support.control.cluster import ControlCluster, Member

BROKERS = (1, 2, 3, 4)
TOPICS = ("a", "b")

broker_ids = st.sampled_from(BROKERS)
topic_names = st.sampled_from(TOPICS)
replica_lists = st.lists(broker_ids, min_size=1, max_size=3, unique=True)


class ControllersModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        logging.disable(logging.CRITICAL)
        self.loop = StepLoop()
        asyncio.set_event_loop(self.loop)
        self.cluster = ControlCluster()
        self.down: set[int] = set()
        self.adrift: set[int] = set()
        """Brokers that run, but whose sessions have expired."""
        self.shutting_down: set[int] = set()
        self.tasks: list[asyncio.Task[Any]] = []
        self.faults: list[str] = []
        self.leaders: dict[tuple[str, int, int], int] = {}
        """By partition, creation of its state node, and leader epoch."""
        self.proposed: set[tuple[str, int, tuple[int, ...]]] = set()
        """ISRs that leaders asked for, by partition and leader epoch."""
        self.cluster.tree.on_write = self._written

    # --- what every write must keep -----------------------------------------------------------------------------------

    def _written(self, path: str, old: StoredNode | None, new: StoredNode | None) -> None:
        if not path.startswith(f"{paths.TOPICS}/") or not path.endswith("/state") or new is None:
            return
        if old is not None and new.version == old.version:
            return
        after = PartitionLeader.decode(path, new.data or b"")
        told = f"{path}: {old and old.data!r} -> {new.data!r}"
        epoch_node = self.cluster.tree.nodes[paths.CONTROLLER_EPOCH]
        assert epoch_node is not None
        epoch = decode_controller_epoch(paths.CONTROLLER_EPOCH, epoch_node.data or b"")
        self._check(after.controller_epoch == epoch, f"written by a controller that is replaced: {told}")
        self._check(bool(after.isr), f"empty ISR: {told}")
        self._check(after.leader in (-1, *after.isr), f"the leader is not in the ISR: {told}")
        self._check(len(set(after.isr)) == len(after.isr), f"twice in the ISR: {told}")
        if old is not None:
            before = PartitionLeader.decode(path, old.data or b"")
            self._check(after.leader_epoch >= before.leader_epoch, f"the leader epoch falls: {told}")
            if after.leader_epoch == before.leader_epoch:
                is_proposed = (path, after.leader_epoch, after.isr) in self.proposed
                self._check(is_proposed, f"no leader proposed this, and it has no new leader epoch: {told}")
            if after.leader != before.leader:
                self._check(after.leader_epoch > before.leader_epoch, f"no new leader epoch: {told}")
                is_clean = after.leader in (-1, *before.isr)
                self._check(is_clean or after.is_recovering, f"not in sync, but elected: {told}")
        if after.leader >= 0:
            known = self.leaders.setdefault((path, new.created_zxid, after.leader_epoch), after.leader)
            self._check(known == after.leader, f"two leaders in an epoch: {told}")

    def _check(self, is_kept: bool, told: str) -> None:
        if not is_kept:
            self.faults.append(told)

    # --- the world ----------------------------------------------------------------------------------------------------

    def _begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self.loop.create_task(work)
        self.tasks.append(task)
        return task

    def _turn(self, count: int) -> None:
        self.loop.turn(count)
        assert not self.faults, self.faults[0]
        for failure in self.loop.failures:
            raise AssertionError(failure)

    def _finish(self, work: Coroutine[Any, Any, Any]) -> Any:
        task = self._begin(work)
        for _ in range(5000):
            if task.done():
                return task.result()
            self.loop.advance(0.01)
            self._turn(5)
        raise AssertionError("does not end")

    @property
    def members(self) -> dict[int, Member]:
        return self.cluster.members

    def _running(self) -> list[Member]:
        return [member for broker_id, member in self.members.items() if broker_id not in self.down]

    def _active(self) -> ClusterController | None:
        active = [member.controller for member in self._running() if member.controller.is_active]
        return active[-1] if active else None

    @initialize()
    def start(self) -> None:
        self._finish(self.cluster.prepare())
        for broker_id in BROKERS:
            self.members[broker_id] = Member(self.cluster, broker_id, None)
            self._finish(self.members[broker_id].start())

    @rule(count=st.integers(1, 30))
    def turn(self, count: int) -> None:
        self._turn(count)

    @rule(tenths=st.integers(1, 20))
    def wait(self, tenths: int) -> None:
        self.loop.advance(tenths / 10)
        self._turn(10)

    # --- brokers ------------------------------------------------------------------------------------------------------

    @rule(broker_id=broker_ids)
    def kill(self, broker_id: int) -> None:
        if broker_id in self.down:
            return
        self.down.add(broker_id)
        member = self.members[broker_id]
        member.host.is_running = False
        if broker_id not in self.adrift:
            self.cluster.tree.expire(member.session)
        member.controller.session_state(SessionState.EXPIRED)
        self.adrift.discard(broker_id)
        self.shutting_down.discard(broker_id)
        self._begin(member.controller.close())

    @precondition(lambda self: self.down)
    @rule(data=st.data(), has_crashed=st.booleans())
    def start_again(self, data: st.DataObject, has_crashed: bool) -> None:
        broker_id = data.draw(st.sampled_from(sorted(self.down)))
        self.members[broker_id].has_crashed = has_crashed
        self.down.discard(broker_id)
        self._begin(self.members[broker_id].start())
        self._turn(1)  # it is registered

    @rule(broker_id=broker_ids)
    def expire(self, broker_id: int) -> None:
        if broker_id in self.down or broker_id in self.adrift:
            return
        self.adrift.add(broker_id)
        member = self.members[broker_id]
        self.cluster.tree.expire(member.session)
        self.shutting_down.discard(broker_id)

    @precondition(lambda self: self.adrift)
    @rule(data=st.data())
    def register_again(self, data: st.DataObject) -> None:
        broker_id = data.draw(st.sampled_from(sorted(self.adrift)))
        self.adrift.discard(broker_id)
        member = self.members[broker_id]
        member.controller.session_state(SessionState.EXPIRED)
        member.reconnect()
        self._begin(member.controller.rejoin())

    @rule(broker_id=broker_ids, other=broker_ids)
    def cut(self, broker_id: int, other: int) -> None:
        self.members[broker_id].links.cut.add(other)

    @rule(broker_id=broker_ids)
    def heal(self, broker_id: int) -> None:
        self.members[broker_id].links.cut.clear()
        self.members[broker_id].links.wake()

    @rule(broker_id=broker_ids, kind=st.sampled_from(("before", "after")), skipped=st.integers(0, 3))
    def lose_an_answer_of_the_tree(self, broker_id: int, kind: str, skipped: int) -> None:
        losses = iter([None] * skipped + [kind])
        self.members[broker_id].session.lose = lambda _: next(losses, None)

    @rule(broker_id=broker_ids, is_twice=st.booleans())
    def double_requests(self, broker_id: int, is_twice: bool) -> None:
        self.members[broker_id].links.loses_answer = lambda _: is_twice

    @rule(broker_id=broker_ids, other=broker_ids)
    def suspect(self, broker_id: int, other: int) -> None:
        """On evidence that may be wrong."""
        member = self.members[broker_id]
        if broker_id not in self.down and other in member.links.silent:
            member.links.silent[other]()

    @rule(broker_id=broker_ids)
    def depose(self, broker_id: int) -> None:
        if broker_id not in self.down:
            self.members[broker_id].links.controller_gone()

    # --- requests -----------------------------------------------------------------------------------------------------

    @rule(topic=topic_names, assignments=st.lists(replica_lists, min_size=1, max_size=3))
    def create(self, topic: str, assignments: list[list[int]]) -> None:
        factor = len(assignments[0])
        wanted = WantedTopic(topic, assignments=[each for each in enumerate(assignments) if len(each[1]) == factor])
        if (controller := self._active()) is not None:
            self._begin(_quietly(controller.create_topics([wanted])))

    @rule(topic=topic_names)
    def delete(self, topic: str) -> None:
        if (controller := self._active()) is not None:
            self._begin(_quietly(controller.delete_topics([topic])))

    @rule(topic=topic_names, total=st.integers(2, 4))
    def grow(self, topic: str, total: int) -> None:
        if (controller := self._active()) is not None:
            self._begin(_quietly(controller.grow_topics([NewPartitionCount(topic, total)])))

    @rule(topic=topic_names, partition=st.integers(0, 2), replicas=st.none() | replica_lists)
    def reassign(self, topic: str, partition: int, replicas: list[int] | None) -> None:
        if (controller := self._active()) is not None:
            self._begin(_quietly(controller.reassign_all({TopicPartition(topic, partition): replicas})))

    @rule(topic=topic_names, partition=st.integers(0, 2), unclean=st.booleans())
    def elect(self, topic: str, partition: int, unclean: bool) -> None:
        if (controller := self._active()) is not None:
            self._begin(_quietly(controller.elect_leaders([TopicPartition(topic, partition)], unclean=unclean)))

    @rule(broker_id=broker_ids)
    def shut_down(self, broker_id: int) -> None:
        controller = self._active()
        if controller is not None and broker_id not in self.down and broker_id not in self.adrift:
            self.shutting_down.add(broker_id)
            request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=self.cluster.hosts[broker_id].epoch)
            self._begin(_quietly(controller.controlled_shutdown(request)))

    @rule(broker_id=broker_ids, members=st.sets(broker_ids), data=st.data())
    def propose(self, broker_id: int, members: set[int], data: st.DataObject) -> None:
        """A leader changes the ISR of a partition that it believes to lead, at a controller that may be replaced."""
        host = self.cluster.hosts[broker_id]
        led = sorted(name for name, role in host.roles.items() if role.leader == broker_id)
        controllers = [each.controller for each in self._running() if each.controller.is_active]
        if broker_id in self.down or not led or not controllers:
            return
        name = data.draw(st.sampled_from(led))
        controller = data.draw(st.sampled_from(controllers))
        self._begin(self._proposal(broker_id, name, members, controller))

    async def _proposal(
        self, broker_id: int, name: TopicPartition, members: set[int], controller: ClusterController
    ) -> None:
        host = self.cluster.hosts[broker_id]
        role, topic_id = host.roles[name], host.topic_ids.get(name.topic)
        if topic_id is None:
            return
        isr = tuple(each for each in role.replicas if each == broker_id or each in members)
        self.proposed.add((paths.partition_state(*name), role.leader_epoch, isr))
        request = AlterPartitionRequest(
            broker_id=broker_id,
            broker_epoch=host.epoch,
            topics=[
                AlterPartitionTopic(
                    topic_id=topic_id,
                    partitions=[
                        AlterPartitionPartition(
                            partition_index=name.partition,
                            leader_epoch=role.leader_epoch,
                            partition_epoch=role.partition_epoch,
                            new_isr_with_epochs=[
                                AlterPartitionBrokerState(broker_id=each, broker_epoch=self.cluster.hosts[each].epoch)
                                for each in isr
                            ],
                        )
                    ],
                )
            ],
        )
        response = await controller.alter_partition(request, 3)
        if response.error_code:
            return
        answer = response.topics[0].partitions[0]
        known = host.roles.get(name)
        if not answer.error_code and known is role and answer.partition_epoch > role.partition_epoch:
            role.isr, role.partition_epoch = answer.isr, answer.partition_epoch

    # --- at rest ------------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        try:
            if self.members:
                self._come_to_rest()
                self._check_rest()
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.turn(5)
            for done in self.tasks:
                if done.done() and not done.cancelled():
                    done.exception()
            self.loop.close()
            asyncio.set_event_loop(None)
            logging.disable(logging.NOTSET)

    def _come_to_rest(self) -> None:
        for broker_id in sorted(self.adrift):
            self.adrift.discard(broker_id)
            member = self.members[broker_id]
            member.controller.session_state(SessionState.EXPIRED)
            member.reconnect()
            self._begin(member.controller.rejoin())
        for member in self.members.values():
            member.links.cut.clear()
            member.links.loses_answer = lambda _: False
            member.session.lose = lambda _: None
            member.links.wake()
        for _ in range(70):  # until brokers whose machines crashed may lead
            self.loop.advance(0.5)
            self._turn(20)
        quiet = 0
        for _ in range(3000):
            self.loop.advance(0.05)
            self._turn(20)
            running = self._running()
            for member in running:
                active = member.controller._active
                for broker_id in sorted(active.context.suspected) if active is not None else ():
                    if broker_id not in self.down and broker_id in member.links.heard:
                        member.links.heard[broker_id]()
            is_quiet = all(
                member.controller.is_idle and member.controller.request_queue_size == 0 for member in running
            )
            quiet = quiet + 1 if is_quiet else 0
            if quiet == 5:
                return
        raise AssertionError("the cluster does not come to rest")

    def _check_rest(self) -> None:
        running = {member.broker_id for member in self._running()}
        if not running:
            return
        active = [member for member in self._running() if member.controller.is_active]
        assert len(active) == 1, [member.broker_id for member in active]
        assert all(member.controller.controller_id == active[0].broker_id for member in self._running())
        tree = self.cluster.tree
        marked = tree.children(paths.DELETE_TOPICS)
        for topic in tree.children(paths.TOPICS):
            node = TopicAssignment.decode(paths.topic(topic), tree.data(paths.topic(topic)) or b"")
            for index, assignment in node.partitions.items():
                if topic in marked:
                    continue
                self._check_partition(TopicPartition(topic, index), assignment.replicas, running)
            if topic in marked:
                replicas = {each for assignment in node.partitions.values() for each in assignment.replicas}
                moving = any(each.adding or each.removing for each in node.partitions.values())
                assert moving or not replicas <= running - self.shutting_down, f"{topic} is not deleted"

    def _check_partition(self, name: TopicPartition, replicas: tuple[int, ...], running: set[int]) -> None:
        data = self.cluster.tree.data(paths.partition_state(*name))
        usable = running - self.shutting_down
        if data is None:
            assert not usable.intersection(replicas), f"{name} has no leader, although {replicas} are assigned"
            return
        state = PartitionLeader.decode(str(name), data)
        if usable.intersection(state.isr):
            assert state.leader in running, f"{name}: leader {state.leader}, ISR {state.isr}, running {running}"
        if len(state.isr) > 1 and state.leader != -1:
            assert set(state.isr) <= running, f"{name}: ISR {state.isr}, running {running}"
        assert set(state.isr) <= set(replicas), f"{name}: ISR {state.isr}, replicas {replicas}"
        for broker_id in running:
            host = self.cluster.hosts[broker_id]
            known = host.metadata.get(name)
            assert known is not None, f"broker {broker_id} does not know {name}"
            assert (known.leader, known.leader_epoch, tuple(known.isr)) == (
                state.leader,
                state.leader_epoch,
                state.isr,
            ), f"broker {broker_id} has old metadata of {name}: {known}, {state}"
            if broker_id in replicas and broker_id not in self.shutting_down and state.leader != -1:
                role = host.roles.get(name)
                assert role is not None, f"broker {broker_id} has no role in {name}: {state}"
                told = (role.leader, role.leader_epoch)
                assert told == (state.leader, state.leader_epoch), f"broker {broker_id}, {name}: {role}, {state}"
                assert name not in host.stopped, f"{name} is stopped on broker {broker_id}"


async def _quietly(work: Coroutine[Any, Any, Any]) -> None:
    """Whatever is refused is refused."""
    try:
        await work
    except Exception:
        return
