"""A broker among others: assembles and runs its controller, its connections to other brokers, its fetchers, and what
carries out the active controller's requests.

    BrokerLinks ─▶ other brokers            ClusterController ─▶ ZooKeeper
        ▲  ▲  └─ OwnBroker: this class ─▶ ControlRequests ─▶ RoleChanges ─▶ Replicas, Fetchers, Coordinators
        │  └──── IsrChanges ◀── Partition
        └─────── Fetchers

Session expired: the controller resigns; when the broker has registered again, it runs for election again, and the
active controller tells it its roles as after a restart.

Owned by the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ottla.base.coordination import CoordinationError, NoNodeError
from ottla.base.ids import TopicPartition, Uuid
from ottla.broker.configs.cluster_settings import ClusterSettings, fetch_settings
from ottla.broker.configs.listeners import Listener
from ottla.broker.control.control_requests import ControlRequests
from ottla.broker.control.full_directories import FullDirectories
from ottla.broker.control.role_changes import RoleChanges
from ottla.broker.controlled_shutdown import shut_down
from ottla.broker.coordinators.coordinators import HostedCoordinator
from ottla.broker.links.broker_links import BrokerLinks
from ottla.broker.links.settings import LinkSettings
from ottla.broker.metadata.features import LiveRegistration
from ottla.broker.observability.cluster_numbers import ClusterNumbers
from ottla.broker.startup.session_watch import SessionWatch
from ottla.controller.cluster_controller import ClusterController
from ottla.controller.driver.tree_reader import read_topics
from ottla.controller.settings import ControllerSettings
from ottla.replication.fetching.fetchers import Fetchers
from ottla.replication.fetching.replication_quota import ReplicationQuotas
from ottla.replication.isr_changes import IsrChanges
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from ottla.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from ottla.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla.zookeeper import paths
from ottla.zookeeper.client.tree import ZooKeeperTree
from ottla.zookeeper.node_json import ZnodeError
from ottla.zookeeper.znodes import BrokerRegistration, TopicAssignment, decode_controller_epoch, encode_log_dir_failure

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_logger = logging.getLogger(__name__)

_NOBODY: Final = -1
_UNCLEAN: Final = "unclean.leader.election.enable"
_SIDES: Final = ("leader", "follower")
_UNLIMITED: Final = 2**63 - 1
_TREE_TIMEOUT_S: Final = 5.0
_RETRY_S: Final = 1.0
_LOOK_AGAIN_S: Final = 0.1
_TREE_LAG_S: Final = 2.0
"""How far the ZooKeeper server of this broker may be behind that of the controller."""


class ClusterMember:
    """See the module and `ottla.broker.membership`. Implements `ottla.broker.links.own_peer.OwnBroker`."""

    def __init__(self, broker: Broker) -> None:
        config, loop = broker.config, asyncio.get_running_loop()
        self._broker = broker
        self._tree = broker.coordination
        self._settings = ClusterSettings.of(config)
        fetching = fetch_settings(config)
        self.controller_id = _NOBODY
        self.session_expiry_count = 0
        self._live_brokers: set[int] = set()
        self.links = BrokerLinks(
            broker.broker_id,
            config.inter_broker_listener,
            config.control_plane_listener,
            self,
            LinkSettings(
                fetch_timeout_s=fetching.socket_timeout_ms / 1000,
                control_timeout_s=self._settings.controller_socket_timeout_ms / 1000,
                receive_buffer_bytes=(
                    fetching.socket_receive_buffer_bytes
                    if "replica.socket.receive.buffer.bytes" in config.given
                    else None
                ),
            ),
            loop,
        )
        self.links.endpoint_of = self._endpoint_of
        self.links.controller_id = lambda: self.controller_id
        self._to_controller = self.links.controller_peer()
        self.quotas = ReplicationQuotas(broker.broker_id, broker.clock.monotonic_s)
        self.fetchers = Fetchers(
            self.links.fetch_peer,
            broker.broker_id,
            self._epoch,
            replace(fetching, fetchers_per_broker=broker.configs.current("num.replica.fetchers")),
            broker.clock,
            loop,
            quota=self.quotas.follower,
        )
        self.isr_changes = IsrChanges(self._ask_controller, broker.broker_id, self._epoch, loop)
        self.controller = ClusterController(
            self._tree,
            self.links,
            broker.broker_id,
            ControllerSettings(
                broker_settings=config.given,
                inter_broker_listener=config.inter_broker_listener,
                auto_rebalance=self._settings.rebalances_leaders,
                imbalance_check_interval_s=self._settings.imbalance_check_s,
                imbalance_percentage=self._settings.imbalance_percent,
                delete_topics_enabled=config["delete.topic.enable"],
                socket_timeout_s=self._settings.controller_socket_timeout_ms / 1000,
            ),
            broker.clock,
        )
        self.controller.on_controller = self._controller_changed
        self._tree.on_session(self.controller.session_state)
        self.sessions = SessionWatch(self._tree, broker.registrar, self._session_expired, self._registered_again)
        self.full_directories: FullDirectories
        self.control: ControlRequests | None = None
        self._roles: RoleChanges | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    # --- start --------------------------------------------------------------------------------------------------------

    async def load(self) -> Mapping[str, Uuid]:
        """The controller will send the topics."""
        return {}

    async def opened(self) -> None:
        broker, environment = self._broker, self._broker.replicas.environment
        environment.lag_max_s = self._settings.lag_time_max_ms / 1000
        environment.is_alive = broker.metadata.is_alive
        environment.propose = self.isr_changes.propose
        environment.leader_quota = self.quotas.leader
        self._set_rates()
        for name in broker.configs.topics_with_configs():
            self._throttle(name)
        broker.replicas.on_failed = self._replicas_failed
        broker.metadata.on_replaced = self._topic_replaced
        self.full_directories = FullDirectories(broker.directories, self._tell_of_failure)
        broker.replicas.on_full = self.full_directories.found

    async def join(self, listeners: Sequence[Listener]) -> None:
        broker = self._broker
        broker.features.brokers_changed({})  # until all brokers are known
        for topic in broker.coordinators:
            broker.coordinators[topic].log.known_partition_count = 0
        self._roles = RoleChanges(
            broker.replicas,
            self.fetchers,
            broker.coordinators,
            broker.configs,
            self._learn_topics,
            broker.metadata.is_alive,
            broker.metadata.note_id,
            self.full_directories.holds,
        )
        self.control = ControlRequests(
            self._roles, broker.metadata, self._epoch, self._is_elected, self._metadata_changed
        )
        broker.metadata.expect(await self._partitions_in_tree())
        await broker.registrar.register(listeners, broker.config.rack)
        self.sessions.start()

    async def _partitions_in_tree(self) -> Mapping[str, Collection[int]]:
        """Of topics that are not about to be deleted: the controller does not tell brokers of those."""
        try:
            names = await self._tree.children(paths.TOPICS)
            deleted = set(await self._tree.children(paths.DELETE_TOPICS))
        except NoNodeError:  # this is the first broker of the cluster
            return {}
        topics = await read_topics(self._tree, [name for name in names if name not in deleted])
        return {name: assignment.partitions.keys() for name, assignment in topics.items()}

    async def serve(self) -> None:
        await self.controller.start()
        self._broker.producer_ids.prepare()
        self._begin(self._shrink_isrs(), "ISR shrinking")

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.error("%s failed", task.get_name(), exc_info=error)

    # --- while it runs ------------------------------------------------------------------------------------------------

    def _epoch(self) -> int:
        return self._broker.registrar.epoch

    def _endpoint_of(self, broker_id: int) -> tuple[str, int] | None:
        found = self._broker.metadata.endpoint(broker_id, self._broker.config.inter_broker_listener)
        return None if found is None else (found.host, found.port)

    def _controller_changed(self, controller_id: int) -> None:
        self.controller_id = controller_id
        self.links.controller_changed()

    async def _ask_controller(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        return await self._to_controller.send(request, AlterPartitionResponse)

    async def _shrink_isrs(self) -> None:
        replicas, interval_s = self._broker.replicas, self._settings.lag_time_max_ms / 2000
        while True:
            await asyncio.sleep(interval_s)
            try:
                replicas.shrink_isrs()
            except Exception:
                _logger.exception("could not check which replicas are in sync")

    def _metadata_changed(self, names: Sequence[str], gone: Sequence[str]) -> None:
        broker = self._broker
        live = set(broker.metadata.brokers)
        left = self._live_brokers - live
        if live != self._live_brokers:
            self._live_brokers = live
            self._begin(self._learn_features(live), "learning the features of brokers")
        if left:
            for partition in list(broker.replicas.partitions.values()):
                if not left.isdisjoint(partition.replicas):
                    partition.broker_left()
        for name in gone:
            broker.configs.forget_topic(name)
            self._throttle(name)
        if names:
            broker.group_topics.changed()
        broker.transactions.metadata_changed()
        for each in broker.coordinators.of(gone):
            each.log.known_partition_count = 0
        for each in broker.coordinators.of(names):
            if each.log.topic not in gone and not each.log.known_partition_count:
                self._begin(self._count_partitions(each), f"counting the partitions of {each.log.topic}")
        if gone:
            broker.groups.topics_deleted([name for name in gone if name not in broker.coordinators])

    async def _count_partitions(self, coordinator: HostedCoordinator) -> None:
        path = paths.topic(coordinator.log.topic)
        while True:
            try:
                node = await self._tree.get(path)
                if node is not None:
                    coordinator.log.known_partition_count = len(TopicAssignment.decode(path, node.data).partitions)
                    self._broker.metadata.wake()
                    return
                if self._broker.metadata.topic(coordinator.log.topic) is None:  # it was deleted meanwhile
                    return
                await asyncio.sleep(_LOOK_AGAIN_S)  # the server of this broker is behind the controller's
            except ZnodeError as error:
                _logger.error("there can be no coordinator for %s: %s", coordinator.purpose, error)
                return
            except CoordinationError:
                await asyncio.sleep(_RETRY_S)

    async def is_in_tree(self, name: TopicPartition) -> bool:
        """Whether ZooKeeper has the partition, and it is not to be deleted. The server of this broker may be behind: so
        it says no only after a while. Raises `CoordinationError`, `ZnodeError` or `TimeoutError`."""
        path = paths.topic(name.topic)
        for wait_s in (_TREE_LAG_S, 0.0):
            async with asyncio.timeout(_TREE_TIMEOUT_S):
                node, marker = await self._tree.get_many([path, paths.deleted_topic(name.topic)])
            if marker is not None:
                return False
            if node is not None and name.partition in TopicAssignment.decode(path, node.data).partitions:
                return True
            await asyncio.sleep(wait_s)
        return False

    async def _learn_features(self, live: Collection[int]) -> None:
        """Reads what the live brokers support; those that cannot be read support nothing until then."""
        found: dict[int, LiveRegistration] = {}
        while len(found) < len(live) and live == self._live_brokers:
            for broker_id in set(live) - found.keys():
                path = paths.broker(broker_id)
                try:
                    node = await self._tree.get(path)
                    if node is not None:
                        known = BrokerRegistration.decode(path, node.data)
                        found[broker_id] = LiveRegistration(node.created_zxid, known.features)
                except ZnodeError as error:
                    _logger.warning("the features of broker %d are not known: %s", broker_id, error)
                    found[broker_id] = LiveRegistration(0, {})
                except CoordinationError:
                    pass
            if live == self._live_brokers:
                unknown = {each: LiveRegistration(0, {}) for each in live if each not in found}
                self._broker.features.brokers_changed({**found, **unknown})
            if len(found) < len(live):
                await asyncio.sleep(_RETRY_S)

    async def _is_elected(self, epoch: int) -> bool:
        """True if ZooKeeper cannot be asked."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _TREE_LAG_S
        while True:
            try:
                async with asyncio.timeout(_TREE_LAG_S):
                    node = await self._tree.get(paths.CONTROLLER_EPOCH)
                known = 0 if node is None else decode_controller_epoch(paths.CONTROLLER_EPOCH, node.data)
            except (CoordinationError, ZnodeError, TimeoutError):
                return True
            if known >= epoch or loop.time() > deadline_s:
                return known >= epoch
            await asyncio.sleep(_LOOK_AGAIN_S)

    # --- configs ------------------------------------------------------------------------------------------------------

    async def _learn_topics(self, names: Collection[str]) -> None:
        """Reads what topics set themselves. If ZooKeeper cannot be reached, or the server of this broker does not have
        the topics yet, their logs get the broker's defaults until it can, or has."""
        left = names
        try:
            for _ in range(round(_TREE_LAG_S / _LOOK_AGAIN_S)):
                async with asyncio.timeout(_TREE_TIMEOUT_S):
                    left = await self._broker.configs.learn_topics(left)
                if not left:
                    return
                await asyncio.sleep(_LOOK_AGAIN_S)
        except (CoordinationError, ZnodeError, TimeoutError) as error:
            _logger.warning("could not read the configs of %d topics, and will try again: %s", len(names), error)
        else:
            _logger.warning("ZooKeeper does not have %d topics of the controller's yet; will look again", len(left))
        self._begin(self._learn_later(left), "learning topic configs")

    async def _learn_later(self, names: Collection[str]) -> None:
        left = names
        while left:
            await asyncio.sleep(_RETRY_S)
            try:
                left = await self._broker.configs.learn_topics(left)
            except (CoordinationError, ZnodeError):
                continue
            left = [name for name in left if self._broker.metadata.topic(name) is not None]  # deleted meanwhile

    def _topic_replaced(self, name: str) -> None:
        """The known configs are those of a topic that is gone. Replicas of the new one may have got them already."""
        self._broker.configs.forget_topic(name)
        self._begin(self._learn_replaced(name), "learning topic configs")

    async def _learn_replaced(self, name: str) -> None:
        await self._learn_topics([name])
        self.topic_config_changed(name)

    def topic_config_changed(self, name: str) -> None:
        config, partitions = self._broker.configs.log_config(name), self._broker.replicas.partitions
        for log in self._broker.directories.logs():  # also of replicas that have no role yet
            if log.partition.topic == name:
                log.update_config(config)
                if (partition := partitions.get(log.partition)) is not None:
                    partition.config_changed()
        self._throttle(name)
        if _is_true(self._broker.configs.topic_config(name).get(_UNCLEAN)):
            self.controller.unclean_election_enabled(name)

    def broker_config_changed(self, keys: frozenset[str]) -> None:
        configs = self._broker.configs
        for log in self._broker.directories.logs():
            log.update_config(configs.log_config(log.partition.topic))
        for partition in self._broker.replicas.partitions.values():
            partition.config_changed()
        if _UNCLEAN in keys and configs.current(_UNCLEAN):
            self.controller.unclean_election_enabled()
        if "num.replica.fetchers" in keys:
            self.fetchers.resize(configs.current("num.replica.fetchers"))
        self._set_rates()

    def _throttle(self, name: str) -> None:
        """Sets which replicas of a topic are throttled."""
        try:
            self.quotas.set_topic(name, self._broker.configs.topic_config(name))
        except ValueError as error:  # written by other tools
            _logger.warning(
                "the throttled replicas of topic %s are not understood, and stay as they were: %s", name, error
            )

    def _set_rates(self) -> None:
        rates = {side: self._broker.configs.current(f"{side}.replication.throttled.rate") for side in _SIDES}
        self.quotas.set_rates(**{side: None if rate >= _UNLIMITED else rate for side, rate in rates.items()})

    # --- failed log directories ---------------------------------------------------------------------------------------

    def _replicas_failed(self, names: list[TopicPartition]) -> None:
        """The controller asks for the roles of all replicas again, and learns from the answers which have failed."""
        self.fetchers.stop(names)
        for name in names:
            self._broker.coordinators.resign(name)
        self._broker.check_directories()
        self._begin(self._tell_of_failure(), "telling of a failed log directory")

    async def _tell_of_failure(self) -> None:
        data = encode_log_dir_failure(self._broker.broker_id)
        while True:
            try:
                await self._tree.create(paths.LOG_DIR_EVENT_PREFIX, data, sequential=True)
            except CoordinationError as error:
                _logger.warning("could not tell the controller of a failed log directory yet: %s", error)
                await asyncio.sleep(_RETRY_S)
            else:
                return

    # --- the session --------------------------------------------------------------------------------------------------

    def _session_expired(self) -> None:
        self.session_expiry_count += 1

    async def _registered_again(self, _epoch: int) -> None:
        await self.controller.rejoin()

    # --- the own broker, for the links --------------------------------------------------------------------------------

    @property
    def _controlled(self) -> ControlRequests:
        if self.control is None:
            raise RuntimeError("the broker has not joined yet")
        return self.control

    async def leader_and_isr(self, request: LeaderAndIsrRequest, version: int) -> LeaderAndIsrResponse:
        return await self._controlled.leader_and_isr(request, version)

    async def stop_replica(self, request: StopReplicaRequest, version: int) -> StopReplicaResponse:
        return await self._controlled.stop_replica(request, version)

    async def update_metadata(self, request: UpdateMetadataRequest, version: int) -> UpdateMetadataResponse:
        return await self._controlled.update_metadata(request, version)

    async def alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        return await self.controller.alter_partition(request, version)

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        return await self.controller.controlled_shutdown(request)

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        return await self.controller.allocate_producer_ids(request)

    # --- metrics ------------------------------------------------------------------------------------------------------

    def numbers(self) -> ClusterNumbers:
        fetchers, controller = self.fetchers, self.controller
        return ClusterNumbers(
            max_lag=fetchers.max_lag(),
            failed_fetches=fetchers.failed_count,
            replication_bytes_in=fetchers.bytes_in,
            is_controller=controller.is_active,
            offline_partitions=controller.offline_partition_count,
            imbalanced_partitions=controller.preferred_imbalance_count,
            reassigned_partitions=controller.reassigning_count,
            elections=controller.election_count,
            unclean_elections=controller.unclean_election_count,
            last_failover_s=controller.last_failover_s,
            is_connected=not isinstance(self._tree, ZooKeeperTree) or self._tree.session.is_connected,
            expired_sessions=self.session_expiry_count,
        )

    # --- stop ---------------------------------------------------------------------------------------------------------

    async def leave(self) -> None:
        broker = self._broker
        if self._roles is not None:
            self._roles.is_stopping = True
        if not self._settings.controlled_shutdown:
            return
        await shut_down(
            self._to_controller,
            lambda: self.controller_id,
            broker.broker_id,
            self._epoch,
            lambda: set(broker.metadata.brokers) <= {broker.broker_id},
            self._settings,
            lambda: self.sessions.is_connected,
        )

    async def stop(self) -> None:
        if self._is_stopped:
            return
        self._is_stopped = True
        await self.sessions.close()
        await self.controller.close()
        await self.isr_changes.close()
        await self.fetchers.close()
        if self.control is not None:
            await self.control.close()

    async def close(self) -> None:
        await self.stop()
        if hasattr(self, "full_directories"):
            await self.full_directories.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.links.close()


def _is_true(text: str | None) -> bool:
    return text is not None and text.strip().lower() == "true"
