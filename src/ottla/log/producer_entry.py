"""One producer of a partition: its last batches, what it may write next, and its open transaction.

The last five batches are kept, as many as a client may have in flight. A snapshot has only the last of them; the log
still has the others (`earlier_batches`). Checks raise the error that the producer gets, and change nothing; appended
batches are added without a check. Owned by the thread that owns the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.log.append_origin import AppendOrigin
from ottla.log.errors import (
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    ReusedSequenceError,
)
from ottla.log.producer_snapshot import ProducerRow
from ottla.records.batch import BatchHeader
from ottla.records.control import TransactionMarker
from ottla.records.layout import MAX_INT32, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, TRANSACTIONAL_BIT

BATCHES_KEPT: Final = 5
EPOCH_RISES_SINCE: Final = 2
"""The transaction version in which the end of each transaction raises the producer epoch."""
_FURTHEST_BACK: Final = 2**30
"""Sequence numbers wrap around: one that is further behind than this is treated as ahead."""

_CLIENT: Final = AppendOrigin.CLIENT
_REPLICATION: Final = AppendOrigin.REPLICATION


class RecentBatch(NamedTuple):
    """One of a producer's last batches."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @classmethod
    def of(cls, header: BatchHeader) -> RecentBatch:
        sequence, offset_delta = header.base_sequence, header.last_offset_delta
        last_sequence = NO_SEQUENCE if sequence == NO_SEQUENCE else (sequence + offset_delta) & MAX_INT32
        return cls(last_sequence, header.last_offset, offset_delta, header.max_timestamp_ms)

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_INT32

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """One producer. All its batches have its current epoch."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_transaction_first_offset",
        "is_from_snapshot",
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
        self.is_from_snapshot = False
        """Whether the log may have earlier ones of its last five batches, which were not searched for yet."""

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
            entry.is_from_snapshot = True
        return entry

    def row(self) -> ProducerRow:
        """The row of a snapshot, which contains only the last batch."""
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
        other.is_from_snapshot = self.is_from_snapshot
        return other

    @property
    def first_sequence(self) -> int:
        return self.batches[0].first_sequence if self.batches else NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """The offset of its last data; -1 if none is known."""
        return self.batches[-1].last_offset if self.batches else -1

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether it was inactive for too long, with no open transaction."""
        return self.current_transaction_first_offset is None and now_ms - self.last_timestamp_ms >= expiration_ms

    def duplicate_of(self, header: BatchHeader) -> RecentBatch | None:
        """The recent batch with the same epoch and exactly the same sequence numbers: then this one repeats it.

        Raises `ReusedSequenceError` if that batch belongs to a transaction that has ended. A producer ends a
        transaction when it waits for none of its batches any more, so this one has other records. librdkafka (2.16)
        goes on with the same numbers after it aborted a batch whose first attempt was stored but not acknowledged.
        Kafka takes that for a repetition, and acknowledges records that it does not store.
        """
        sequence = header.base_sequence
        if header.producer_epoch != self.producer_epoch or sequence < 0:
            return None
        offset_delta = header.last_offset_delta
        last_sequence = (sequence + offset_delta) & MAX_INT32
        for batch in self.batches:
            if batch[0] == last_sequence and batch[2] == offset_delta:
                if header.attributes & TRANSACTIONAL_BIT:
                    self._check_is_open(header, batch)
                return batch
        return None

    def _check_is_open(self, header: BatchHeader, former: RecentBatch) -> None:
        """Whether the open transaction contains the batch."""
        first_offset = self.current_transaction_first_offset
        if first_offset is None or former.last_offset < first_offset:
            raise ReusedSequenceError(
                f"producer {self.producer_id}, epoch {header.producer_epoch}: sequence {header.base_sequence} was used "
                f"at offset {former.first_offset}, in a transaction that has ended; abort this transaction"
            )

    def may_lack(self, header: BatchHeader) -> bool:
        """Whether this may be one of its last five batches, although it is unknown: a snapshot keeps only one."""
        return (
            self.is_from_snapshot
            and len(self.batches) < BATCHES_KEPT
            and header.producer_epoch == self.producer_epoch
            and header.base_sequence >= 0
            and (self.last_sequence - header.base_sequence) & MAX_INT32 < _FURTHEST_BACK
        )

    def recall(self, earlier: Sequence[RecentBatch]) -> None:
        """Adds batches that came before the known ones; the log has no others."""
        self.batches[:0] = earlier
        self.is_from_snapshot = False

    def check_data(self, header: BatchHeader, origin: AppendOrigin, *, any_sequence: bool = False) -> None:
        """Refuses a batch that may not follow. `any_sequence`: the producer was unknown before this append."""
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

    def is_in_transaction(self, producer_epoch: int) -> bool:
        """Whether a transaction of that epoch is open: a batch of a later epoch begins another one."""
        return self.current_transaction_first_offset is not None and self.producer_epoch == producer_epoch

    def check_marker(
        self, header: BatchHeader, marker: TransactionMarker, origin: AppendOrigin, *, transaction_version: int = 0
    ) -> None:
        """Refuses a marker of a producer or a coordinator that was replaced. With transaction version 2, a marker has a
        higher epoch than the transaction that it ends: one with the epoch of an open transaction is a delayed
        repetition of the previous one, and must not end this one (KIP-890)."""
        if origin is _REPLICATION:
            return
        if header.producer_epoch < self.producer_epoch:
            self._refuse_epoch(header)
        if transaction_version >= EPOCH_RISES_SINCE and self.is_in_transaction(header.producer_epoch):
            raise InvalidProducerEpochError(
                f"producer {self.producer_id}: a marker of epoch {header.producer_epoch}, in which a transaction is "
                "open; the marker belongs to an earlier transaction"
            )
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
        """Adds an appended batch. Returns whether a transaction began with it."""
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
        """Adds an appended marker. Returns where the transaction that it ends began; None if there was none."""
        first_offset = self.current_transaction_first_offset
        if header.producer_epoch != self.producer_epoch:
            self.batches.clear()
            self.producer_epoch = header.producer_epoch
        self.coordinator_epoch = marker.coordinator_epoch
        self.last_timestamp_ms = marker.timestamp_ms
        self.current_transaction_first_offset = None
        return first_offset
