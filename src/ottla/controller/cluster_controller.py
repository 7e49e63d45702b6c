"""The controller of a cluster, as one of its brokers runs it: active on one broker, ready to take over on the others.

Election is one transaction: it creates the ephemeral node `/controller` and raises `/controller_epoch`, if nobody else
has meanwhile. Whoever wins writes only under a check of that epoch's version, so that an earlier controller, however
late it notices, can change nothing.

    start, rejoin ─▶ elect ─▶ ActiveController (driver) ─▶ ControllerCore (core) ─▶ nodes and requests
                       ▲                │
     /controller gone ─┘                └─ end: session expired, or another controller's epoch

All methods that change something run as events, one after the other. On a broker that is not the active controller they
raise `ControllerError` with NOT_CONTROLLER.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeVar

from ottla.base.clock import Clock
from ottla.base.coordination import (
    BadVersionError,
    Check,
    ConnectionLossError,
    Coordination,
    CoordinationError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    SessionState,
    SetData,
    WatchEvent,
)
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition, Uuid
from ottla.controller.core.effects import ControllerMovedError
from ottla.controller.core.partition_changes import alter_partitions
from ottla.controller.driver import topic_requests
from ottla.controller.driver.active_controller import ActiveController, Reign
from ottla.controller.driver.controller_watch import ControllerWatch
from ottla.controller.driver.event_queue import EventQueue
from ottla.controller.errors import ControllerError
from ottla.controller.seams import ControlLinks, LiveBroker
from ottla.controller.settings import ControllerSettings
from ottla.controller.state import PartitionState, TopicState
from ottla.controller.wanted_topics import NewPartitionCount, WantedTopic
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ottla.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from ottla.zookeeper import paths
from ottla.zookeeper.node_json import ZnodeError
from ottla.zookeeper.znodes import (
    ControllerRegistration,
    ProducerIdBlock,
    decode_controller_epoch,
    encode_controller_epoch,
)

T = TypeVar("T")

_logger = logging.getLogger(__name__)

_NOBODY: Final = -1
_RETRY_S: Final = 0.05
_RETRY_AFTER_FAILURE_S: Final = 1.0
_TELL_EVERY: Final = 60
"""Of the same failures in a row, one in so many is logged."""
_CLOSE_S: Final = 5.0
_CLOSE_WITHOUT_TREE_S: Final = 0.5
_PATIENCE_S: Final = 10.0
"""How long the tree may be away before a client's request is refused."""
_LOOK_AGAIN_S: Final = 0.1
_PRODUCER_IDS: Final = 1000
"""The size of a block, as in Kafka."""
_LAST_PRODUCER_ID: Final = (1 << 63) - 1


