"""The controller while it is active: one object for each time that this broker is elected.

Failover reads the tree and sets watches, tells every broker who is alive, and runs the state machines. Afterwards every
change of the tree, answer of a broker and request is one event in the queue. `end` stops everything at once; events
that are under way fail at their next effect, because the tree refuses their writes or because `is_over` is set.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from ottla.base.clock import Clock
from ottla.base.coordination import (
    Coordination,
    Create,
    Delete,
    EventKind,
    NoNodeError,
    SessionExpiredError,
    SetData,
    WatchEvent,
)
from ottla.base.ids import TopicPartition, random_uuid
from ottla.controller.core.context import ControllerContext, is_reassigned
from ottla.controller.core.controller_core import ControllerCore
from ottla.controller.core.effects import AnyControlRequest, ControllerMovedError, Step
from ottla.controller.core.request_batch import RequestBatch
from ottla.controller.driver.channels import AnyControlResponse, Channels
from ottla.controller.driver.event_queue import EventQueue
from ottla.controller.driver.tree_reader import read_brokers, read_some_brokers, read_topics
from ottla.controller.driver.tree_work import TreeWork
from ottla.controller.seams import ControlLinks, LiveBroker
from ottla.controller.settings import ControllerSettings
from ottla.log.broker_config import topic_defaults
from ottla.wire.messages.leader_and_isr import LeaderAndIsrResponse
from ottla.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from ottla.zookeeper import paths
from ottla.zookeeper.node_json import ZnodeError
from ottla.zookeeper.znodes import (
    FeatureLevels,
    TopicAssignment,
    decode_log_dir_failure,
    decode_partitions,
)

T = TypeVar("T")

_logger = logging.getLogger(__name__)

_FIRST_BALANCE_S: Final = 5.0
_DOUBT_S: Final = 30.0
"""How long a partition stays without a leader because the only live member of its ISR may have lost records."""


@dataclass(frozen=True, slots=True)
class Reign:
    """An election that was won."""

    epoch: int
    epoch_version: int
    """The version of `/controller_epoch`: whoever wins the next election changes it."""


class ActiveController:
    """See the module. Belongs to one event loop."""

    def __init__(
        self,
        tree: Coordination,
        links: ControlLinks,
        broker_id: int,
        settings: ControllerSettings,
        clock: Clock,
        queue: EventQueue,
        reign: Reign,
        on_moved: Callable[[], None],
    ) -> None:
        self.reign = reign
        self.tree = tree
        self.settings = settings
        self.context = ControllerContext(broker_id, reign.epoch, settings.inter_broker_listener)
        self.core = ControllerCore(self.context, self.is_unclean)
        self.is_over = False
        self.failover_s = 0.0
        self._clock = clock
        self._queue = queue
        self._on_moved = on_moved
        self._channels = Channels(links, self._answered, self.suspect, self._heard, settings.socket_timeout_s)
        self.work = TreeWork(
            tree, reign.epoch, reign.epoch_version, self._channels.send, lambda: self.is_over, self._on_admin_node
        )
        self._balance: asyncio.TimerHandle | None = None
        self._timers: list[asyncio.TimerHandle] = []

    def is_unclean(self, topic_configs: Mapping[str, str]) -> bool:
        configs = {**topic_defaults(self.settings.broker_settings), **topic_configs}
        return configs.get("unclean.leader.election.enable", "false").strip().lower() == "true"

    # --- begin and end ----------------------------------------------------------------------------------------------

    async def start(self, gone: Mapping[int, int], elected_ms: int) -> None:
        """Failover. Raises if it cannot be finished: the caller then resigns. `gone` are brokers whose processes are
        known to be gone, with their epochs. `elected_ms` is by ZooKeeper's clock."""
        began_s = self._clock.monotonic_s()
        await self._set_up_features()
        tree, context = self.tree, self.context
        # Watches first: whatever changes after these reads is an event.
        brokers = await read_brokers(tree, self._on_brokers, self._on_broker_node)
        names = await tree.children(paths.TOPICS, self._on_topics)
        marked = await tree.children(paths.DELETE_TOPICS, self._on_deletions)
        await self._forget_notifications()
        for broker in brokers.values():
            context.add_broker(broker)
            if gone.get(broker.broker_id) == broker.epoch:
                context.suspected.add(broker.broker_id)
        topics = await self._with_ids(await read_topics(tree, names, self._on_topic_node))
        for topic_name, assignment in topics.items():
            context.add_topic(topic_name, assignment.topic_id)
            for index, replicas in assignment.partitions.items():
                partition = TopicPartition(topic_name, index)
                context.assign(partition, replicas)
                if is_reassigned(replicas):
                    context.being_reassigned[partition] = None
        states = await self.work.read_states(list(context.all_partitions()))
        for partition, leadership in states.items():
            context.set_leadership(partition, leadership)
        context.doubt(self._doubtful(list(brokers.values()), elected_ms))
        for broker in brokers.values():
            self._channels.add(broker)
        read_s = self._clock.monotonic_s() - began_s
        await self.work.run(self.core.start(await self._deletable(marked)))
        await self._preferred_by_node()
        self.failover_s = self._clock.monotonic_s() - began_s
        _logger.info(
            "controller of epoch %d: %d brokers, %d topics, %d partitions; read after %.0f ms, ready after %.0f ms",
            self.reign.epoch,
            len(brokers),
            len(context.topics),
            context.partition_count(),
            read_s * 1000,
            self.failover_s * 1000,
        )
        if self.settings.auto_rebalance:
            self._schedule_balance(_FIRST_BALANCE_S)

    def end(self) -> None:
        """Ends this reign in this process; idempotent. The nodes are not touched."""
        self.is_over = True
        self._channels.close()
        if self._balance is not None:
            self._balance.cancel()
        for timer in self._timers:
            timer.cancel()

    async def _set_up_features(self) -> None:
        """As Kafka's controller does: brokers read which features are on."""
        if await self.tree.get(paths.FEATURE) is None:
            await self.work.write([Create(paths.FEATURE, FeatureLevels().encode())])

    async def _forget_notifications(self) -> None:
        """What they tell is read from the tree anyway."""
        log_dirs = await self.tree.children(paths.LOG_DIR_EVENTS, self._on_log_dirs)
        isrs = await self.tree.children(paths.ISR_CHANGES, self._on_isrs)
        await self._remove_nodes(
            [
                *(f"{paths.LOG_DIR_EVENTS}/{name}" for name in log_dirs),
                *(f"{paths.ISR_CHANGES}/{name}" for name in isrs),
            ]
        )

    async def _remove_nodes(self, node_paths: Sequence[str]) -> None:
        for path in node_paths:
            with suppress(NoNodeError):
                await self.work.transact([Delete(path)])

    async def _with_ids(self, topics: dict[str, TopicAssignment]) -> dict[str, TopicAssignment]:
        """Topics of tools or brokers before Kafka 2.8 have no id: they get one."""
        for name, assignment in list(topics.items()):
            if assignment.topic_id is None:
                topics[name] = replace(assignment, topic_id=random_uuid())
                failure = await self.work.write([SetData(paths.topic(name), topics[name].encode())])
                if failure is not None:
                    _logger.error("topic %s cannot be given an id: %s", name, failure)
                    del topics[name]
        return topics

    # --- events -----------------------------------------------------------------------------------------------------

    def put(self, name: str, event: Callable[[], Coroutine[Any, Any, None]], *, once: bool = False) -> None:
        """Queues an event of this reign."""

        async def guarded() -> None:
            if self.is_over:
                return
            try:
                await event()
            except (ControllerMovedError, SessionExpiredError) as error:
                _logger.info("no longer the controller while processing %s: %s", name, error)
                self._on_moved()

        if once:
            # An event of an earlier reign that still waits does nothing.
            self._queue.put_once(f"{name} in epoch {self.reign.epoch}", guarded)
        else:
            self._queue.put(name, guarded)

    def run_later(self, name: str, step: Callable[[], Step[T]]) -> None:
        """Queues a step of the core."""

        async def event() -> None:
            await self.work.run(step())

        self.put(name, event)

    async def run(self, step: Step[T]) -> T:
        """Runs a step within the event that is being processed."""
        return await self.work.run(step)

    async def told_own_broker(self) -> None:
        """Waits until this broker has applied what was decided so far. Not within an event."""
        await self._channels.settled(self.context.controller_id, self.settings.own_answer_timeout_s)

    @property
    def request_queue_size(self) -> int:
        return self._channels.queue_size

    # --- brokers ----------------------------------------------------------------------------------------------------

    def _on_brokers(self, _event: WatchEvent) -> None:
        self.put("broker change", self.brokers_changed, once=True)

    def _on_broker_node(self, event: WatchEvent) -> None:
        if event.kind is EventKind.CHANGED:
            broker_id = int(event.path.rpartition("/")[2])
            self.put(f"change of broker {broker_id}", lambda: self._broker_changed(broker_id), once=True)

    async def brokers_changed(self) -> None:
        known = self.context.brokers
        found = await read_brokers(self.tree, self._on_brokers, self._on_broker_node)
        new = [broker for broker_id, broker in found.items() if broker_id not in known]
        bounced = [
            broker
            for broker_id, broker in found.items()
            if broker_id in known and broker.epoch > known[broker_id].epoch
        ]
        dead = [broker_id for broker_id in known if broker_id not in found]
        if new or bounced or dead:
            _logger.info(
                "brokers: new %s, bounced %s, gone %s", _ids(new), _ids(bounced), ", ".join(map(str, dead)) or "none"
            )
        for broker in (*new, *bounced):
            self._channels.add(broker)
        for broker_id in dead:
            self._channels.remove(broker_id)
        if new:
            await self.run(self.core.brokers_started(new, self._doubtful(new)))
        if bounced:
            await self.run(self.core.brokers_failed([broker.broker_id for broker in bounced]))
            await self.run(self.core.brokers_started(bounced, self._doubtful(bounced)))
        if dead:
            await self.run(self.core.brokers_failed(dead))

    def _doubtful(self, brokers: Sequence[LiveBroker], elected_ms: int | None = None) -> list[int]:
        """Brokers that may lack committed records, since a short while ago. Others are waited for that long. Those that
        registered before the election have done so for a while, by ZooKeeper's clock: a machine that comes back after
        a power cut may have any time."""
        found = []
        for broker in brokers:
            age_s = 0.0 if elected_ms is None else max(0.0, (elected_ms - broker.registered_ms) / 1000)
            if broker.registration.may_have_lost_data and age_s < _DOUBT_S:
                _logger.warning("broker %d may have lost records with its machine: others lead", broker.broker_id)
                found.append(broker.broker_id)
                loop = asyncio.get_running_loop()
                self._timers.append(loop.call_later(_DOUBT_S - age_s, self._trust, broker))
        return found

    def _trust(self, broker: LiveBroker) -> None:
        self._for_registration(
            f"end of doubts about broker {broker.broker_id}", broker, lambda: self.core.trust(broker.broker_id)
        )

    async def _broker_changed(self, broker_id: int) -> None:
        found = await read_some_brokers(self.tree, [broker_id], self._on_broker_node)
        new, old = found.get(broker_id), self.context.brokers.get(broker_id)
        if new is None or old is None or new.epoch != old.epoch:
            return
        before, after = old.registration, new.registration
        if before.endpoints != after.endpoints or before.features != after.features:
            _logger.info("broker %d has other endpoints or features", broker_id)
            await self.run(self.core.broker_changed(new))

    def suspect(self, broker: LiveBroker) -> None:
        """The broker's process is evidently gone."""

        def step() -> Step[None]:
            return self.core.broker_suspected(broker.broker_id)

        if not self.is_over and broker.broker_id != self.context.controller_id:
            self._for_registration(f"silence of broker {broker.broker_id}", broker, step)

    def _reached(self, broker: LiveBroker) -> None:
        """The broker has answered for the first time, or again."""
        self._heard(broker)
        name = f"first answer of broker {broker.broker_id}"
        self._for_registration(name, broker, lambda: self.core.broker_reached(broker.broker_id))

    def _heard(self, broker: LiveBroker) -> None:
        """Also if it is not suspected yet: the event that says so may still wait."""
        if not self.is_over:
            self._for_registration(
                f"answer of broker {broker.broker_id}", broker, lambda: self.core.broker_answered(broker.broker_id)
            )

    def _for_registration(self, name: str, broker: LiveBroker, step: Callable[[], Step[None]]) -> None:
        async def event() -> None:
            known = self.context.brokers.get(broker.broker_id)
            if known is not None and known.epoch == broker.epoch:
                await self.run(step())

        self.put(name, event)

    def _answered(self, broker: LiveBroker, request: AnyControlRequest, response: AnyControlResponse) -> None:
        """What a broker answered before it was restarted says nothing about it now."""
        if self.is_over:
            return
        broker_id = broker.broker_id
        if broker_id not in self.context.reached:
            self._reached(broker)
        if isinstance(response, LeaderAndIsrResponse):
            self._for_registration(
                "LeaderAndIsr response", broker, lambda: self.core.leader_and_isr_answered(broker_id, response)
            )
        elif isinstance(response, StopReplicaResponse) and isinstance(request, StopReplicaRequest):
            self._for_registration(
                "StopReplica response", broker, lambda: self.core.stop_replica_answered(broker_id, request, response)
            )
        elif response.error_code:
            _logger.error("broker %d refused UpdateMetadata: error %d", broker_id, response.error_code)

    # --- topics -----------------------------------------------------------------------------------------------------

    def _on_topics(self, _event: WatchEvent) -> None:
        self.put("topic change", self._topics_changed, once=True)

    def _on_topic_node(self, event: WatchEvent) -> None:
        if event.kind is EventKind.CHANGED:
            topic = event.path.rpartition("/")[2]
            self.put(f"change of topic {topic}", lambda: self._topic_changed(topic), once=True)

    async def _topics_changed(self) -> None:
        names = await self.tree.children(paths.TOPICS, self._on_topics)
        context = self.context
        there = set(names)
        for gone in [name for name in context.topics if name not in there]:
            _logger.warning("topic %s was removed from the tree by another program", gone)
            context.remove_topic(gone)
        new = [name for name in names if name not in context.topics]
        if new:
            found = await self._with_ids(await read_topics(self.tree, new, self._on_topic_node))
            _logger.info("new topics: %s", ", ".join(found))
            await self.run(self.core.topics_found(found))

    async def watch_topics(self, names: Sequence[str]) -> None:
        """Topics that this controller created itself."""
        await self.tree.get_many([paths.topic(name) for name in names], self._on_topic_node)

    async def _topic_changed(self, topic: str) -> None:
        known = self.context.topics.get(topic)
        found = (await read_topics(self.tree, [topic], self._on_topic_node)).get(topic)
        if known is None or found is None:
            return
        added = {index: each for index, each in found.partitions.items() if index not in known.partitions}
        if not added:
            return
        if self.context.is_being_deleted(topic):
            _logger.warning("topic %s is being deleted: the partitions added to it are dropped", topic)
            kept = TopicAssignment(known.topic_id, dict(known.partitions))
            await self.work.transact([SetData(paths.topic(topic), kept.encode())])
            return
        _logger.info("topic %s has %d more partitions", topic, len(added))
        await self.run(self.core.partitions_found(topic, added))

    def _on_deletions(self, _event: WatchEvent) -> None:
        self.put("topic deletion", self._deletions_changed, once=True)

    async def _deletions_changed(self) -> None:
        marked = await self.tree.children(paths.DELETE_TOPICS, self._on_deletions)
        wanted = [topic for topic in await self._deletable(marked) if not self.context.is_being_deleted(topic)]
        if wanted:
            await self.run(self.core.deletion.enqueue(wanted))

    async def _deletable(self, marked: Sequence[str]) -> Collection[str]:
        """Removes markers of topics that do not exist or cannot be deleted; returns the others."""
        if self.settings.delete_topics_enabled:
            wanted = [topic for topic in marked if topic in self.context.topics]
        else:
            wanted = []
        refused = [topic for topic in marked if topic not in wanted]
        if refused:
            _logger.warning("not deleting %s: unknown, or deletion is disabled", ", ".join(refused))
            await self._remove_nodes([paths.deleted_topic(topic) for topic in refused])
        return wanted

    # --- notifications ----------------------------------------------------------------------------------------------

    def _on_log_dirs(self, _event: WatchEvent) -> None:
        self.put("log directory failure", self._log_dirs_failed, once=True)

    async def _log_dirs_failed(self) -> None:
        names = await self.tree.children(paths.LOG_DIR_EVENTS, self._on_log_dirs)
        node_paths = [f"{paths.LOG_DIR_EVENTS}/{name}" for name in names]
        failed = set()
        for path, node in zip(node_paths, await self.tree.get_many(node_paths), strict=True):
            if node is not None:
                try:
                    failed.add(decode_log_dir_failure(path, node.data))
                except ZnodeError as error:
                    _logger.error("ignoring a notification: %s", error)
        try:
            await self.run(self.core.log_dirs_failed(sorted(failed)))
        finally:
            await self._remove_nodes(node_paths)

    def _on_isrs(self, _event: WatchEvent) -> None:
        self.put("ISR change", self._isrs_changed, once=True)

    async def _isrs_changed(self) -> None:
        """Brokers before Kafka 2.7 write ISRs themselves, and tell of it here."""
        names = await self.tree.children(paths.ISR_CHANGES, self._on_isrs)
        node_paths = [f"{paths.ISR_CHANGES}/{name}" for name in names]
        changed: dict[TopicPartition, None] = {}
        for path, node in zip(node_paths, await self.tree.get_many(node_paths), strict=True):
            if node is not None:
                try:
                    changed.update(dict.fromkeys(decode_partitions(path, node.data)))
                except ZnodeError as error:
                    _logger.error("ignoring a notification: %s", error)
        known = [name for name in changed if self.context.assignment(name) is not None]
        for name, leadership in (await self.work.read_states(known)).items():
            self.context.set_leadership(name, leadership)
        batch = RequestBatch(self.context)
        batch.tell_metadata(known)
        await self.run(batch.send())
        await self._remove_nodes(node_paths)
        for name in known:
            await self.run(self.core.reassignments.isr_changed(name))

    # --- what old tools ask for -------------------------------------------------------------------------------------

    def _on_admin_node(self, event: WatchEvent) -> None:
        if event.path == paths.REASSIGN_PARTITIONS:
            self.put("reassignment by node", self._reassign_by_node, once=True)
        elif event.path == paths.PREFERRED_REPLICA_ELECTION:
            self.put("preferred election by node", self._preferred_by_node, once=True)

    async def _reassign_by_node(self) -> None:
        try:
            await self.run(self.core.reassignments.by_node())
        except ZnodeError as error:
            _logger.error("ignoring the reassignment: %s", error)

    async def _preferred_by_node(self) -> None:
        path = paths.PREFERRED_REPLICA_ELECTION
        node = await self.tree.get(path, self._on_admin_node)
        if node is None:
            return
        try:
            wanted = decode_partitions(path, node.data)
        except ZnodeError as error:
            _logger.error("ignoring the preferred election: %s", error)
        else:
            for name, failure in (await self.run(self.core.elect_leaders(wanted, unclean=False))).items():
                if failure is not None:
                    _logger.info("no preferred election for %s: %s", name, failure.reason)
        await self._remove_nodes([path])
        await self.tree.get(path, self._on_admin_node)  # for the next one

    # --- balance ----------------------------------------------------------------------------------------------------

    def _schedule_balance(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._balance = loop.call_later(delay_s, lambda: self.put("leader balance", self._rebalance, once=True))

    async def _rebalance(self) -> None:
        try:
            moved = await self.run(self.core.rebalance_leaders(self.settings.imbalance_percentage))
            if moved:
                _logger.info("moved %d partitions back to their preferred leaders", moved)
        finally:
            if not self.is_over:
                self._schedule_balance(self.settings.imbalance_check_interval_s)


def _ids(brokers: Sequence[LiveBroker]) -> str:
    return ", ".join(str(broker.broker_id) for broker in brokers) or "none"
