"""One partition on this broker: its role, how far it is replicated, and reads and writes of its log.

    log start ── last stable offset ── high watermark ── log end
                                        │ consumers see nothing beyond it

The high watermark is the lowest log end offset of the in-sync replicas (`leadership`). If a topic requires every record
to be on disk before it is acknowledged (`flush.messages=1`), the leader's own log counts only as far as it is flushed.

A follower gets both from its leader. What a fetcher does to a follower names the leader epoch in which it was told to,
and is refused in any other: the role may have changed while it waited for the leader.

Owned by the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from ottla.base.disk import Buffer
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition, Uuid
from ottla.log.append_origin import AppendOrigin
from ottla.log.errors import UnexpectedOffsetError
from ottla.log.partition_log import LogRead, PartitionLog
from ottla.log.validation import AppendInfo, PreparedBatches
from ottla.records.layout import NO_LEADER_EPOCH
from ottla.records.new_batch import NewBatch
from ottla.replication.environment import FollowerReader, ReplicaEnvironment
from ottla.replication.errors import ReplicationError
from ottla.replication.follower_state import FollowerState
from ottla.replication.isr import Next, PendingExpand
from ottla.replication.leadership import Leadership
from ottla.replication.role import NO_LEADER, PartitionRole

_logger = logging.getLogger(__name__)

_NONE: Final = ErrorCode.NONE
_NO_EPOCH_START: Final = -1
_NO_ROLE: Final = PartitionRole(leader=NO_LEADER, leader_epoch=-1, isr=(), replicas=(), partition_epoch=-1)


class AwaitedAppend(NamedTuple):
    """Records whose producer waits. They count only while the leadership lasts in which they were appended: if it is
    lost in between, even for a moment, other records may have their offsets. A new epoch of the same leader does not
    touch its log."""

    end: int
    leader_epoch: int
    all_replicas: bool
    """Whether every in-sync replica must have them, or only the leader's disk."""


