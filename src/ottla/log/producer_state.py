"""What a log knows about its producers: the last batches with their sequence numbers, and the open transactions.

The leader uses it to refuse what an idempotent producer must not do (KIP-98), to answer a repeated batch with its first
append, and to know which transactions are decided. An unknown producer may begin with any sequence number (KIP-360):
its records may have been deleted, or it was inactive for `producer.id.expiration.ms`.

An append has two steps around the write: `check`, which changes nothing, and `update`, which checks nothing. `replay`
updates the state from batches that are already in the log. All state below `map_end_offset` can be restored from the
newest snapshot and the batches after it.

Before a producer's batch begins a transaction, its coordinator must confirm the transaction (KIP-890). Whoever appends
for a producer sees to that: `begin_verification`, and `check_verified` immediately before the append.

Owned by the thread that owns the log.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.base.disk import Buffer, Disk
from ottla.log.append_origin import AppendOrigin
from ottla.log.errors import (
    CorruptSnapshotError,
    InvalidRecordsError,
    InvalidTransactionStateError,
    LogError,
    OutOfOrderSequenceError,
)
from ottla.log.producer_entry import ProducerEntry
from ottla.log.producer_snapshot import SnapshotFiles
from ottla.log.transaction_index import AbortedTransaction
from ottla.log.verification import Verification
from ottla.records.batch import BatchHeader, BatchView
from ottla.records.control import TransactionMarker, read_transaction_marker
from ottla.records.errors import RecordError
from ottla.records.layout import CONTROL_BIT, LENGTH_PREFIX_SIZE, NO_PRODUCER_EPOCH

_logger = logging.getLogger(__name__)

PRODUCER_ID_EXPIRATION_MS: Final = 86_400_000
LATE_TRANSACTION_GRACE_MS: Final = 5 * 60 * 1000
"""An open transaction is overdue after the longest allowed transaction timeout plus this time."""

_CLIENT: Final = AppendOrigin.CLIENT
_NOTHING_ABORTED: Final = ()


class DuplicateBatch(NamedTuple):
    """Where and when a repeated batch was first appended."""

    first_offset: int
    last_offset: int
    timestamp_ms: int


class ProducerStates:
    """All producers of one partition, and its transactions."""

    __slots__ = (
        "_entries",
        "_last_snapshot_offset",
        "_ongoing",
        "_unreplicated",
        "_unreplicated_starts",
        "_verifications",
        "expiration_ms",
        "map_end_offset",
        "snapshots",
    )

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        *,
        expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        snapshot_offsets: Iterable[int] | None = None,
    ) -> None:
        """The caller may pass the offsets of the snapshots in the folder if it has listed it."""
        self.expiration_ms = expiration_ms
        """`producer.id.expiration.ms`, which may change while the broker runs."""
        self.map_end_offset = 0
        """Every batch below it is in the state. The log moves it with each append, by any producer."""
        self.snapshots = SnapshotFiles(disk, directory, snapshot_offsets)
        self._last_snapshot_offset = 0
        self._entries: dict[int, ProducerEntry] = {}
        self._ongoing: dict[int, int] = {}
        """First offset -> producer of each open transaction. Offsets increase: a new one begins at the log's end."""
        self._unreplicated: list[int] = []
        """The increasing offsets of markers above the high watermark."""
        self._unreplicated_starts: list[tuple[int, int]] = []
        """A heap of first offset and marker of their transactions. Those that the high watermark has passed are dropped
        when they reach the top."""
        self._verifications: dict[int, Verification] = {}
        """By producer: batches that wait until the coordinator confirms that they may begin a transaction."""

    # --- state ------------------------------------------------------------------------------------------------------

    @property
    def entries(self) -> Mapping[int, ProducerEntry]:
        """By producer id. Read-only for others."""
        return MappingProxyType(self._entries)

    @property
    def is_empty(self) -> bool:
        return not self._entries and not self._unreplicated

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the oldest open transaction begins."""
        return next(iter(self._ongoing), None)

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction begins that is open, or whose marker the high watermark has not passed."""
        undecided = next(iter(self._ongoing), None)
        if not self._unreplicated:
            return undecided
        starts, oldest_marker = self._unreplicated_starts, self._unreplicated[0]
        while starts[0][1] < oldest_marker:
            heappop(starts)
        unreplicated = starts[0][0]
        return unreplicated if undecided is None else min(unreplicated, undecided)

    def has_late_transaction(self, now_ms: int, max_transaction_timeout_ms: int) -> bool:
        """Whether the oldest open transaction has been inactive for longer than any coordinator would allow. Any thread
        may ask."""
        oldest = next(iter(list(self._ongoing.values())), None)
        entry = None if oldest is None else self._entries.get(oldest)
        if entry is None:
            return False
        last_timestamp_ms = entry.last_timestamp_ms
        return last_timestamp_ms > 0 and now_ms - last_timestamp_ms > (
            max_transaction_timeout_ms + LATE_TRANSACTION_GRACE_MS
        )

    def is_in_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of the producer with that epoch is open here."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry.is_in_transaction(producer_epoch)

    # --- verification -----------------------------------------------------------------------------------------------

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, now_ms: int, *, epoch_rises: bool = False
    ) -> Verification | None:
        """For a transactional batch that is about to be appended: None if its transaction is open here. Otherwise the
        coordinator must confirm the transaction before `check_verified` lets the batch pass. `epoch_rises`: each
        transaction of the producer has its own epoch, so its sequence numbers begin with 0."""
        if self.is_in_transaction(producer_id, producer_epoch):
            return None
        known = self._verifications.get(producer_id)
        if known is None:
            known = self._verifications[producer_id] = Verification(
                producer_epoch, sequence, now_ms, epoch_rises=epoch_rises
            )
        else:
            known.note(producer_epoch, sequence)
        return known

    def check_verified(
        self, producer_id: int, producer_epoch: int, sequence: int, verification: Verification | None
    ) -> None:
        """Immediately before a transactional batch is appended: refuses it if its transaction is not open, unless it
        may begin it."""
        entry = self._entries.get(producer_id)
        if entry is not None and entry.is_in_transaction(producer_epoch):
            return
        if verification is None or self._verifications.get(producer_id) is not verification:
            raise InvalidTransactionStateError(
                f"producer {producer_id}: the transaction of its batch has ended; a marker was written meanwhile"
            )
        if producer_epoch == verification.producer_epoch and sequence > verification.lowest_sequence:
            raise OutOfOrderSequenceError(
                f"producer {producer_id}, epoch {producer_epoch}: sequence {sequence} cannot be next, "
                f"{verification.lowest_sequence} came before it and was not appended"
            )
        if verification.epoch_rises and sequence > 0 and entry is None:
            raise OutOfOrderSequenceError(
                f"producer {producer_id}, epoch {producer_epoch}: sequence {sequence} cannot be the first, "
                "each transaction begins with 0"
            )

    def take_over_verifications(self, other: ProducerStates) -> None:
        """The log of `other` is replaced by this one: batches that wait will be appended here."""
        self._verifications = other._verifications

    # --- append -----------------------------------------------------------------------------------------------------

    def check(self, headers: Sequence[BatchHeader], data: Buffer, origin: AppendOrigin) -> DuplicateBatch | None:
        """Checks whether these batches may be appended, in this order; `headers` are those of all batches in `data`.

        Raises the error that the producer gets. If a client repeats a batch, returns its first append: then nothing of
        `data` may be written.
        """
        if len(headers) == 1 and not headers[0].attributes & CONTROL_BIT:
            header = headers[0]
            known = self._entries.get(header.producer_id)  # never contains producer id -1
            if known is None:
                return None
            if origin is _CLIENT and (former := known.duplicate_of(header)) is not None:
                return DuplicateBatch(former.first_offset, former.last_offset, former.timestamp_ms)
            known.check_data(header, origin)
            return None
        pending: dict[int, ProducerEntry] = {}
        for header, marker in _with_markers(headers, data):
            producer_id = header.producer_id
            known = self._entries.get(producer_id)
            if origin is _CLIENT and known is not None and marker is None:
                former = known.duplicate_of(header)
                if former is not None:
                    return DuplicateBatch(former.first_offset, former.last_offset, former.timestamp_ms)
            entry = pending.get(producer_id)
            if entry is None:
                entry = pending[producer_id] = ProducerEntry(producer_id) if known is None else known.copy()
            if marker is not None:
                entry.check_marker(header, marker, origin)
                entry.add_marker(header, marker)
            elif not header.attributes & CONTROL_BIT:
                unknown = known is None or known.producer_epoch == NO_PRODUCER_EPOCH
                entry.check_data(header, origin, any_sequence=unknown)
                entry.add_data(header)
        return None

    def accepts(self, header: BatchHeader) -> bool:
        """Whether a client may append this batch, which is no repeated one. For a quick look: `check` has the error."""
        if header.producer_id not in self._entries:
            return True
        try:
            return self.check((header,), b"", _CLIENT) is None
        except LogError:
            return False

    def check_marker(self, header: BatchHeader, marker: TransactionMarker, transaction_version: int) -> None:
        """The same as `check` for a marker of a coordinator."""
        known = self._entries.get(header.producer_id)
        if known is not None:
            known.check_marker(header, marker, AppendOrigin.COORDINATOR, transaction_version=transaction_version)

    def update_marker(self, header: BatchHeader, marker: TransactionMarker) -> AbortedTransaction | None:
        """The same as `update` for a marker of a coordinator."""
        return self._add(header, marker)

    def update(self, headers: Sequence[BatchHeader], data: Buffer) -> Sequence[AbortedTransaction]:
        """Called when these batches, which passed `check`, were appended. Returns the transactions that they abort, for
        the transaction index. The caller moves `map_end_offset`, because it also knows batches without a producer."""
        if len(headers) == 1 and not headers[0].attributes & CONTROL_BIT:
            if headers[0].producer_id >= 0:
                self._add_data(headers[0])
            return _NOTHING_ABORTED
        aborted = (self._add(header, marker) for header, marker in _with_markers(headers, data))
        return [transaction for transaction in aborted if transaction is not None]

    def replay(self, header: BatchHeader, read_batch: Callable[[], Buffer]) -> AbortedTransaction | None:
        """Adds a batch that is already in the log; its bytes are only read if it is a marker. Returns the transaction
        that it aborts, for rebuilding a transaction index."""
        if header.producer_id < 0:
            return None
        if header.attributes & CONTROL_BIT:
            return self._add(header, _read_marker(read_batch(), 0))
        self._add_data(header)
        return None

    def _add_data(self, header: BatchHeader) -> None:
        producer_id = header.producer_id
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id)
        if entry.add_data(header):
            self._ongoing[header.base_offset] = producer_id
            if self._verifications:
                self._verifications.pop(producer_id, None)

    def _add(self, header: BatchHeader, marker: TransactionMarker | None) -> AbortedTransaction | None:
        if not header.attributes & CONTROL_BIT:
            self._add_data(header)
            return None
        entry = self._entries.get(header.producer_id)
        if entry is None:
            entry = self._entries[header.producer_id] = ProducerEntry(header.producer_id)
        waiting = self._verifications.get(header.producer_id)
        if waiting is not None and waiting.is_ended_by(header.producer_epoch):
            del self._verifications[header.producer_id]
        if marker is None:  # compaction emptied it: the whole transaction is gone
            return None
        first_offset = entry.add_marker(header, marker)
        if first_offset is None:  # a transaction without data in this partition
            return None
        return self._complete(header, marker, first_offset)

    def _complete(self, header: BatchHeader, marker: TransactionMarker, first_offset: int) -> AbortedTransaction | None:
        ongoing, last_offset = self._ongoing, header.base_offset
        del ongoing[first_offset]
        if not ongoing:
            ongoing.clear()  # otherwise the dictionary keeps deleted slots, and walks over them to its first entry
        self._unreplicated.append(last_offset)
        heappush(self._unreplicated_starts, (first_offset, last_offset))
        if marker.committed:
            return None
        last_stable_offset = next(iter(ongoing), last_offset + 1)
        return AbortedTransaction(header.producer_id, first_offset, last_offset, last_stable_offset)

    # --- changes of the log -----------------------------------------------------------------------------------------

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Transactions whose marker is below it are decided permanently."""
        unreplicated = self._unreplicated
        if unreplicated:
            del unreplicated[: bisect_left(unreplicated, high_watermark)]
            if not unreplicated:
                self._unreplicated_starts.clear()

    def on_log_start_advanced(self, log_start_offset: int) -> None:
        """Records below it are gone. The state of their producers stays as long as it is in memory."""
        self.on_high_watermark_updated(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self.snapshots.latest
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def remove_expired(self, now_ms: int) -> int:
        """Removes the producers that were inactive for too long; returns their number."""
        entries, expiration_ms = self._entries, self.expiration_ms
        expired = [entry.producer_id for entry in entries.values() if entry.is_expired(now_ms, expiration_ms)]
        for producer_id in expired:
            del entries[producer_id]
        self._verifications = {
            producer_id: each
            for producer_id, each in self._verifications.items()
            if now_ms - each.started_ms < expiration_ms
        }
        return len(expired)

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """The log now extends from one offset to the other, which is not above the high watermark.

        Afterwards the state is that below `map_end_offset`, which the newest snapshot within the log determines: the
        caller replays the batches after it.
        """
        self.snapshots.remove_where(lambda offset: not log_start_offset < offset <= log_end_offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start_advanced(log_start_offset)
            return
        self._clear()
        offset = self._load_latest_snapshot(now_ms)
        self.map_end_offset = self._last_snapshot_offset = log_start_offset if offset is None else offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """The log is empty; its next record has this offset."""
        self._clear()
        self.snapshots.remove_where(lambda _: True)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def _clear(self) -> None:
        self._entries.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self._unreplicated_starts.clear()
        self._verifications.clear()

    # --- snapshots --------------------------------------------------------------------------------------------------

    def _load_latest_snapshot(self, now_ms: int) -> int | None:
        """The offset of the newest snapshot that can be read; removes those that cannot."""
        while (offset := self.snapshots.latest) is not None:
            try:
                rows = self.snapshots.read(offset)
            except CorruptSnapshotError as error:
                _logger.warning("%s; deleted, an older snapshot or the log is used instead", error)
                self.snapshots.remove(offset)
                continue
            loaded = (ProducerEntry.of_row(row) for row in rows)
            entries = [entry for entry in loaded if not entry.is_expired(now_ms, self.expiration_ms)]
            self._entries = {entry.producer_id: entry for entry in entries}
            open_transactions = (
                (entry.current_transaction_first_offset, entry.producer_id)
                for entry in entries
                if entry.current_transaction_first_offset is not None
            )
            self._ongoing = dict(sorted(open_transactions))
            return offset
        return None

    def take_snapshot(self, offset: int, sync: bool = False) -> Path | None:
        """Writes the state at this offset, which becomes `map_end_offset`; None if there is a snapshot at that offset.

        Without `sync` it does not wait, and after a power cut an older snapshot may have to be used; another thread can
        call `sync_snapshot` afterwards.
        """
        self.map_end_offset = offset
        if offset <= self._last_snapshot_offset:
            return None
        path = self.snapshots.write(offset, [entry.row() for entry in self._entries.values()], sync=sync)
        self._last_snapshot_offset = offset
        return path

    def delete_snapshots_before(self, offset: int) -> None:
        """Called when their segments are gone."""
        self.snapshots.remove_before(offset)

    def remove_stray_snapshots(self, segment_base_offsets: Collection[int]) -> None:
        """On opening a log: removes those that belong to no segment, except the one that a clean stop left at the
        end."""
        self.snapshots.remove_strays(segment_base_offsets)

    def move_to(self, directory: Path) -> None:
        """Called when the folder was renamed."""
        self.snapshots.directory = directory


def _with_markers(
    headers: Sequence[BatchHeader], data: Buffer
) -> Iterator[tuple[BatchHeader, TransactionMarker | None]]:
    """The batches that have a producer; control batches with their marker."""
    position = 0
    for header in headers:
        if header[9] >= 0:  # the producer id; by index, because followers append thousands at a time
            yield header, _read_marker(data, position) if header.attributes & CONTROL_BIT else None
        position += header[1] + LENGTH_PREFIX_SIZE


def _read_marker(data: Buffer, position: int) -> TransactionMarker | None:
    try:
        return read_transaction_marker(BatchView(data, position), verify_crc=False)
    except RecordError as error:
        raise InvalidRecordsError(str(error)) from error
