"""One producer of a partition: what it wrote last, what it may write next, and its open transaction.

The last five batches are kept, as many as a client may have in flight. Checks raise what the producer is told and
change nothing; what was appended is added without a check. Owned by the thread that owns the log.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.log.append_origin import AppendOrigin
from ottla.log.errors import (
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
)
from ottla.log.producer_snapshot import ProducerRow
from ottla.records.batch import BatchHeader
from ottla.records.control import TransactionMarker
from ottla.records.layout import MAX_INT32, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, TRANSACTIONAL_BIT

BATCHES_KEPT: Final = 5

_CLIENT: Final = AppendOrigin.CLIENT
_REPLICATION: Final = AppendOrigin.REPLICATION


class RecentBatch(NamedTuple):
    """One of a producer's last batches."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_INT32

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """One producer. All its batches are of its present epoch."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_transaction_first_offset",
        "last_timestamp_ms",
        "producer_epoch",
        "producer_id",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp_ms = NO_TIMESTAMP
        self.current_transaction_first_offset: int | None = None
        self.batches: list[RecentBatch] = []

    @classmethod
    def of_row(cls, row: ProducerRow) -> ProducerEntry:
        entry = cls(row.producer_id)
        entry.producer_epoch = row.producer_epoch
        entry.coordinator_epoch = row.coordinator_epoch
        entry.last_timestamp_ms = row.timestamp_ms
        if row.current_transaction_first_offset >= 0:
            entry.current_transaction_first_offset = row.current_transaction_first_offset
        if row.last_offset >= 0:
            entry.batches.append(RecentBatch(row.last_sequence, row.last_offset, row.offset_delta, row.timestamp_ms))
        return entry

    def row(self) -> ProducerRow:
        """What a snapshot keeps: of the batches only the last."""
        last_sequence, last_offset, offset_delta, _ = self.batches[-1] if self.batches else (NO_SEQUENCE, -1, 0, -1)
        first_offset = self.current_transaction_first_offset
        return ProducerRow(
            self.producer_id,
            self.producer_epoch,
            last_sequence,
            last_offset,
            offset_delta,
            self.last_timestamp_ms,
            self.coordinator_epoch,
            -1 if first_offset is None else first_offset,
        )

    def copy(self) -> ProducerEntry:
        other = ProducerEntry(self.producer_id)
        other.producer_epoch = self.producer_epoch
        other.coordinator_epoch = self.coordinator_epoch
        other.last_timestamp_ms = self.last_timestamp_ms
        other.current_transaction_first_offset = self.current_transaction_first_offset
        other.batches = self.batches.copy()
        return other

    @property
    def first_sequence(self) -> int:
        return self.batches[0].first_sequence if self.batches else NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """That of its last data; -1 if none is known."""
        return self.batches[-1].last_offset if self.batches else -1

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Silent for too long, with no open transaction."""
        return self.current_transaction_first_offset is None and now_ms - self.last_timestamp_ms >= expiration_ms

    def duplicate_of(self, header: BatchHeader) -> RecentBatch | None:
        """The recent batch with the same epoch and the very same sequence numbers."""
        sequence = header.base_sequence
        if header.producer_epoch != self.producer_epoch or sequence < 0:
            return None
        offset_delta = header.last_offset_delta
        last_sequence = (sequence + offset_delta) & MAX_INT32
        for batch in self.batches:
            if batch[0] == last_sequence and batch[2] == offset_delta:
                return batch
        return None

    def check_data(self, header: BatchHeader, origin: AppendOrigin, *, any_sequence: bool = False) -> None:
        """Refuses what may not follow. `any_sequence`: nothing was known of the producer before this append."""
        if origin is not _REPLICATION:
            epoch, known_epoch = header.producer_epoch, self.producer_epoch
            if epoch < known_epoch:
                self._refuse_epoch(header)
            if origin is _CLIENT and known_epoch != NO_PRODUCER_EPOCH:
                sequence = header.base_sequence
                if epoch != known_epoch:
                    if sequence != 0:
                        self._refuse_sequence(header, "a new epoch begins with sequence 0")
                elif not any_sequence:
                    last_sequence = self.batches[-1][0] if self.batches else NO_SEQUENCE
                    if sequence != last_sequence + 1 and (sequence != 0 or last_sequence != MAX_INT32):
                        self._refuse_sequence(header, f"sequence {last_sequence} was the last")
        if self.current_transaction_first_offset is not None and not header.attributes & TRANSACTIONAL_BIT:
            raise InvalidTransactionStateError(
                f"producer {self.producer_id}: a batch outside of a transaction, while its transaction since offset "
                f"{self.current_transaction_first_offset} is open; it must be committed or aborted first"
            )

    def check_marker(self, header: BatchHeader, marker: TransactionMarker, origin: AppendOrigin) -> None:
        """Refuses a marker of a producer or a coordinator that was replaced."""
        if origin is _REPLICATION:
            return
        if header.producer_epoch < self.producer_epoch:
            self._refuse_epoch(header)
        if marker.coordinator_epoch < self.coordinator_epoch:
            raise CoordinatorFencedError(
                f"producer {self.producer_id}: a marker of coordinator epoch {marker.coordinator_epoch}, "
                f"but {self.coordinator_epoch} has written since; that coordinator was replaced"
            )

    def _refuse_epoch(self, header: BatchHeader) -> None:
        raise InvalidProducerEpochError(
            f"producer {self.producer_id}: epoch {header.producer_epoch}, but {self.producer_epoch} has written since; "
            "a newer instance with its transactional id has replaced it"
        )

    def _refuse_sequence(self, header: BatchHeader, expected: str) -> None:
        raise OutOfOrderSequenceError(
            f"producer {self.producer_id}, epoch {header.producer_epoch}: sequence {header.base_sequence} "
            f"cannot be next, {expected}; batches before it were lost"
        )

    def add_data(self, header: BatchHeader) -> bool:
        """A batch was appended. Whether a transaction began with it."""
        base_offset, _, _, _, _, attributes, offset_delta, _, max_timestamp_ms, _, epoch, sequence, _ = header
        batches = self.batches
        if epoch != self.producer_epoch:
            batches.clear()
            self.producer_epoch = epoch
        elif len(batches) == BATCHES_KEPT:
            del batches[0]
        last_sequence = NO_SEQUENCE if sequence == NO_SEQUENCE else (sequence + offset_delta) & MAX_INT32
        batches.append(
            tuple.__new__(RecentBatch, (last_sequence, base_offset + offset_delta, offset_delta, max_timestamp_ms))
        )
        self.last_timestamp_ms = max_timestamp_ms
        if attributes & TRANSACTIONAL_BIT and self.current_transaction_first_offset is None:
            self.current_transaction_first_offset = base_offset
            return True
        return False

    def add_marker(self, header: BatchHeader, marker: TransactionMarker) -> int | None:
        """A marker was appended. Where the transaction began that it ends; None if there was none."""
        first_offset = self.current_transaction_first_offset
        if header.producer_epoch != self.producer_epoch:
            self.batches.clear()
            self.producer_epoch = header.producer_epoch
        self.coordinator_epoch = marker.coordinator_epoch
        self.last_timestamp_ms = marker.timestamp_ms
        self.current_transaction_first_offset = None
        return first_offset