class ClusterController:
    """One per broker of a cluster. Belongs to one event loop."""

    def __init__(
        self,
        coordination: Coordination,
        links: ControlLinks,
        broker_id: int,
        settings: ControllerSettings,
        clock: Clock,
    ) -> None:
        self.on_controller: Callable[[int], None] = lambda _: None
        """Called with the id of the controller whenever it changes; -1 for none."""
        self.controller_id = _NOBODY
        self.last_failover_s = 0.0
        self._tree = coordination
        self._links = links
        self._broker_id = broker_id
        self._settings = settings
        self._clock = clock
        self._queue = EventQueue()
        self._active: ActiveController | None = None
        self._is_closed = False
        self._lost_s: float | None = None
        """When the connection to the tree was lost."""
        self._told_lost_s: float | None = None
        self._watch = ControllerWatch(coordination, links, broker_id, self._controller_gone)

    @property
    def is_active(self) -> bool:
        return self._active is not None

    @property
    def epoch(self) -> int:
        """The controller epoch while active, else 0."""
        return 0 if self._active is None else self._active.reign.epoch

    # --- begin and end ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Call this after the broker has registered. Returns when it is known who the controller is."""
        self._queue.start()
        await self._queue.call("start", self._join)

    async def rejoin(self) -> None:
        """After the session expired and the broker has registered again."""
        await self._queue.call("rejoin", self._join)

    async def _join(self) -> None:
        while not self._is_closed:
            try:
                await paths.ensure_persistent_paths(self._tree)
            except ConnectionLossError:
                await asyncio.sleep(_RETRY_S)
            except SessionExpiredError:
                return  # `rejoin` follows
            else:
                await self._elect()
                return

    def session_state(self, state: SessionState) -> None:
        """Call this whenever the session's state changes. Expired: this broker is not the controller any more."""
        if state is SessionState.CONNECTED:
            self._lost_s = None
        elif self._lost_s is None:
            self._lost_s = self._clock.monotonic_s()
        if state is SessionState.EXPIRED:
            self._resign()
            self._tell(_NOBODY)

    async def close(self) -> None:
        """Resigns, and stops."""
        self._is_closed = True
        self._watch.close()
        active = self._active
        self._resign()
        limit_s = _CLOSE_S if self._lost_s is None else _CLOSE_WITHOUT_TREE_S
        try:
            await asyncio.wait_for(self._queue.close(), limit_s)
        except TimeoutError:
            _logger.warning("the controller did not finish its events")
        if self._active is not None:  # elected meanwhile
            active = self._active
            self._resign()
        if active is not None:
            try:
                await asyncio.wait_for(self._give_up(active.reign), limit_s)
            except (TimeoutError, CoordinationError) as error:
                _logger.warning(
                    "could not resign, so the session must end first: %s", str(error) or "ZooKeeper is away"
                )

    async def _give_up(self, reign: Reign) -> None:
        """Removes `/controller`, if it is still that of this reign."""
        with suppress(BadVersionError, NoNodeError):  # another broker is the controller
            await self._tree.transact([Check(paths.CONTROLLER_EPOCH, reign.epoch_version), Delete(paths.CONTROLLER)])

    def _resign(self) -> None:
        if self._active is not None:
            _logger.info("broker %d resigns as the controller of epoch %d", self._broker_id, self.epoch)
            self._active.end()
            self._active = None

    # --- election ---------------------------------------------------------------------------------------------------

    def _tell(self, controller_id: int) -> None:
        if controller_id != self.controller_id:
            self.controller_id = controller_id
            self.on_controller(controller_id)

    def _on_controller_node(self, _event: WatchEvent) -> None:
        self._queue.put_once("controller change", self._elect)

    def _moved(self) -> None:
        """The tree refused a write, or the session is over: looks who the controller is."""
        self._resign()
        self._queue.put_once("controller change", self._elect)

    def _controller_gone(self, broker: LiveBroker) -> None:
        """The process of the controller, or of the one before this one, is gone."""
        if self._active is not None:
            self._active.suspect(broker)
            self._watch.close()
        else:
            self._queue.put("end of the controller", lambda: self._depose(broker))

    async def _depose(self, broker: LiveBroker) -> None:
        while not self._is_closed:
            try:
                await self._watch.depose(broker)
            except ConnectionLossError:
                await asyncio.sleep(_RETRY_S)
            except SessionExpiredError:
                return
            else:
                return

    async def _elect(self) -> None:
        """Runs for election unless there is a controller. Resigns if that is another broker."""
        failures: Counter[str] = Counter()
        while not self._is_closed:
            try:
                if await self._is_decided():
                    return
            except SessionExpiredError:
                self._resign()
                self._tell(_NOBODY)
                return  # `rejoin` follows
            except ConnectionLossError:
                await asyncio.sleep(_RETRY_S)
            except (CoordinationError, ZnodeError) as error:
                # Nothing else would make this broker look again, and it may be the only one.
                if failures[str(error)] % _TELL_EVERY == 0:
                    _logger.error("broker %d cannot run for election, and keeps trying: %s", self._broker_id, error)
                failures[str(error)] += 1
                await asyncio.sleep(_RETRY_AFTER_FAILURE_S)

    async def _is_decided(self) -> bool:
        node = await self._tree.get(paths.CONTROLLER, self._on_controller_node)
        if node is not None:
            try:
                controller_id = ControllerRegistration.decode(paths.CONTROLLER, node.data).broker_id
            except ZnodeError as error:
                _logger.error("%s", error)
                controller_id = _NOBODY
            if self._active is not None and node.owner != self._tree.session_id:
                self._resign()
            if self._active is None and node.owner == self._tree.session_id and controller_id == self._broker_id:
                # Won in a transaction whose answer was lost, or a reign that ended with an error: begin again.
                await self._remove_own()
                return False
            self._tell(controller_id)
            await self._watch.follow(controller_id, node.created_zxid)
            return True
        self._resign()
        self._tell(_NOBODY)
        reign = await self._won()
        if reign is None:
            return False
        await self._take_over(reign)
        return True

    async def _remove_own(self) -> None:
        """Under a check of the epoch: all nodes of controllers have the same version, and another broker may have been
        elected since this one was read."""
        epoch = await self._tree.get(paths.CONTROLLER_EPOCH)
        node = await self._tree.get(paths.CONTROLLER)
        if epoch is None or node is None or node.owner != self._tree.session_id:
            return
        with suppress(BadVersionError, NoNodeError):
            await self._tree.transact([Check(paths.CONTROLLER_EPOCH, epoch.version), Delete(paths.CONTROLLER)])

    async def _won(self) -> Reign | None:
        """Runs for election; None if another broker was faster."""
        node = await self._tree.get(paths.CONTROLLER_EPOCH)
        if node is None:
            with suppress(NodeExistsError):
                await self._tree.create(paths.CONTROLLER_EPOCH, encode_controller_epoch(0))
            return None
        epoch = decode_controller_epoch(paths.CONTROLLER_EPOCH, node.data) + 1
        registration = ControllerRegistration(self._broker_id, self._clock.now_ms())
        try:
            await self._tree.transact(
                [
                    Create(paths.CONTROLLER, registration.encode(), ephemeral=True),
                    SetData(paths.CONTROLLER_EPOCH, encode_controller_epoch(epoch), node.version),
                ]
            )
        except (NodeExistsError, BadVersionError):
            return None
        return Reign(epoch, node.version + 1)

    async def _take_over(self, reign: Reign) -> None:
        _logger.info("broker %d is the controller of epoch %d", self._broker_id, reign.epoch)
        active = self._active = ActiveController(
            self._tree,
            self._links,
            self._broker_id,
            self._settings,
            self._clock,
            self._queue,
            reign,
            self._moved,
        )
        self._tell(self._broker_id)
        own = await self._tree.get(paths.CONTROLLER, self._on_controller_node)
        try:
            await active.start(self._watch.gone, 0 if own is None else own.created_ms)
            self._watch.taken_over(active.context.brokers)
            self.last_failover_s = active.failover_s
        except ControllerMovedError as error:
            _logger.info("no longer the controller while taking over: %s", error)
            self._moved()
        except SessionExpiredError:
            raise
        except Exception:
            _logger.exception("broker %d cannot take over as the controller, and resigns", self._broker_id)
            self._resign()
            await asyncio.sleep(_RETRY_S)
            await self._give_up(reign)

    # --- requests ---------------------------------------------------------------------------------------------------

    async def _asked(self, name: str, change: Callable[[ActiveController], Coroutine[Any, Any, T]]) -> T:
        """Runs a client's request on the active controller."""
        return await self._patiently(name, lambda: self._call(name, change))

    async def _patiently(self, name: str, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """If ZooKeeper is away for long, the client learns that, instead of hearing nothing; what has begun by then
        may still be done."""
        self._check_tree(name)
        work = asyncio.ensure_future(begin())
        try:
            while not work.done():
                await asyncio.wait([work], timeout=_LOOK_AGAIN_S if self._lost_s is not None else _PATIENCE_S)
                if not work.done():
                    self._check_tree(name)
            return await work
        finally:
            if not work.done():
                work.cancel()  # the event itself goes on

    def _check_tree(self, name: str) -> None:
        if self._lost_s is not None and self._clock.monotonic_s() - self._lost_s > _PATIENCE_S:
            broker = "The controller" if self.is_active else f"Broker {self._broker_id}"
            reason = f"{broker} has lost its connection to ZooKeeper, and can change nothing until it is back."
            if self._told_lost_s != self._lost_s:  # once, however often clients try again
                self._told_lost_s = self._lost_s
                _logger.warning("refusing %s, and more: ZooKeeper has been away for %.0f s", name, _PATIENCE_S)
            raise ControllerError(ErrorCode.REQUEST_TIMED_OUT, reason)

    async def _call(self, name: str, change: Callable[[ActiveController], Coroutine[Any, Any, T]]) -> T:
        """Runs a request as an event of the active controller."""

        async def event() -> T:
            active = self._active
            if active is None:
                raise _not_controller()
            try:
                return await change(active)
            except (ControllerMovedError, SessionExpiredError) as error:
                self._moved()
                raise _not_controller() from error
            except CoordinationError as error:
                _logger.error("%s failed: %s", name, error)
                reason = f"The coordination tree could not be read or changed: {error}"
                raise ControllerError(ErrorCode.UNKNOWN_SERVER_ERROR, reason) from error

        if self._active is None or self._is_closed:
            raise _not_controller()
        return await self._queue.call(name, event)

    async def _told(self) -> None:
        if self._active is not None:
            await self._active.told_own_broker()

    async def create_topics(
        self, wanted: Sequence[WantedTopic], *, validate_only: bool = False, reason: str = ""
    ) -> list[TopicState | ControllerError]:
        """Returns one outcome per topic, in order. With `validate_only` nothing is created: the states show what the
        topics would be like, without an id. This broker's metadata has the topics when this returns."""
        outcomes = await self._asked(
            "CreateTopics",
            lambda active: topic_requests.create_topics(active, wanted, validate_only=validate_only, reason=reason),
        )
        if not validate_only:
            await self._told()
        return outcomes

    async def create_topic(self, wanted: WantedTopic, *, validate_only: bool = False, reason: str = "") -> TopicState:
        """The same for one; raises what is wrong."""
        (outcome,) = await self.create_topics([wanted], validate_only=validate_only, reason=reason)
        if isinstance(outcome, ControllerError):
            raise outcome
        return outcome

    async def auto_create_topics(
        self, wanted: Sequence[WantedTopic], reason: str
    ) -> list[TopicState | ControllerError]:
        """Creates topics on any broker, as brokers do when a client asks for a topic that does not exist. Where this
        broker is not the controller, the partitions have no leaders yet."""
        if self.is_active:
            return await self.create_topics(wanted, reason=reason)
        try:
            return await self._patiently(
                "automatic topics",
                lambda: topic_requests.create_topics_from_afar(self._tree, self._settings, wanted, reason),
            )
        except CoordinationError as error:
            failure = ControllerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The topic could not be created: {error}")
            return [failure] * len(wanted)

    async def delete_topics(
        self, names: Sequence[str], ids: Mapping[str, Uuid] = MappingProxyType({})
    ) -> list[ControllerError | None]:
        """Returns one outcome per topic, None for success. When this returns, the topics are marked for deletion and
        gone from this broker's metadata; their replicas are deleted as soon as their brokers are there. A topic named
        in `ids` is deleted only if it has that id."""
        outcomes = await self._asked("DeleteTopics", lambda active: topic_requests.delete_topics(active, names, ids))
        await self._told()
        return outcomes

    async def delete_topic(self, name: str) -> None:
        """The same for one; raises what is wrong."""
        (error,) = await self.delete_topics([name])
        if error is not None:
            raise error

    async def grow_topics(
        self, wanted: Sequence[NewPartitionCount], *, validate_only: bool = False
    ) -> list[TopicState | ControllerError]:
        """Returns one outcome per topic, in order: the topic with its new partitions. Each topic may appear once."""
        outcomes = await self._asked(
            "CreatePartitions",
            lambda active: topic_requests.grow_topics(active, wanted, validate_only=validate_only),
        )
        await self._told()
        return outcomes

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None, *, unclean: bool
    ) -> dict[TopicPartition, ControllerError | None]:
        """Returns the outcome of each partition, None for success. None stands for all that need an election."""
        wanted = None if partitions is None else list(partitions)
        outcomes = await self._asked(
            "ElectLeaders", lambda active: active.run(active.core.elect_leaders(wanted, unclean=unclean))
        )
        await self._told()
        return outcomes

    async def reassign_all(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None], *, may_change_factor: bool = True
    ) -> dict[TopicPartition, ControllerError | None]:
        """Moves partitions to these brokers; None cancels a reassignment. Returns when the reassignments are stored, or
        why they are not. The outcome of each partition is None for success."""
        return await self._asked(
            "AlterPartitionReassignments",
            lambda active: active.run(
                active.core.reassignments.by_request(wanted, may_change_factor=may_change_factor)
            ),
        )

    async def reassign(
        self, name: TopicPartition, replicas: Sequence[int] | None, *, may_change_factor: bool = True
    ) -> None:
        """The same for one; raises what is wrong."""
        outcomes = await self.reassign_all({name: replicas}, may_change_factor=may_change_factor)
        if (failure := outcomes[name]) is not None:
            raise failure

    async def reassignments(
        self, names: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionState]:
        """The reassignments in progress, of these partitions or all."""
        wanted = None if names is None else list(names)

        async def read(active: ActiveController) -> dict[TopicPartition, PartitionState]:
            context = active.context
            moving = context.being_reassigned if wanted is None else wanted
            found = {}
            for name in moving:
                if name in context.being_reassigned and name.topic in context.topics:
                    assignment = context.assignment(name)
                    leadership = context.leaderships.get(name)
                    if assignment is not None and leadership is not None:
                        found[name] = PartitionState(
                            assignment.replicas,
                            leadership.leader,
                            leadership.leader_epoch,
                            leadership.isr,
                            leadership.controller_epoch,
                            leadership.version,
                            assignment.adding,
                            assignment.removing,
                        )
            return found

        return await self._call("ListPartitionReassignments", read)

    async def alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        """A leader's new ISRs. Errors are in the response."""

        async def change(active: ActiveController) -> AlterPartitionResponse:
            altered = await active.run(alter_partitions(active.context, request, version))
            for name in altered.changed:
                if name in active.context.being_reassigned:
                    active.run_later("reassignment", partial(active.core.reassignments.isr_changed, name))
            return altered.response

        try:
            return await self._call("AlterPartition", change)
        except ControllerError as error:
            return AlterPartitionResponse(error_code=error.code)

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        """A broker is about to stop. It asks again while it still leads partitions."""
        try:
            remaining = await self._call(
                "ControlledShutdown",
                lambda active: active.run(active.core.controlled_shutdown(request.broker_id, request.broker_epoch)),
            )
        except ControllerError as error:
            return ControlledShutdownResponse(error_code=error.code)
        return ControlledShutdownResponse(
            remaining_partitions=[
                RemainingPartition(topic_name=name.topic, partition_index=name.partition) for name in remaining
            ]
        )

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        """The next block of ids for a broker (KIP-730)."""

        async def change(active: ActiveController) -> AllocateProducerIdsResponse:
            broker = active.context.brokers.get(request.broker_id)
            if broker is None:
                raise ControllerError(ErrorCode.BROKER_ID_NOT_REGISTERED)
            if broker.epoch != request.broker_epoch:
                raise ControllerError(ErrorCode.STALE_BROKER_EPOCH)
            first = await self._next_producer_ids(active, request.broker_id)
            return AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=_PRODUCER_IDS)

        try:
            return await self._call("AllocateProducerIds", change)
        except ControllerError as error:
            return AllocateProducerIdsResponse(error_code=error.code)

    async def _next_producer_ids(self, active: ActiveController, broker_id: int) -> int:
        path = paths.PRODUCER_ID_BLOCK
        while True:
            node = await self._tree.get(path)
            first = ProducerIdBlock.decode(path, node.data).last + 1 if node is not None and node.data else 0
            if first > _LAST_PRODUCER_ID - _PRODUCER_IDS:
                raise ControllerError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids are used.")
            data = ProducerIdBlock(broker_id, first, first + _PRODUCER_IDS - 1).encode()
            write = Create(path, data) if node is None else SetData(path, data, node.version)
            try:
                await active.work.transact([write])
            except (BadVersionError, NodeExistsError):
                continue  # a broker has taken a block itself; or the answer was lost, and a block is skipped
            return first

    def unclean_election_enabled(self, topic: str | None = None) -> None:
        """`unclean.leader.election.enable` was set for a topic, or for all by default: elects leaders that are missing.
        The broker's config listener calls this."""
        if self._active is not None:
            active = self._active
            active.run_later("unclean election enabled", lambda: active.core.partitions.elect_missing(topic))

    # --- figures ----------------------------------------------------------------------------------------------------

    @property
    def offline_partition_count(self) -> int:
        return 0 if self._active is None else self._active.context.offline_partition_count()

    @property
    def preferred_imbalance_count(self) -> int:
        return 0 if self._active is None else len(self._active.context.imbalanced)

    @property
    def topic_count(self) -> int:
        return 0 if self._active is None else len(self._active.context.topics)

    @property
    def partition_count(self) -> int:
        return 0 if self._active is None else self._active.context.partition_count()

    @property
    def live_broker_count(self) -> int:
        return 0 if self._active is None else len(self._active.context.brokers)

    @property
    def topics_to_delete_count(self) -> int:
        return 0 if self._active is None else len(self._active.context.to_delete)

    @property
    def reassigning_count(self) -> int:
        return 0 if self._active is None else len(self._active.context.being_reassigned)

    @property
    def election_count(self) -> int:
        return 0 if self._active is None else self._active.core.partitions.elections

    @property
    def unclean_election_count(self) -> int:
        return 0 if self._active is None else self._active.core.partitions.unclean_elections

    @property
    def event_queue_size(self) -> int:
        return len(self._queue)

    @property
    def request_queue_size(self) -> int:
        return 0 if self._active is None else self._active.request_queue_size

    @property
    def is_idle(self) -> bool:
        """Whether no event waits or is being processed."""
        return self._queue.is_idle


def _not_controller() -> ControllerError:
    return ControllerError(ErrorCode.NOT_CONTROLLER, "This broker is not the controller.")
