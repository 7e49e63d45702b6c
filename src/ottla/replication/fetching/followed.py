"""One partition that this broker follows, in one leader epoch: where it fetches, and what it does to its log.

Owned by the loop. Its `fetcher_core` decides what happens when.
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition, Uuid
from ottla.log.errors import CorruptRecordsError, UnexpectedOffsetError
from ottla.log.partition_log import PartitionLog
from ottla.replication.errors import ReplicationError
from ottla.replication.fetching.truncation import cut_for
from ottla.replication.partition import Partition
from ottla.wire.schema import Bytes

if TYPE_CHECKING:
    from ottla.replication.fetching.fetcher_core import FetcherCore

_logger = logging.getLogger(__name__)

NO_EPOCH: Final = -1


class State(Enum):
    """What a followed partition needs from its leader next."""

    STARTING = auto()
    """Nothing yet: how it starts depends on the leader's version."""
    TRUNCATING = auto()
    """Where the last epoch of its log ended (OffsetForLeaderEpoch, only from old leaders)."""
    FINDING_END = auto()
    """The leader's log end (ListOffsets)."""
    FINDING_START = auto()
    """The leader's log start (ListOffsets)."""
    FETCHING = auto()
    """Records."""


class Sent(NamedTuple):
    """What the leader's fetch session knows about a partition."""

    offset: int
    last_fetched_epoch: int
    log_start: int


class ChangedRoleError(Exception):
    """The partition has another role by now, and a new following began or will begin."""


class Followed:
    """See the module."""

    __slots__ = (
        "core",
        "failures",
        "fetch_offset",
        "hold",
        "lag",
        "last_fetched_epoch",
        "leader_end",
        "leader_epoch",
        "leader_id",
        "name",
        "partition",
        "sent",
        "state",
        "topic_id",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.name: TopicPartition = partition.name
        self.topic_id: Uuid = partition.topic_id
        self.leader_id = partition.leader_id
        self.leader_epoch = partition.leader_epoch
        self.core: FetcherCore | None = None
        """The core that it belongs to now; None once it is not followed any more."""
        self.state = State.STARTING
        self.hold: object | None = None
        """Why it waits, if it does. A new object for each wait, so that the end of an earlier one does not count."""
        self.fetch_offset = 0
        self.last_fetched_epoch = NO_EPOCH
        self.sent: Sent | None = None
        """None while the leader's fetch session does not have it."""
        self.leader_end = 0
        """The answer while FINDING_END, needed while FINDING_START."""
        self.failures = 0
        """In a row."""
        self.lag: int | None = None
        """Records behind the leader's high watermark; None before the first answer."""

    def __repr__(self) -> str:
        return f"Followed({self.name}, {self.state.name}, offset={self.fetch_offset}, epoch={self.leader_epoch})"

    @property
    def is_current(self) -> bool:
        """Whether the partition still has the role in which it was told to follow."""
        partition = self.partition
        return partition.leader_epoch == self.leader_epoch and partition.leader_id == self.leader_id

    @property
    def is_in_sync(self) -> bool:
        return self.lag is not None and self.lag <= 0

    def log(self) -> PartitionLog:
        log = self.partition.log
        if log is None:
            raise ReplicationError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {self.name} is offline")
        return log

    # --- what it does to its log ------------------------------------------------------------------------------------

    def start(self, *, truncates_on_fetch: bool) -> None:
        """Fetches from the log end, so that the leader can say where the logs part. Without epochs nobody can: then
        only what was committed is kept."""
        log = self.log()
        if log.epochs.latest_epoch is None:
            self._truncate(log.high_watermark)
        elif truncates_on_fetch:
            self._fetch_from_end(log)
        else:
            self.state = State.TRUNCATING

    def truncate_by(self, leader_epoch: int, leader_end: int, leader_start: int, *, truncates_on_fetch: bool) -> None:
        """The leader's largest epoch up to that of this log ends there. If the leader has deleted everything that would
        be left (`leader_start`; -1 if unknown), nothing is: of deleted epochs it cannot tell where they ended."""
        log = self.log()
        cut = cut_for(leader_epoch, leader_end, log.epochs, log.next_offset, log.high_watermark)
        if log.log_start_offset < cut.offset <= leader_start:
            self._truncate_fully(leader_start)
            return
        self._truncate(cut.offset)
        if not cut.is_final and not truncates_on_fetch and self.last_fetched_epoch != NO_EPOCH:
            self.state = State.TRUNCATING

    def _truncate(self, offset: int) -> None:
        if not self.partition.truncate(offset, leader_epoch=self.leader_epoch):
            raise ChangedRoleError
        self._fetch_from_end(self.log())

    def _truncate_fully(self, offset: int) -> None:
        if not self.partition.truncate_fully(offset, leader_epoch=self.leader_epoch):
            raise ChangedRoleError
        self._fetch_from_end(self.log())

    def reset_to_end(self, leader_end: int) -> bool:
        """The fetch offset is out of the leader's range. True if the leader's log is shorter: the rest is removed, as
        in Kafka. Records before it may differ if the election was unclean and the logs have no epochs that tell."""
        if leader_end < self.log().next_offset:
            self._truncate(leader_end)
            self.lag = 0
            return True
        self.leader_end = leader_end
        self.state = State.FINDING_START
        return False

    def reset_to_start(self, leader_start: int) -> bool:
        """If the leader has deleted the records that would come next, everything is removed. Whether it was."""
        log = self.log()
        is_gone = leader_start > log.next_offset
        if is_gone:
            self._truncate_fully(leader_start)
        else:
            self._fetch_from_end(log)
        self.lag = max(self.leader_end - self.fetch_offset, 0)
        return is_gone

    def _fetch_from_end(self, log: PartitionLog) -> None:
        latest = log.epochs.latest_epoch
        self.fetch_offset = log.next_offset
        self.last_fetched_epoch = NO_EPOCH if latest is None else latest
        self.state = State.FETCHING

    def take(self, records: Bytes | None, high_watermark: int, log_start: int) -> int:
        """Appends the records of an answer and takes over the leader's offsets. Returns the number of bytes."""
        partition, epoch = self.partition, self.leader_epoch
        size = 0
        if records:
            try:
                info = partition.append_as_follower(records, leader_epoch=epoch)
            except UnexpectedOffsetError as error:
                if not error.first_offset < self.fetch_offset <= error.last_offset:
                    raise
                # This log ends within a batch of the leader, so its last batch is not the leader's. Epochs do not tell
                # if a leader forgot in a crash that it had deleted the beginning of an epoch.
                _logger.warning("%s: truncated to %d: %s", self.name, error.first_offset, error)
                self._truncate(error.first_offset)
                return 0
            if info is None:
                raise ChangedRoleError
            if not info.headers:
                raise CorruptRecordsError(f"{self.name}: the leader sent {len(records)} bytes without a whole batch")
            size = info.valid_bytes
            self.fetch_offset = info.last_offset + 1
            self.last_fetched_epoch = info.headers[-1].leader_epoch
        if not partition.set_follower_progress(high_watermark, log_start, leader_epoch=epoch):
            raise ChangedRoleError
        self.lag = max(high_watermark - self.fetch_offset, 0)
        return size

    def to_send(self) -> Sent:
        return Sent(self.fetch_offset, self.last_fetched_epoch, self.log().log_start_offset)
