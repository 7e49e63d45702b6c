"""Gives replicas the roles that the controller wants, as in a LeaderAndIsr request, and stops and deletes them, as in a
StopReplica request.

Logs are created, opened and flushed in threads first; then the roles switch without an await, so that no request sees a
replica between two roles. The caller lets in one request at a time.

| request for a partition | answer |
| --- | --- |
| its log directory is offline, or the log cannot be opened | KAFKA_STORAGE_ERROR |
| its disk is full, and other replicas are in sync | KAFKA_STORAGE_ERROR, until there is room (`full_directories`) |
| it has another topic id than the log here | INCONSISTENT_TOPIC_ID; the log stays |
| a leader epoch that is not higher than the known one | STALE_CONTROLLER_EPOCH |
| to follow again in the same epoch, after it was stopped: its disk was full | NONE |
| this broker is not among its replicas | UNKNOWN_TOPIC_OR_PARTITION |
| its leader is not in the metadata | NONE, and only the log is created |
| a name, epoch or list of replicas that no controller can mean | INVALID_REQUEST |

Owned by the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Final, Protocol

from ottla.base.disk import is_full
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.broker.control.request_forms import (
    EPOCH_DURING_DELETE,
    NO_EPOCH,
    StoppedReplica,
    WantedRole,
    fault_of_role,
)
from ottla.log.config import LogConfig
from ottla.log.errors import LogError
from ottla.log.new_logs import NewLog
from ottla.log.partition_log import PartitionLog
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas

_logger = logging.getLogger(__name__)

_NONE: Final = ErrorCode.NONE
_AT_A_TIME: Final = 256
"""Partitions that switch their roles in one turn of the loop. The first need not wait for the last one's log."""
Outcomes = dict[TopicPartition, ErrorCode]


class FollowerFetchers(Protocol):
    """`ottla.replication.fetching.Fetchers`, as far as it is needed here."""

    def follow(self, partitions: Iterable[Partition]) -> None: ...
    def stop(self, names: Iterable[TopicPartition]) -> None: ...


class MovingCoordinators(Protocol):
    """The `Coordinators`, which move with the partitions of their topics."""

    def lead(self, name: TopicPartition, leader_epoch: int) -> None: ...
    def resign(self, name: TopicPartition) -> None: ...


class TopicConfigs(Protocol):
    """The `ConfigStore`."""

    def log_config(self, name: str) -> LogConfig: ...


