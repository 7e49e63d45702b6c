"""The composition root, where a broker is assembled from all other packages.

    frames ─▶ Dispatcher ─▶ handlers ─┬─▶ Replicas ─▶ Partition ─▶ PartitionLog
                                      ├─▶ Controller ─▶ coordination tree, and back to this broker (LoneMember),
                                      │   or to all brokers (ClusterMember)
                                      ├─▶ GroupCoordinatorService ─▶ Replicas (its topic)
                                      ├─▶ HostedTransactions ─▶ Replicas (its topic, markers), other brokers
                                      ├─▶ ConfigStore
                                      └─▶ MetadataCache

One loop owns all of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ottla.base.clock import Clock
from ottla.base.coordination import Coordination, SessionExpiredError
from ottla.base.disk import Disk
from ottla.base.ids import Uuid
from ottla.broker.configs.broker_config import BrokerConfig
from ottla.broker.configs.change_listener import ConfigChangeListener
from ottla.broker.configs.listeners import Listener
from ottla.broker.configs.server_limits import limits_of
from ottla.broker.configs.store import ConfigStore
from ottla.broker.control.control_requests import ControlRequests
from ottla.broker.control.listener import ControllerApis
from ottla.broker.coordinators.coordinator_log import ReplicatedCoordinatorLog
from ottla.broker.coordinators.coordinators import Coordinators
from ottla.broker.dispatch import Dispatcher
from ottla.broker.fetching.fetch_sessions import FetchSessions
from ottla.broker.groups.group_settings import group_settings
from ottla.broker.groups.group_topics import GroupTopics
from ottla.broker.lone_member import LoneMember
from ottla.broker.membership import Membership
from ottla.broker.metadata.features import ClusterFeatures
from ottla.broker.metadata.metadata_cache import NO_CONTROLLER, BrokerEndpoint, MetadataCache
from ottla.broker.observability.logging_setup import ThrottledLog
from ottla.broker.observability.request_stats import RequestStats
from ottla.broker.producing.held_produce import HeldProduces
from ottla.broker.startup.coordination import open_coordination, unusable
from ottla.broker.startup.identity import broker_id_of, cluster_id_of
from ottla.broker.startup.registration import Registrar
from ottla.broker.transactions.hosted import HostedTransactions
from ottla.broker.transactions.producer_ids import ProducerIds
from ottla.broker.upkeep.replica_moves import ReplicaMoves
from ottla.broker.upkeep.upkeep import Upkeep
from ottla.controller.controller import Controller
from ottla.controller.topic_names import OFFSETS_TOPIC
from ottla.coordinator.groups.service import GroupCoordinatorService
from ottla.log.directories import DirectoryOptions, LogDirectories
from ottla.net.server import Server
from ottla.replication.replicas import Replicas
from ottla.zookeeper import paths
from ottla.zookeeper.local_tree import LocalTree
from ottla.zookeeper.node_json import ZnodeError
from ottla.zookeeper.server.listener import TreeListener

if TYPE_CHECKING:
    from ottla.broker.cluster_member import ClusterMember
    from ottla.broker.observability.metrics import MetricsServer
    from ottla.controller.cluster_controller import ClusterController

_logger = logging.getLogger(__name__)

_DRAIN_S: Final = 2.0
_VERIFICATION: Final = "transaction.partition.verification.enable"
_STARTS_MAX: Final = 3
_RESERVE_BYTES: Final = 2**20
"""Reserved in each log directory, so that the broker can stop and start cleanly when a disk is full."""


Steps = Sequence[tuple[str, Callable[[], Awaitable[None]]]]
"""The steps of a stop, each with a name."""


@dataclass(frozen=True, slots=True)
class ReadyInfo:
    """What is shown once the broker serves."""

    broker_id: int
    cluster_id: str
    listeners: tuple[Listener, ...]
    data: str
    topic_count: int | None
    """None in a cluster: the controller has not told yet."""
    partition_count: int
    metrics_port: int | None


class Broker:
    """See the module. Created by `start`; `stop` leaves everything ready for a clean restart."""

    def __init__(self, config: BrokerConfig, disk: Disk, clock: Clock, coordination: Coordination) -> None:
        self.config = config
        self.disk = disk
        self.clock = clock
        self.coordination = coordination
        self._tree_listener: TreeListener | None = None
        self.request_stats = RequestStats()
        self.complaints = ThrottledLog(_logger, clock)
        self.fetch_sessions = FetchSessions(config["max.incremental.fetch.session.cache.slots"], clock)
        self.fetch_max_bytes: int = config["fetch.max.bytes"]
        self.broker_id: int
        self.registrar: Registrar
        self.configs: ConfigStore
        self.metadata: MetadataCache
        self.features = ClusterFeatures()
        self.directories: LogDirectories
        self.replicas: Replicas
        self.member: Membership
        self.cluster: ClusterMember | None = None
        """The same, unless the broker is alone."""
        self.controller: Controller | ClusterController
        self.producer_ids: ProducerIds
        self.replica_moves: ReplicaMoves
        self.held_produces: HeldProduces
        self.coordinators = Coordinators()
        self.groups: GroupCoordinatorService
        self.group_topics: GroupTopics
        self.transactions: HostedTransactions
        self.ready: ReadyInfo
        self._server: Server
        self.dispatcher: Dispatcher
        self._upkeep: Upkeep
        self.config_changes: ConfigChangeListener | None = None
        self._metrics: MetricsServer | None = None
        self.has_failed = asyncio.Event()
        """Set when every log directory is offline: the broker cannot serve anything, and must be stopped."""

    # --- start --------------------------------------------------------------------------------------------------------

    @classmethod
    async def start(cls, config: BrokerConfig, disk: Disk, clock: Clock) -> Broker:
        """Starts a broker, which serves when this returns. Raises if a port, a directory or the tree cannot be used. If
        the machine is so busy that the ZooKeeper session expires meanwhile, starts again."""
        for _ in range(_STARTS_MAX - 1):
            try:
                return await cls._start_once(config, disk, clock)
            except SessionExpiredError as error:
                _logger.warning(
                    "the ZooKeeper session expired while the broker was starting; starting again: %s", error
                )
        return await cls._start_once(config, disk, clock)

    @classmethod
    async def _start_once(cls, config: BrokerConfig, disk: Disk, clock: Clock) -> Broker:
        tree = await open_coordination(config, disk, clock)
        broker = cls(config, disk, clock, tree)
        try:
            await broker._start()
            await broker._serve_tree(tree)
        except BaseException as error:
            await broker._undo_start()
            if isinstance(error, ZnodeError):
                raise unusable(tree, error) from error
            raise
        return broker

    async def _serve_tree(self, tree: Coordination) -> None:
        """Lets other programs use the embedded ZooKeeper, if the config says so."""
        if not isinstance(tree, LocalTree):
            return
        host, port = self.config["ottla.zookeeper.host"], self.config["ottla.zookeeper.port"]
        if port >= 0:
            self._tree_listener = await TreeListener.start(tree.thread, host, port)
            tree.serve = self._tree_listener.perform
            _logger.info("the embedded ZooKeeper listens on %s:%d", host, self._tree_listener.port)

    @property
    def zookeeper_port(self) -> int | None:
        """Of the embedded ZooKeeper, if it serves other programs."""
        return None if self._tree_listener is None else self._tree_listener.port

    async def _undo_start(self) -> None:
        """Cleans up after a failed start: leaves no lock, thread or task behind."""
        if hasattr(self, "held_produces"):
            await _end_each([("listening", self._close_server)])
        if hasattr(self, "transactions"):
            await _end_each([("ending transactions", self.transactions.close)])
        if hasattr(self, "member"):
            await _end_each([("taking part in the cluster", self.member.close)])
        self.coordinators.close()
        await self._stop_config_changes()
        if hasattr(self, "_upkeep"):  # the directories are open, and whole
            await _end_each(
                [
                    ("upkeep of logs", self._upkeep.stop),
                    ("waiting for the disk", self._close_replicas),
                    ("closing logs", self._close_logs),
                ]
            )
        await self._close_tree_listener()
        await self.coordination.close()

    async def _start(self) -> None:
        config, coordination = self.config, self.coordination
        loop = asyncio.get_running_loop()
        await paths.ensure_persistent_paths(coordination)
        cluster_id = await cluster_id_of(coordination)
        broker_id = await broker_id_of(config, coordination, self.disk)
        self.broker_id = broker_id.number
        self.registrar = Registrar.of(coordination, self.broker_id, config)
        await self.registrar.look()
        self.configs = ConfigStore(coordination, config, self.broker_id)
        await self.configs.load()
        self.metadata = MetadataCache(cluster_id, self.broker_id if config.zookeeper is None else NO_CONTROLLER)
        self._server = self._make_server(loop)
        self.held_produces = HeldProduces(loop, self.clock)
        self._make_member()
        topic_ids = await self.member.load()
        try:
            listeners = self._listen()
            await self._open_logs(cluster_id, topic_ids)
        except BaseException:
            self._server.close()
            raise
        await broker_id.keep(coordination)
        self.replicas = Replicas(self.broker_id, self.directories, loop)
        self._upkeep = Upkeep(self.directories, self.replicas, self.configs)
        await self.member.opened()
        self._server.on_handled = self.replicas.fetches.look_now
        self.request_stats.purgatories["fetch"] = lambda: len(self.replicas.fetches)
        self.request_stats.purgatories["produce"] = lambda: len(self.replicas.produces)
        self.producer_ids = ProducerIds(coordination, self.broker_id)
        self.replica_moves = ReplicaMoves(self.directories, self.replicas)
        self._make_group_coordinator(loop)
        self._make_transactions(loop)
        self.configs.on_topic_change = self.member.topic_config_changed
        self.configs.on_broker_change = self._broker_config_changed
        self.config_changes = ConfigChangeListener(coordination, self.configs, self.clock)
        await self.config_changes.start()
        await self.member.join(listeners)
        self.directories.check_any_left()
        self._upkeep.start()
        metrics_port = self._start_metrics()
        self._server.start()
        await self.member.serve()
        self.ready = ReadyInfo(
            broker_id=self.broker_id,
            cluster_id=cluster_id,
            listeners=listeners,
            data=", ".join(str(path) for path in config.log_dirs),
            topic_count=len(self.metadata.topics) if config.zookeeper is None else None,
            partition_count=len(self.replicas.partitions),
            metrics_port=metrics_port,
        )

    def _make_member(self) -> None:
        if self.config.zookeeper is None:
            lone = LoneMember(self)
            self.member, self.controller = lone, lone.controller
        else:
            from ottla.broker.cluster_member import ClusterMember  # a lone broker starts faster without

            self.cluster = ClusterMember(self)
            self.member, self.controller = self.cluster, self.cluster.controller

    @property
    def control(self) -> ControlRequests | None:
        """Takes the controller's requests; None in a lone broker."""
        return None if self.cluster is None else self.cluster.control

    @property
    def cluster_controller(self) -> ControllerApis | None:
        return None if self.cluster is None else self.cluster.controller

    def _make_group_coordinator(self, loop: asyncio.AbstractEventLoop) -> None:
        self.group_topics = GroupTopics(self.metadata)
        timeout_ms = self.config["offsets.commit.timeout.ms"]
        log = ReplicatedCoordinatorLog(OFFSETS_TOPIC, self.replicas, self.metadata, commit_timeout_ms=timeout_ms)
        settings = group_settings(self.config, self.configs.groups.consumer_times)
        self.groups = GroupCoordinatorService(log, self.clock, loop, settings, self.group_topics)
        self.groups.runtime.together = self._server.together
        self.coordinators.add(log, self.groups, "the offsets of consumer groups")

    def _make_transactions(self, loop: asyncio.AbstractEventLoop) -> None:
        self.transactions = HostedTransactions(
            self.config,
            self.replicas,
            self.metadata,
            self.groups,
            self.producer_ids,
            self.clock,
            loop,
            None if self.cluster is None else self.cluster.links.coordinator_peer,
            None if self.cluster is None else self.cluster.is_in_tree,
        )
        self.transactions.verifier.is_enabled = self.configs.current(_VERIFICATION)
        self.coordinators.add(self.transactions.log, self.transactions.service, "the state of transactions")

    def _make_server(self, loop: asyncio.AbstractEventLoop) -> Server:
        dispatcher = Dispatcher(self, self.request_stats, lambda connection, error: server.refuse(connection, error))
        server = Server(
            loop,
            dispatcher.on_frame,
            limits_of(self.configs.effective),
            self.request_stats.connections,
            lambda address, what: self.complaints.warning(address, "%s", what),
        )
        self.dispatcher = dispatcher
        return server

    def _listen(self) -> tuple[Listener, ...]:
        """Binds every listener. Returns the advertised listeners with their actual ports."""
        bound = {each.name: self._server.listen(each.name, each.host, each.port) for each in self.config.listeners}
        told = tuple(
            replace(each, port=bound[each.name].port) if each.port == 0 and each.name in bound else each
            for each in self.config.advertised_listeners
        )
        for each in told:
            self.metadata.put_broker(
                BrokerEndpoint(self.broker_id, each.host, each.port, self.config.rack), listener=each.name
            )
        return told

    async def _open_logs(self, cluster_id: str, topic_ids: Mapping[str, Uuid]) -> None:
        config = self.config
        options = DirectoryOptions(
            broker_id=self.broker_id,
            cluster_id=cluster_id,
            recovery_threads_per_directory=self.configs.current("num.recovery.threads.per.data.dir"),
            producer_id_expiration_ms=self.configs.current("producer.id.expiration.ms"),
            reserve_bytes=_RESERVE_BYTES,
        )
        self.directories = LogDirectories(self.disk, self.clock, config.log_dirs, options)
        # In a thread: recovery may take minutes, and the session with ZooKeeper must not expire meanwhile.
        await asyncio.to_thread(
            self.directories.open,
            lambda partition: self.configs.log_config(partition.topic),
            lambda partition: topic_ids.get(partition.topic),
        )

    def _start_metrics(self) -> int | None:
        if self.config["ottla.metrics.port"] < 0:
            return None
        from ottla.broker.observability.group_metrics import GroupCollector
        from ottla.broker.observability.metrics import MetricsServer
        from ottla.broker.observability.replica_metrics import ReplicaCollector
        from ottla.broker.observability.transaction_metrics import TransactionCollector

        def end_of(topic: str, index: int) -> int | None:
            partition = self.replicas.get(topic, index)
            return None if partition is None or partition.log is None else partition.high_watermark

        self._metrics = MetricsServer(
            self.request_stats,
            self.directories,
            self._upkeep.stats,
            [
                ReplicaCollector(self.replicas, self.member.numbers),
                GroupCollector(self.groups, end_of),
                TransactionCollector(self.transactions, self.replicas, self.clock),
            ],
            host=self.config["ottla.metrics.host"],
            port=self.config["ottla.metrics.port"],
        )
        return self._metrics.port

    # --- what changes while it runs -----------------------------------------------------------------------------------

    def _broker_config_changed(self, keys: frozenset[str]) -> None:
        self.member.broker_config_changed(keys)
        self.fetch_max_bytes = self.configs.current("fetch.max.bytes")
        self.transactions.verifier.is_enabled = self.configs.current(_VERIFICATION)
        self._upkeep.config_changed(keys)
        if any(key.startswith("max.connections") for key in keys):
            self._server.change_limits(limits_of(self.configs.effective))

    def check_directories(self) -> None:
        """A log directory has failed: if none is left, the broker must be stopped."""
        if not self.directories.online():
            paths = ", ".join(str(directory.path) for directory in self.directories.directories)
            _logger.critical("stopping the broker because all its log directories have failed: %s", paths)
            self.has_failed.set()

    # --- stop ---------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Answers waiting requests, closes connections, flushes, and marks the clean stop. A failing step is logged;
        the logs are closed in any case."""
        await _end_each([("letting other brokers take over", self.member.leave)])
        self._server.stop_accepting()
        self.coordinators.close()
        self.replicas.fetches.close()
        self.replicas.produces.close()
        steps: Steps = (
            ("sending answers", self._drain),
            ("listening", self._close_server),  # from here on no request is started
            ("changing topics and roles", self.member.stop),
            ("handling requests", self.dispatcher.close),
            ("ending transactions", self.transactions.close),
            ("moving replicas", self.replica_moves.close),  # which tell the upkeep
            ("following configs", self._stop_config_changes),
            ("upkeep of logs", self._upkeep.stop),
            ("handing out producer ids", self.producer_ids.close),
            ("taking part in the cluster", self.member.close),
            ("waiting for the disk", self._close_replicas),
            ("closing logs", self._close_logs),
            ("serving ZooKeeper clients", self._close_tree_listener),
            ("leaving the cluster", self.coordination.close),  # its registration is removed with its session
            ("forgetting the session", self._forget_session),
        )
        await _end_each(steps)

    async def _close_server(self) -> None:
        self._server.close()
        self.held_produces.close()

    async def _close_replicas(self) -> None:
        if self._metrics is not None:
            self._metrics.close()
        self.replicas.close()

    async def _close_logs(self) -> None:
        await asyncio.to_thread(self.directories.close)

    async def _stop_config_changes(self) -> None:
        if self.config_changes is not None:
            await self.config_changes.close()

    async def _forget_session(self) -> None:
        self.registrar.forget()

    async def _close_tree_listener(self) -> None:
        if self._tree_listener is not None:
            await self._tree_listener.close()

    async def _drain(self) -> None:
        """Sends pending responses, but does not wait for clients that do not read them."""
        deadline_s = self.clock.monotonic_s() + _DRAIN_S
        while self.clock.monotonic_s() < deadline_s:
            if all(connection.is_idle for connection in self._server.connections.values()):
                return
            await asyncio.sleep(0.01)


async def _end_each(steps: Steps) -> None:
    """Runs the steps one after the other; a failing step is logged."""
    for what, end in steps:
        try:
            await end()
        except Exception:
            _logger.exception("a step of the broker's stop failed: %s", what)
