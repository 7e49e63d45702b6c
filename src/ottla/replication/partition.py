"""One partition on this broker: its leader, how far it is replicated, and reads and writes of its log.

    log start ── last stable offset ── high watermark ── log end
                                        │ consumers see nothing beyond it

The high watermark is the lowest log end offset of the in-sync replicas. If a topic requires every record to be on disk
before it is acknowledged (`flush.messages=1`), the leader's own log counts only as far as it is flushed.

Owned by the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.base.disk import Buffer
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition, Uuid
from ottla.log.append_origin import AppendOrigin
from ottla.log.partition_log import LogRead, PartitionLog
from ottla.log.validation import AppendInfo, PreparedBatches
from ottla.records.layout import NO_LEADER_EPOCH
from ottla.records.new_batch import NewBatch
from ottla.replication.delayed import Purgatory
from ottla.replication.errors import ReplicationError

_NONE: Final = ErrorCode.NONE

OnSynced = Callable[[PartitionLog, BaseException | None], None]
WaitForDisk = Callable[[PartitionLog, int, OnSynced], None]
"""Calls back, on the loop, when everything below the offset is on disk, or with the error."""
OnDiskFailure = Callable[[PartitionLog, OSError], str]
"""Takes the log's directory offline if necessary; returns the error message for the client."""


class Partition:
    """See the module. `log` is None while its directory is offline."""

    __slots__ = (
        "_fetches",
        "_on_disk_failure",
        "_produces",
        "_remote_ends",
        "_wait_for_disk",
        "broker_id",
        "isr",
        "leader_epoch",
        "leader_id",
        "log",
        "name",
        "replicas",
        "topic_id",
    )

    def __init__(
        self,
        name: TopicPartition,
        topic_id: Uuid,
        broker_id: int,
        log: PartitionLog | None,
        *,
        fetches: Purgatory[Partition],
        produces: Purgatory[Partition],
        on_disk_failure: OnDiskFailure,
        wait_for_disk: WaitForDisk,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.broker_id = broker_id
        self.log = log
        self.leader_id = -1
        self.leader_epoch = -1
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self._remote_ends: dict[int, int] = {}
        self._fetches = fetches
        self._produces = produces
        self._on_disk_failure = on_disk_failure
        self._wait_for_disk = wait_for_disk

    def __repr__(self) -> str:
        return f"Partition({self.name}, leader={self.leader_id}, epoch={self.leader_epoch}, isr={self.isr})"

    # --- roles ------------------------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.broker_id

    def lead(self, *, leader_epoch: int, isr: tuple[int, ...], replicas: tuple[int, ...]) -> None:
        """Makes this broker the leader in that epoch. With the current epoch, only the in-sync replicas change."""
        self._remote_ends = {replica: -1 for replica in replicas if replica != self.broker_id}
        self.isr, self.replicas = isr, replicas
        # The start of the epoch is written with its first record: ten thousand partitions may start at once.
        self.leader_id, self.leader_epoch = self.broker_id, leader_epoch
        self.advance_high_watermark()
        self._wake()

    def follow(self, leader_id: int, *, leader_epoch: int, isr: tuple[int, ...], replicas: tuple[int, ...]) -> None:
        """Another broker leads from now on, or none (-1). Waiting operations are checked."""
        self.leader_id, self.leader_epoch = leader_id, leader_epoch
        self.isr, self.replicas = isr, replicas
        self._remote_ends = {}
        self._wake()

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
        self.advance_high_watermark()
        self._wake()

    def _wake(self) -> None:
        self._fetches.changed(self)
        self._produces.changed(self)

    def check_leader(self, current_leader_epoch: int = -1) -> ErrorCode:
        """NONE if this broker may serve a client that knows this leader epoch (-1 for unknown), else the error."""
        if current_leader_epoch != NO_LEADER_EPOCH and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if self.leader_id != self.broker_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return _NONE if self.log is not None else ErrorCode.KAFKA_STORAGE_ERROR

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
        """Moves it to the lowest log end offset of the in-sync replicas, never backwards. Returns whether it moved."""
        log = self.log
        if log is None:
            return False
        end = log.next_offset
        if log.config.flush_messages == 1:
            end = min(end, log.recovery_point)
        if len(self.isr) > 1:
            end = min(end, *(self._remote_ends.get(replica, -1) for replica in self.isr if replica != self.broker_id))
        if end <= log.high_watermark:
            return False
        log.set_high_watermark(end)
        return True

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch up to the given one, and its end offset; (-1, -1) for an epoch that is not known yet.

        The current epoch begins at the end of the log until its first record is appended. An epoch below all known ones
        gives itself and the start of the first known epoch.
        """
        log = self.log
        if log is None:
            raise self._offline()
        end = log.next_offset
        if epoch == self.leader_epoch:
            return epoch, end
        found = log.epochs.end_offset_for(epoch, end)
        if found[1] < 0 and NO_LEADER_EPOCH != epoch < self.leader_epoch:
            earlier = log.epochs.previous_epoch(epoch)
            return epoch if earlier is None else earlier, end
        return found

    @property
    def is_under_min_isr(self) -> bool:
        """Whether there are fewer in-sync replicas than `min.insync.replicas`, which counts at most as the number of
        replicas, as in Kafka."""
        return self.log is not None and len(self.isr) < min(self.log.config.min_insync_replicas, len(self.replicas))

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

    def append_own(self, batch: NewBatch) -> int:
        """Appends a batch that this broker made itself, with acks=all. Returns the offset after it."""
        log = self._writable(all_replicas=True)
        try:
            end = log.append_own(batch, self.leader_epoch)
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
        """The log has new records: they count immediately, or once they are on disk."""
        if log.config.flush_messages == 1:
            self._wait_for_disk(log, log.next_offset, self._synced)
        elif self.advance_high_watermark():
            self._fetches.changed(self)

    def is_acknowledged(self, end: int, *, all_replicas: bool) -> bool:
        """Whether a producer whose records end at this offset can be answered now: the leader's copy is enough and need
        not be on disk, or the high watermark has passed the records."""
        log = self.log
        if not all_replicas and (log is None or log.config.flush_messages != 1):
            return True
        return log is not None and log.high_watermark >= end

    def _synced(self, log: PartitionLog, error: BaseException | None) -> None:
        """`log` is the one that was synced; the partition may have a different log by now."""
        if isinstance(error, OSError):
            self._on_disk_failure(log, error)
        elif error is None and self.advance_high_watermark():
            self._wake()

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
        self._fetches.changed(self)
        return log.log_start_offset

    def _too_few_in_sync(self) -> ReplicationError:
        reason = f"{self.name}: {len(self.isr)} in-sync replicas, fewer than min.insync.replicas"
        return ReplicationError(ErrorCode.NOT_ENOUGH_REPLICAS, reason)

    def _offline(self) -> ReplicationError:
        return ReplicationError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {self.name} is offline")

    def _failed(self, log: PartitionLog, error: OSError) -> ReplicationError:
        return ReplicationError(ErrorCode.KAFKA_STORAGE_ERROR, self._on_disk_failure(log, error))