class RoleChanges:
    """See the module. `learn_topics` reads the configs of topics that are not known yet; it does not raise.
    `note_topic_id` is told the ids of topics that this broker leads partitions of; `is_full` says whether the disk of a
    log is full."""

    def __init__(
        self,
        replicas: Replicas,
        fetchers: FollowerFetchers,
        coordinators: MovingCoordinators,
        configs: TopicConfigs,
        learn_topics: Callable[[Collection[str]], Awaitable[None]],
        is_alive: Callable[[int], bool],
        note_topic_id: Callable[[Uuid, str], None] = lambda *_: None,
        is_full: Callable[[TopicPartition], bool] = lambda _: False,
    ) -> None:
        self._replicas = replicas
        self._directories = replicas.directories
        self._fetchers = fetchers
        self._coordinators = coordinators
        self._configs = configs
        self._learn_topics = learn_topics
        self._is_alive = is_alive
        self._note_topic_id = note_topic_id
        self._is_full = is_full
        self._stopped: set[TopicPartition] = set()
        """Replicas whose fetching the controller stopped, and that have had no role since."""
        self.is_stopping = False
        """Whether the broker stops: followers do not begin to fetch."""

    # --- roles --------------------------------------------------------------------------------------------------------

    async def give(self, wanted: Sequence[WantedRole]) -> Outcomes:
        """Returns the outcome of each partition."""
        outcomes: Outcomes = {}
        applied: list[WantedRole] = []
        for each in wanted:
            if self._is_known(each):
                outcomes[each.name] = ErrorCode.STALE_CONTROLLER_EPOCH
                continue
            error = await self._fault(each)
            if error is None:
                applied.append(each)
            else:
                outcomes[each.name] = error
        if applied:
            await self._learn_topics({each.name.topic for each in applied})
        for start in range(0, len(applied), _AT_A_TIME):
            some = applied[start : start + _AT_A_TIME]
            await self._open_logs(some)
            self._switch(some, outcomes)
            await asyncio.sleep(0)
        return outcomes

    def _is_known(self, wanted: WantedRole) -> bool:
        """Whether the partition has this role, or a newer one. A new controller sends every role once."""
        name = wanted.name
        partition = self._replicas.partitions.get(name)
        return (
            partition is not None
            and partition.log is not None
            and partition.leader_epoch >= wanted.role.leader_epoch >= 0
            and partition.topic_id == wanted.topic_id != ZERO_UUID
            and name not in self._stopped
            and not self._is_full(name)
        )

    async def _fault(self, wanted: WantedRole) -> ErrorCode | None:
        """The outcome of a partition whose role does not change; None for one that gets its role."""
        name, role = wanted.name, wanted.role
        nonsense = fault_of_role(wanted)
        if nonsense is not None:
            _logger.error("%s: its role in controller epoch %d is refused: %s", name, role.controller_epoch, nonsense)
            return ErrorCode.INVALID_REQUEST
        partition = self._replicas.partitions.get(name)
        if partition is not None and partition.log is None and self._may_be_in_failed_directory(name):
            _logger.warning(
                "%s: its log directory is offline; its role in epoch %d is refused", name, role.leader_epoch
            )
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self._is_full(name) and set(role.isr) - {self._replicas.broker_id}:
            return ErrorCode.KAFKA_STORAGE_ERROR
        log = self._directories.get(name)
        known_id = _known_id(partition, log)
        if ZERO_UUID not in (known_id, wanted.topic_id) and known_id != wanted.topic_id:
            _logger.error("%s: the log here belongs to another topic of that name; it stays, and is not served", name)
            return ErrorCode.INCONSISTENT_TOPIC_ID
        current_epoch = -1 if partition is None else partition.leader_epoch
        if role.leader_epoch > current_epoch or (role.leader_epoch == current_epoch and self._may_return(wanted)):
            if self._replicas.broker_id in role.replicas:
                return None
            _logger.warning("%s: this broker is not among the replicas %s", name, role.replicas)
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if role.leader_epoch == current_epoch and partition is not None and log is not None and known_id == ZERO_UUID:
            if wanted.topic_id == ZERO_UUID:
                return ErrorCode.STALE_CONTROLLER_EPOCH
            await self._assign_topic_id(log, wanted.topic_id)  # the cluster has begun to use topic ids
            partition.topic_id = wanted.topic_id
            return _NONE
        return ErrorCode.STALE_CONTROLLER_EPOCH

    def _may_return(self, wanted: WantedRole) -> bool:
        """Whether it was stopped and is to follow again. If it was not in the ISR then, nothing has raised the leader
        epoch since."""
        return wanted.name in self._stopped and not self._leads(wanted)

    def _may_be_in_failed_directory(self, name: TopicPartition) -> bool:
        """Otherwise its log could not be created, for example on a full disk, and this is tried again."""
        directory = self._directories.directory_of(name)
        if directory is not None:
            return directory.failure is not None
        return any(each.failure is not None or name in each.refused for each in self._directories.directories)

    def _switch(self, wanted: Sequence[WantedRole], outcomes: Outcomes) -> None:
        """No await in here."""
        followers: list[Partition] = []
        now_s = self._replicas.environment.clock_s()
        # First: what a fetcher is about to append must not come after the switch.
        self._fetchers.stop([each.name for each in wanted if self._leads(each) or self._is_alive(each.role.leader)])
        for each in wanted:
            name, role = each.name, each.role
            partition = self._replicas.partitions.get(name)
            if partition is None or partition.log is None:
                outcomes[name] = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            outcomes[name] = _NONE
            if self._leads(each):
                # UpdateMetadata comes later: clients and followers that are faster need not wait for it.
                self._note_topic_id(each.topic_id, name.topic)
                self._stopped.discard(name)
                partition.lead(role, now_s)
                self._coordinators.lead(name, role.leader_epoch)
            elif self._is_alive(role.leader):
                self._stopped.discard(name)
                partition.follow(role)
                followers.append(partition)
                self._coordinators.resign(name)
            elif role.leader < 0:
                _logger.info("%s: there is no leader in epoch %d", name, role.leader_epoch)
            else:
                _logger.warning(  # usual while a whole cluster starts: the controller will say more
                    "%s: cannot follow broker %d in epoch %d: it is not in the cluster",
                    *(name, role.leader, role.leader_epoch),
                )
        if followers and not self.is_stopping:
            self._fetchers.follow(followers)

    def _leads(self, wanted: WantedRole) -> bool:
        return wanted.role.leader == self._replicas.broker_id

    # --- logs ---------------------------------------------------------------------------------------------------------

    async def _open_logs(self, wanted: Sequence[WantedRole]) -> None:
        """Afterwards each partition is hosted; one without a log is offline."""
        missing = [each for each in wanted if self._directories.directory_of(each.name) is None]
        if missing:
            await self._create_logs(missing)
        for each in wanted:
            log = self._directories.get(each.name)
            if log is not None:
                await self._prepare(log, each)
            log = self._directories.get(each.name)
            if log is not None:  # the topic's configs may have changed while it was created
                log.update_config(self._configs.log_config(each.name.topic))
            self._replicas.take(each.name, each.topic_id, log)

    async def _create_logs(self, missing: Sequence[WantedRole]) -> None:
        directories = self._directories.directories
        has_failed = any(each.failure is not None for each in directories)
        new = []
        for each in missing:
            if any(each.name in directory.refused for directory in directories):
                _logger.error("%s is offline: its log could not be opened when the broker started", each.name)
            elif has_failed and not each.is_new:
                _logger.error("%s is offline: its log may lie in a log directory that is offline", each.name)
            else:
                new.append(NewLog(each.name, self._configs.log_config(each.name.topic), each.topic_id))
        if not new:
            return
        try:
            placed = self._directories.place(new)
        except LogError as error:
            _logger.error("%d logs could not be created: %s", len(new), error)
            return
        await asyncio.to_thread(placed.make)
        self._directories.adopt(placed)
        for path, failure in placed.failures.items():
            if is_full(failure):
                self._replicas.disk_is_full(path, failure)
        for name, refusal in placed.refusals.items():
            _logger.error("%s is offline: %s", name, refusal)

    async def _prepare(self, log: PartitionLog, wanted: WantedRole) -> None:
        if wanted.topic_id != ZERO_UUID and log.topic_id is None:
            await self._assign_topic_id(log, wanted.topic_id)
        # After a crash, a leader may show records only once they are on disk.
        if self._leads(wanted) and log.config.flush_messages == 1 and log.recovery_point < log.next_offset:
            await self._in_thread(log, log.flush)

    async def _assign_topic_id(self, log: PartitionLog, topic_id: Uuid) -> None:
        await self._in_thread(log, lambda: log.metadata.assign(topic_id))

    async def _in_thread(self, log: PartitionLog, work: Callable[[], None]) -> None:
        """A failure takes only the log's directory offline."""
        try:
            await asyncio.to_thread(work)
        except OSError as error:
            _logger.error("%s: %s", log.partition, self._directories.log_failed(log, error))

    # --- stopping -----------------------------------------------------------------------------------------------------

    async def stop(self, stopped: Sequence[StoppedReplica]) -> Outcomes:
        """Stops fetching, and deletes replicas where that is wanted. Returns the outcome of each partition."""
        outcomes: Outcomes = {}
        accepted: list[StoppedReplica] = []
        for each in stopped:
            error = outcomes[each.name] = self._fault_of_stop(each)
            if error is _NONE:
                accepted.append(each)
        self._fetchers.stop([each.name for each in accepted])
        for each in accepted:
            partition = self._replicas.partitions.get(each.name)
            if partition is not None:
                partition.check_waiting()
            if partition is None or each.delete:
                self._stopped.discard(each.name)
            else:
                self._stopped.add(each.name)
        deleted = [each.name for each in accepted if each.delete]
        if deleted:
            for name in deleted:
                self._coordinators.resign(name)
            kept = await self._replicas.delete_many(deleted)
            outcomes.update(dict.fromkeys(kept, ErrorCode.KAFKA_STORAGE_ERROR))
        return outcomes

    def _fault_of_stop(self, stopped: StoppedReplica) -> ErrorCode:
        partition = self._replicas.partitions.get(stopped.name)
        if partition is None:
            directory = self._directories.directory_of(stopped.name)
            is_offline = directory is not None and directory.failure is not None
            return ErrorCode.KAFKA_STORAGE_ERROR if stopped.delete and is_offline else _NONE
        if partition.log is None and self._may_be_in_failed_directory(stopped.name):
            return ErrorCode.KAFKA_STORAGE_ERROR
        epoch = stopped.leader_epoch
        if epoch in (EPOCH_DURING_DELETE, NO_EPOCH) or epoch >= partition.leader_epoch:
            return _NONE
        _logger.warning(
            "%s: a request to stop it in epoch %d is refused; its epoch is %d",
            *(stopped.name, epoch, partition.leader_epoch),
        )
        return ErrorCode.FENCED_LEADER_EPOCH


def _known_id(partition: Partition | None, log: PartitionLog | None) -> Uuid:
    if partition is not None and partition.topic_id != ZERO_UUID:
        return partition.topic_id
    return ZERO_UUID if log is None or log.topic_id is None else log.topic_id