class Partition:
    """See the module. `log` is None while its directory is offline."""

    __slots__ = (
        "_environment",
        "_fetches",
        "_leadership",
        "_produces",
        "_readers",
        "broker_id",
        "epoch_start",
        "isr",
        "leader_epoch",
        "leader_id",
        "leads_since",
        "log",
        "name",
        "replicas",
        "role",
        "topic_id",
    )

    def __init__(
        self,
        name: TopicPartition,
        topic_id: Uuid,
        broker_id: int,
        log: PartitionLog | None,
        environment: ReplicaEnvironment,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.broker_id = broker_id
        self.log = log
        self._environment = environment
        self._fetches = environment.fetches
        self._produces = environment.produces
        self._leadership: Leadership | None = None
        """Only of a leader with followers."""
        self._readers: dict[int, FollowerReader] | None = None
        """The fetch sessions of followers, by replica."""
        self.epoch_start = _NO_EPOCH_START
        """A leader's log end when its epoch began; -1 for followers."""
        self.leads_since = NO_LEADER_EPOCH
        """The epoch in which this broker began to lead; it may have got further ones since. -1 before the first."""
        self._take_role(_NO_ROLE)

    def __repr__(self) -> str:
        return f"Partition({self.name}, leader={self.leader_id}, epoch={self.leader_epoch}, isr={self.isr})"

    # --- roles ------------------------------------------------------------------------------------------------------

    def _take_role(self, role: PartitionRole) -> None:
        self.role = role
        self.leader_id, self.leader_epoch = role.leader, role.leader_epoch
        self.isr, self.replicas = role.isr, role.replicas

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.broker_id

    @property
    def partition_epoch(self) -> int:
        return self.role.partition_epoch

    def _is_outdated(self, role: PartitionRole) -> bool:
        """Whether this broker already knows a newer state: an answer to an ISR proposal may overtake the controller's
        request."""
        return role.partition_epoch < self.role.partition_epoch or role.leader_epoch < self.role.leader_epoch

    def lead(self, role: PartitionRole, now_s: float) -> bool:
        """Makes this broker the leader. Whether this is a new leader epoch; otherwise only the in-sync replicas and the
        assignment change. Ignores a role that is older than the current one."""
        if self._is_outdated(role):
            return False
        role = role._replace(leader=self.broker_id, is_recovering=False)
        is_new_epoch = role.leader_epoch > self.leader_epoch or not self.is_leader
        if not self.is_leader:
            self.leads_since = role.leader_epoch
        log = self.log
        if log is not None and (is_new_epoch or self.epoch_start == _NO_EPOCH_START):
            # In memory only: ten thousand partitions may start at once, and the file follows with the first records.
            # Followers may ask for any epoch up to this one from now on.
            self.epoch_start = log.next_offset
            log.epochs.assign(role.leader_epoch, log.next_offset, write=False)
        self._take_role(role)
        if len(role.replicas) <= 1:
            self._leadership = None
        elif is_new_epoch or self._leadership is None:
            self._leadership = Leadership(self.broker_id, role, epoch_start=self.epoch_start, now_s=now_s)
        else:
            self._leadership.update(role, now_s=now_s)
        self.advance_high_watermark()
        self._wake()
        return is_new_epoch

    def follow(self, role: PartitionRole) -> bool:
        """Another broker leads from now on, or none (-1). Whether this is a new leader epoch. Waiting operations are
        checked, and those of this broker's own leadership fail. Ignores a role that is older than the current one."""
        if self._is_outdated(role):
            return False
        is_new_epoch = role.leader_epoch > self.leader_epoch
        self._take_role(role)
        self._leadership, self.epoch_start = None, _NO_EPOCH_START
        self._wake()
        return is_new_epoch

    def let_go(self) -> None:
        """This broker no longer hosts the partition. Waiting operations fail."""
        self.leader_id = NO_LEADER
        self._leadership = None
        self.go_offline()

    @property
    def must_flush(self) -> bool:
        """Whether a crash left unflushed records that clients may see only once they are on disk."""
        log = self.log
        return log is not None and log.config.flush_messages == 1 and log.recovery_point < log.next_offset

    def go_offline(self) -> None:
        """The log directory failed, or the topic was deleted. Waiting operations are checked."""
        self.log = None
        self._wake()

    def move_to(self, log: PartitionLog) -> None:
        """The log was moved to another directory; waiting operations continue with the new one. It was synced, so more
        records may be committed than before, and the callbacks of the old log will not see a change."""
        self.log = log
        if self.is_leader and log.epochs.latest_epoch != self.leader_epoch:
            log.epochs.assign(self.leader_epoch, log.next_offset, write=False)
        self.advance_high_watermark()
        self._wake()

    def config_changed(self) -> None:
        """The log has another config. More may be committed than before: with fewer replicas, or before the disk."""
        if self.advance_high_watermark():
            self._wake_readers()
        else:
            self._produces.changed(self)

    def check_waiting(self) -> None:
        """Checks all waiting operations: this broker may no longer replicate the partition."""
        self._wake()

    def _wake(self) -> None:
        """Anything may have changed."""
        environment = self._environment
        environment.fetches.changed(self)
        environment.produces.changed(self)
        environment.deletes.changed(self)
        self._tell_followers()

    def _wake_readers(self) -> None:
        """The high watermark moved."""
        self._fetches.changed(self)
        self._produces.changed(self)
        self._tell_followers()

    def log_start_moved(self) -> None:
        """The log was shortened at its start."""
        self._fetches.changed(self)
        self._environment.deletes.changed(self)
        self._tell_followers()

    def _tell_followers(self) -> None:
        if self._readers:
            for reader in list(self._readers.values()):
                reader.changed(self)

    def check_leader(self, current_leader_epoch: int = -1) -> ErrorCode:
        """NONE if this broker may serve a client that knows this leader epoch (-1 for unknown), else the error."""
        if current_leader_epoch != NO_LEADER_EPOCH and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if self.leader_id != self.broker_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return _NONE if self.log is not None else ErrorCode.KAFKA_STORAGE_ERROR

    def check_replica(self, current_leader_epoch: int = -1) -> ErrorCode:
        """The same for a consumer that may read from any replica (KIP-392)."""
        error = self.check_leader(current_leader_epoch)
        if error is ErrorCode.NOT_LEADER_OR_FOLLOWER and self.leader_epoch != NO_LEADER_EPOCH:
            return _NONE if self.log is not None else ErrorCode.KAFKA_STORAGE_ERROR
        return error

    # --- offsets ----------------------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        return -1 if self.log is None else self.log.high_watermark

    def bound(self, *, committed_only: bool = False, to_log_end: bool = False) -> int:
        """The offset where a reader must stop: the high watermark, the last stable offset, or the log end for
        followers. -1 while the log is offline."""
        log = self.log
        if log is None:
            return -1
        if to_log_end:
            return log.next_offset
        return log.last_stable_offset if committed_only else log.high_watermark

    def advance_high_watermark(self) -> bool:
        """Moves a leader's high watermark as far as replicas allow, never backwards. Whether it moved."""
        log = self.log
        return log is not None and self.leader_id == self.broker_id and self._advance(log)

    def _advance(self, log: PartitionLog) -> bool:
        config = log.config
        end = log.next_offset
        if config.flush_messages == 1:
            end = min(end, log.recovery_point)
        leadership = self._leadership
        if leadership is not None:
            environment = self._environment
            end = leadership.committed_below(
                end,
                log_end=log.next_offset,
                min_insync_replicas=config.min_insync_replicas,
                lag_max_s=environment.lag_max_s,
                clock_s=environment.clock_s,
                is_alive=environment.is_alive,
            )
        if end <= log.high_watermark:
            return False
        log.set_high_watermark(end)
        return True

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch up to the given one, and its end offset; (-1, -1) for an epoch that is not known yet.

        A leader's epoch is known as soon as it leads, and begins at the end of the log until its first record. An epoch
        below all known ones gives itself and the start of the first known epoch.
        """
        log = self.log
        if log is None:
            raise self._offline()
        return log.epochs.end_offset_for(epoch, log.next_offset)

    # --- replicas ---------------------------------------------------------------------------------------------------

    @property
    def _min_isr(self) -> int:
        """`min.insync.replicas`, but never more than there are replicas, as in Kafka."""
        return 0 if self.log is None else min(self.log.config.min_insync_replicas, len(self.replicas))

    @property
    def is_under_min_isr(self) -> bool:
        """Whether there are too few in-sync replicas for acks=all."""
        return len(self.isr) < self._min_isr

    @property
    def is_at_min_isr(self) -> bool:
        """Whether there are just enough: with one less, acks=all fails."""
        return self.log is not None and len(self.isr) == self._min_isr

    @property
    def is_under_replicated(self) -> bool:
        return self.is_leader and len(self.isr) < len(self.replicas)

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The in-sync replicas, and one that is about to join."""
        return self.isr if self._leadership is None else self._leadership.isr.maximal

    def check_follower(self, replica_id: int, current_leader_epoch: int) -> ErrorCode:
        """NONE if this leader serves the follower. Otherwise the follower tries again: it may know an assignment that
        this leader does not know yet."""
        if self._leadership is not None and replica_id in self._leadership.followers:
            return _NONE
        if current_leader_epoch == NO_LEADER_EPOCH:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def follower_fetched(
        self,
        replica_id: int,
        *,
        fetch_offset: int,
        log_start_offset: int,
        leader_end_offset_at_read: int,
        broker_epoch: int,
        now_s: float,
    ) -> FollowerState:
        """A follower has everything below the offset: it may join the in-sync replicas, and the high watermark may
        move. Returns what this leader knows about it. Raises `ReplicationError` for a broker that does not follow this
        leader, or has restarted since."""
        leadership, log = self._leadership, self.log
        if leadership is None or log is None:
            code = self.check_leader() or ErrorCode.UNKNOWN_LEADER_EPOCH
            raise ReplicationError(code, f"{self.name}: broker {replica_id} does not follow this broker")
        known = leadership.followers.get(replica_id)
        old_end, old_start = (-1, -1) if known is None else (known.log_end, known.log_start)
        follower = leadership.fetched(
            replica_id,
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            leader_end=leader_end_offset_at_read,
            broker_epoch=broker_epoch,
            now_s=now_s,
            lag_max_s=self._environment.lag_max_s,
        )
        if replica_id not in self.isr and self._environment.is_alive(replica_id):
            proposal = leadership.try_expand(follower, log.high_watermark)
            if proposal is not None:
                _logger.debug("%s: replica %d has caught up; proposing ISR %s", self.name, replica_id, proposal.isr)
                self._environment.propose(self, proposal)
        if follower.log_start != old_start:
            self._environment.deletes.changed(self)
        if follower.log_end != old_end and self._advance(log):
            self._wake_readers()
        return follower

    def followers(self) -> Collection[FollowerState]:
        """What a leader knows about its followers."""
        return () if self._leadership is None else self._leadership.followers.values()

    def follower(self, replica_id: int) -> FollowerState | None:
        return None if self._leadership is None else self._leadership.followers.get(replica_id)

    def read_by(self, replica_id: int, reader: FollowerReader) -> None:
        """Tells the reader of every change from now on, and no longer the one that the replica had before."""
        if self._readers is None:
            self._readers = {}
        before = self._readers.get(replica_id)
        if before is not reader:
            self._readers[replica_id] = reader
            if before is not None:
                before.changed(self)

    def is_read_by(self, replica_id: int, reader: FollowerReader) -> bool:
        return self._readers is not None and self._readers.get(replica_id) is reader

    def no_longer_read_by(self, replica_id: int, reader: FollowerReader) -> None:
        if self._readers is not None and self._readers.get(replica_id) is reader:
            del self._readers[replica_id]

    def shrink_isr(self, now_s: float, lag_max_s: float) -> None:
        """Proposes to remove in-sync replicas that have been behind for longer than that."""
        leadership, log = self._leadership, self.log
        if leadership is None or log is None:
            return
        old = self.isr
        proposal = leadership.try_shrink(log_end=log.next_offset, now_s=now_s, lag_max_s=lag_max_s)
        if proposal is not None:
            _logger.warning(
                "%s: proposing to shrink the ISR from %s to %s; high watermark %d, log end %d, behind: %s",
                self.name,
                old,
                proposal.isr,
                log.high_watermark,
                log.next_offset,
                ", ".join(str(leadership.followers.get(each)) for each in old if each not in proposal.isr),
            )
            self._environment.propose(self, proposal)

    def is_proposing(self, proposal: PartitionRole) -> bool:
        return self._leadership is not None and self._leadership.proposal is proposal

    def broker_epoch_of(self, replica: int) -> int:
        """With which a follower had fetched when the current ISR proposal was made; -1 if unknown."""
        return -1 if self._leadership is None else self._leadership.proposed_epochs.get(replica, -1)

    def isr_answered(self, proposal: PartitionRole, error: ErrorCode, answer: PartitionRole) -> bool:
        """The controller's answer to a proposal. Whether to propose the same again."""
        leadership = self._leadership
        if leadership is None or leadership.proposal is not proposal:
            return False  # the controller sent a new state meanwhile
        environment = self._environment
        is_expansion = isinstance(leadership.isr, PendingExpand)
        then = leadership.answered(error, answer)
        if then is not Next.COMMITTED:
            environment.failed_isr_update_count += 1
            _logger.info("%s: the ISR stays %s for now: %s", self.name, self.isr, error.name)
            return then is Next.RETRY
        if is_expansion:
            environment.isr_expand_count += 1
        else:
            environment.isr_shrink_count += 1
        self._take_role(leadership.role)
        _logger.info("%s: the ISR is %s in partition epoch %d", self.name, self.isr, self.partition_epoch)
        self.advance_high_watermark()
        self._wake()
        return False

    def broker_left(self) -> None:
        """A broker with a replica has left the cluster. It may have been all that the high watermark, or a deletion of
        records, was waiting for: a replica that is caught up counts although it is not in the ISR yet."""
        if self._leadership is not None and self.is_leader:
            if self.advance_high_watermark():
                self._wake_readers()
            self._environment.deletes.changed(self)

    def low_watermark(self) -> int:
        """The lowest log start of all live replicas; -1 while the log is offline."""
        log, leadership = self.log, self._leadership
        if log is None:
            return -1
        if leadership is None:
            return log.log_start_offset
        return leadership.low_watermark(log.log_start_offset, self._environment.is_alive)

    # --- a follower's log -------------------------------------------------------------------------------------------

    def _followed_log(self, leader_epoch: int) -> PartitionLog | None:
        """The log, if this broker follows in that epoch; raises while it is offline."""
        if self.leader_epoch != leader_epoch or self.leader_id == self.broker_id:
            return None
        if self.log is None:
            raise self._offline()
        return self.log

    def append_as_follower(self, records: Buffer, *, leader_epoch: int) -> AppendInfo | None:
        """Appends batches as the leader sent them. None, with nothing done, in another epoch."""
        log = self._followed_log(leader_epoch)
        if log is None:
            return None
        try:
            try:
                return log.append_as_follower(records, max_epoch=leader_epoch)
            except UnexpectedOffsetError as error:
                end = log.next_offset
                if log.log_start_offset != end or not error.first_offset < end <= error.last_offset:
                    raise
                # The leader's log starts within a batch, because records were deleted: this log starts with the batch.
                self._truncate(log, error.first_offset, is_full=True)
                return log.append_as_follower(records, max_epoch=leader_epoch)
        except OSError as error:
            raise self._failed(log, error) from error

    def when_on_disk(self, synced: Callable[[BaseException | None], None]) -> bool:
        """Whether a follower must wait for its disk before it fetches more, which tells the leader that it has its
        records (`flush.messages=1`). Then calls back, on the loop, when they are on disk, or with the error."""
        log = self.log
        if log is None or log.config.flush_messages != 1 or log.recovery_point >= log.next_offset:
            return False

        def done(log: PartitionLog, error: BaseException | None) -> None:
            if isinstance(error, OSError):
                self._environment.on_disk_failure(log, error)
            synced(error)

        self._environment.wait_for_disk(log, log.next_offset, done)
        return True

    def set_follower_progress(self, high_watermark: int, log_start: int, *, leader_epoch: int) -> bool:
        """Takes over the leader's offsets, within this log's bounds. False, with nothing done, in another epoch."""
        log = self._followed_log(leader_epoch)
        if log is None:
            return False
        try:
            # In this order: the log cannot start above the high watermark.
            if high_watermark != log.high_watermark:
                log.set_high_watermark(high_watermark)
                self._wake_readers()
            if log_start > log.log_start_offset:
                log.advance_log_start(min(log_start, log.high_watermark))
                self._fetches.changed(self)
        except OSError as error:
            raise self._failed(log, error) from error
        return True

    def truncate(self, offset: int, *, leader_epoch: int) -> bool:
        """Removes all records from the offset on. False, with nothing done, in another epoch."""
        log = self._followed_log(leader_epoch)
        if log is None:
            return False
        try:
            self._truncate(log, offset)
        except OSError as error:
            raise self._failed(log, error) from error
        self._wake()
        return True

    def truncate_fully(self, offset: int, *, leader_epoch: int) -> bool:
        """Removes all records and continues at the offset. False, with nothing done, in another epoch."""
        log = self._followed_log(leader_epoch)
        if log is None:
            return False
        try:
            self._truncate(log, offset, is_full=True)
        except OSError as error:
            raise self._failed(log, error) from error
        self._wake()
        return True

    def _truncate(self, log: PartitionLog, offset: int, *, is_full: bool = False) -> None:
        old_recovery_point, old_end = log.recovery_point, log.next_offset
        if is_full:
            log.truncate_fully_and_start_at(offset)
        else:
            log.truncate_to(offset)
        if is_full or offset < old_end:
            self._environment.on_truncated(log, 0 if is_full else offset, old_recovery_point)

    # --- records ----------------------------------------------------------------------------------------------------

    def append(
        self,
        records: Buffer | PreparedBatches,
        *,
        all_replicas: bool,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        bounded: bool = False,
    ) -> AppendInfo:
        """Appends as the leader. The buffer is patched in place. With `all_replicas` there must be enough in-sync
        replicas; the high watermark shows when they have the records. `bounded`: see
        `PartitionLog.append_as_leader`."""
        log = self._writable(all_replicas=all_replicas)
        try:
            info = log.append_as_leader(records, self.leader_epoch, origin=origin, bounded=bounded)
        except OSError as error:
            raise self._failed(log, error) from error
        self._appended(log)
        return info

    def append_sent(self, records: Buffer, attributes: int = 0) -> int:
        """The fast path of `append` for what most producers send to a leader without followers: returns the base offset
        of a batch that is appended and acknowledged, for any acks; -1, with nothing done, if `append` must decide.
        `attributes`: see `PartitionLog.append_sent`."""
        log = self.log
        if log is None or self.leader_id != self.broker_id or self._leadership is not None or self._readers:
            return -1
        if log.config.min_insync_replicas > 1 and self.is_under_min_isr:
            return -1
        try:
            offset = log.append_sent(records, self.leader_epoch, attributes)
        except OSError as error:
            raise self._failed(log, error) from error
        if offset >= 0:
            if log.high_watermark == offset:  # so no transaction's marker waits for it
                log.high_watermark = log.next_offset
            else:
                log.set_high_watermark(log.next_offset)
            self._fetches.changed(self)
        return offset

    def append_own(self, batch: NewBatch) -> int:
        """Appends a batch that this broker made itself, with acks=all. Returns the offset after it."""
        log = self.log
        if log is None or log.config.min_insync_replicas > 1:
            log = self._writable(all_replicas=True)
        try:
            end = log.append_own(batch, self.leader_epoch)
        except OSError as error:
            raise self._failed(log, error) from error
        if (
            log.high_watermark == end - batch.record_count  # so no transaction's marker waits for it
            and not self._readers
            and self.commits_at_once
        ):
            log.high_watermark = end
            self._fetches.changed(self)
        else:
            self._appended(log)
        return end

    def append_marker(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> int:
        """Ends a producer's transaction here, with acks=all. Returns the offset after the marker."""
        log = self._writable(all_replicas=True)
        try:
            end = log.append_marker(
                self.leader_epoch,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                committed=committed,
                coordinator_epoch=coordinator_epoch,
                transaction_version=transaction_version,
            )
        except OSError as error:
            raise self._failed(log, error) from error
        self._appended(log)
        return end

    def _writable(self, *, all_replicas: bool) -> PartitionLog:
        """The log, if it can be appended to now; raises otherwise."""
        log = self.log
        if log is None:
            raise self._offline()
        if all_replicas and log.config.min_insync_replicas > 1 and self.is_under_min_isr:
            raise self._too_few_in_sync()
        return log

    def _appended(self, log: PartitionLog) -> None:
        """The log has new records: they count immediately, or once they are on disk and on the other replicas."""
        if self._readers:
            self._tell_followers()
        if self.commits_at_once:
            log.set_high_watermark(log.next_offset)
            self._fetches.changed(self)
        elif log.config.flush_messages == 1:
            self._environment.wait_for_disk(log, log.next_offset, self._synced)
        elif self._advance(log):
            self._fetches.changed(self)

    @property
    def commits_at_once(self) -> bool:
        """Whether an append is committed when it returns: this broker leads, and waits for no replica and no disk."""
        log = self.log
        return (
            self.leader_id == self.broker_id
            and self._leadership is None
            and log is not None
            and log.config.flush_messages != 1
        )

    def is_acknowledged(self, end: int, *, all_replicas: bool) -> bool:
        """Whether a producer whose records, just appended, end at this offset can be answered now: the leader's copy is
        enough and need not be on disk, or every in-sync replica has the records."""
        log = self.log
        if all_replicas:
            return log is not None and log.high_watermark >= end
        return log is None or log.config.flush_messages != 1 or log.recovery_point >= end

    def outcome(self, append: AwaitedAppend) -> ErrorCode | None:
        """What to tell a producer that waits; None if it must go on waiting."""
        if self.leader_id != self.broker_id or append.leader_epoch < self.leads_since:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        log = self.log
        if log is None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if not append.all_replicas:
            return _NONE if log.config.flush_messages != 1 or log.recovery_point >= append.end else None
        if log.high_watermark < append.end:
            return None
        if len(self.maximal_isr) < self._min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return _NONE

    def _synced(self, log: PartitionLog, error: BaseException | None) -> None:
        """`log` is the one that was synced; the partition may have a different log by now."""
        if isinstance(error, OSError):
            self._environment.on_disk_failure(log, error)
        elif error is None:
            if self.advance_high_watermark():
                self._fetches.changed(self)
                self._tell_followers()
            self._produces.changed(self)

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        committed_only: bool = False,
        to_log_end: bool = False,
        min_one: bool = True,
    ) -> LogRead:
        """Reads batches up to the high watermark, the last stable offset, or the log end for followers."""
        log = self.log
        if log is None:
            raise self._offline()
        # The same as `bound`, inlined because every fetch of every partition runs this.
        bound = log.last_stable_offset if committed_only else log.high_watermark
        if to_log_end:
            bound = log.next_offset
        try:
            return log.read(offset, max_bytes, bound=bound, min_one=min_one, with_aborted=committed_only)
        except OSError as error:
            raise self._failed(log, error) from error

    def bytes_readable(self, offset: int, *, committed_only: bool = False, to_log_end: bool = False) -> int | None:
        """How many bytes `read` could return from the offset on. None if there is no need to count: the offset is out
        of range, or in an older segment than the last bytes."""
        log = self.log
        if log is None:
            raise self._offline()
        if not log.log_start_offset <= offset <= log.next_offset:
            return None
        bound = self.bound(committed_only=committed_only, to_log_end=to_log_end)
        if offset >= bound:
            return 0
        try:
            return log.bytes_before(bound, offset)
        except OSError as error:
            raise self._failed(log, error) from error

    def read_failed(self, error: OSError) -> ReplicationError:
        """For a reader that could not read the bytes that `read` found: takes the log directory offline if necessary,
        and returns the error for the client."""
        log = self.log
        return self._offline() if log is None else self._failed(log, error)

    def delete_records(self, offset: int) -> int:
        """Deletes records before the offset (-1: the high watermark). Returns the low watermark of all replicas."""
        log = self.log
        if log is None:
            raise self._offline()
        try:
            log.advance_log_start(log.high_watermark if offset == -1 else offset)
        except OSError as error:
            raise self._failed(log, error) from error
        self._wake()
        return self.low_watermark()

    def _too_few_in_sync(self) -> ReplicationError:
        reason = f"{len(self.isr)} of {len(self.replicas)} replicas in sync, fewer than min.insync.replicas"
        return ReplicationError(ErrorCode.NOT_ENOUGH_REPLICAS, reason)

    def _offline(self) -> ReplicationError:
        return ReplicationError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {self.name} is offline")

    def _failed(self, log: PartitionLog, error: OSError) -> ReplicationError:
        return ReplicationError(ErrorCode.KAFKA_STORAGE_ERROR, self._environment.on_disk_failure(log, error))
