"""What a log knows of its producers: who wrote last, with which sequence numbers, and which transactions are open.

The leader refuses with it what an idempotent producer must not do (KIP-98), answers a repeated batch with its first
append, and tells how far transactions are decided. A producer of which nothing is known may begin with any sequence
number (KIP-360): its records may have been deleted, or it was silent for `producer.id.expiration.ms`.

An append is two steps around the write: `check`, which changes nothing, and `update`, which checks nothing. `replay`
brings the state up from batches that are in the log already. All state below `map_end_offset` can be had again from the
newest snapshot and the batches behind it.

Owned by the thread that owns the log. Proof that a coordinator knows a transaction before its first batch is appended
(KIP-890) is not asked for here: it would be one more thing that `check` looks at.
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
from ottla.log.errors import CorruptSnapshotError, InvalidRecordsError
from ottla.log.producer_entry import ProducerEntry
from ottla.log.producer_snapshot import SnapshotFiles
from ottla.log.transaction_index import AbortedTransaction
from ottla.records.batch import BatchHeader, BatchView
from ottla.records.control import TransactionMarker, read_transaction_marker
from ottla.records.errors import RecordError
from ottla.records.layout import CONTROL_BIT, LENGTH_PREFIX_SIZE, NO_PRODUCER_EPOCH

_logger = logging.getLogger(__name__)

PRODUCER_ID_EXPIRATION_MS: Final = 86_400_000
LATE_TRANSACTION_GRACE_MS: Final = 5 * 60 * 1000
"""How long after the longest allowed transaction an open one counts as forgotten."""

_CLIENT: Final = AppendOrigin.CLIENT
_NOTHING_ABORTED: Final = ()


class DuplicateBatch(NamedTuple):
    """Where and when a batch that came again was appended first."""

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
        """The offsets of the snapshots in the folder may be told by who has looked into it."""
        self.expiration_ms = expiration_ms
        """`producer.id.expiration.ms`, which may change while the broker runs."""
        self.map_end_offset = 0
        """Every batch below it is in the state. The log moves it with each append, whoever wrote."""
        self.snapshots = SnapshotFiles(disk, directory, snapshot_offsets)
        self._last_snapshot_offset = 0
        self._entries: dict[int, ProducerEntry] = {}
        self._ongoing: dict[int, int] = {}
        """First offset -> producer of each open transaction. Offsets rise: a new one begins at the log's end."""
        self._unreplicated: list[int] = []
        """Markers above the high watermark: their offsets, which rise."""
        self._unreplicated_starts: list[tuple[int, int]] = []
        """A heap of first offset and marker of their transactions. What the high watermark has passed is dropped when
        it comes to the top."""

    # --- what is known ----------------------------------------------------------------------------------------------

    @property
    def entries(self) -> Mapping[int, ProducerEntry]:
        """By producer id. Not to be changed by others."""
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
        """Whether the oldest open transaction has been silent for longer than any coordinator would allow."""
        oldest = next(iter(self._ongoing), None)
        if oldest is None:
            return False
        last_timestamp_ms = self._entries[self._ongoing[oldest]].last_timestamp_ms
        return last_timestamp_ms > 0 and now_ms - last_timestamp_ms > (
            max_transaction_timeout_ms + LATE_TRANSACTION_GRACE_MS
        )

    # --- append -----------------------------------------------------------------------------------------------------

    def check(self, headers: Sequence[BatchHeader], data: Buffer, origin: AppendOrigin) -> DuplicateBatch | None:
        """Whether these batches may be appended, in this order, `headers` being those of all batches in `data`.

        What may not raises the error that the producer is told. A batch that a client sends again is answered with its
        first append: nothing of `data` is to be written then.
        """
        if len(headers) == 1 and not headers[0].attributes & CONTROL_BIT:
            header = headers[0]
            known = self._entries.get(header.producer_id)  # producer id -1 is never there
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

    def update(self, headers: Sequence[BatchHeader], data: Buffer) -> Sequence[AbortedTransaction]:
        """These batches, which `check` let pass, were appended. The transactions that they abort, for the transaction
        index. The caller moves `map_end_offset`, since it also knows of batches without a producer."""
        if len(headers) == 1 and not headers[0].attributes & CONTROL_BIT:
            if headers[0].producer_id >= 0:
                self._add_data(headers[0])
            return _NOTHING_ABORTED
        aborted = (self._add(header, marker) for header, marker in _with_markers(headers, data))
        return [transaction for transaction in aborted if transaction is not None]

    def replay(self, header: BatchHeader, read_batch: Callable[[], Buffer]) -> AbortedTransaction | None:
        """A batch that is in the log already; the batch itself is only read where it is a marker. The transaction that
        it aborts, for a transaction index that is built anew."""
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

    def _add(self, header: BatchHeader, marker: TransactionMarker | None) -> AbortedTransaction | None:
        if not header.attributes & CONTROL_BIT:
            self._add_data(header)
            return None
        entry = self._entries.get(header.producer_id)
        if entry is None:
            entry = self._entries[header.producer_id] = ProducerEntry(header.producer_id)
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
            ongoing.clear()  # Otherwise a dictionary keeps the places of the deleted, and walks over them to its first.
        self._unreplicated.append(last_offset)
        heappush(self._unreplicated_starts, (first_offset, last_offset))
        if marker.committed:
            return None
        last_stable_offset = next(iter(ongoing), last_offset + 1)
        return AbortedTransaction(header.producer_id, first_offset, last_offset, last_stable_offset)

    # --- what happens to the log ------------------------------------------------------------------------------------

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Transactions whose marker lies below it are decided for good."""
        unreplicated = self._unreplicated
        if unreplicated:
            del unreplicated[: bisect_left(unreplicated, high_watermark)]
            if not unreplicated:
                self._unreplicated_starts.clear()

    def on_log_start_advanced(self, log_start_offset: int) -> None:
        """Records below it are gone. What is known of their producers stays for as long as it is in memory."""
        self.on_high_watermark_updated(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self.snapshots.latest
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def remove_expired(self, now_ms: int) -> int:
        """Forgets the producers that were silent for too long; how many."""
        entries, expiration_ms = self._entries, self.expiration_ms
        expired = [entry.producer_id for entry in entries.values() if entry.is_expired(now_ms, expiration_ms)]
        for producer_id in expired:
            del entries[producer_id]
        return len(expired)

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """The log now reaches from one offset to the other, the latter not above the high watermark.

        Afterwards the state is that below `map_end_offset`, which the newest snapshot within the log decides: the
        caller replays the batches behind it.
        """
        self.snapshots.remove_where(lambda offset: not log_start_offset < offset <= log_end_offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start_advanced(log_start_offset)
            return
        self._clear()
        offset = self._load_latest_snapshot(now_ms)
        self.map_end_offset = self._last_snapshot_offset = log_start_offset if offset is None else offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Nothing is left of the log; its next record has this offset."""
        self._clear()
        self.snapshots.remove_where(lambda _: True)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def _clear(self) -> None:
        self._entries.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self._unreplicated_starts.clear()

    # --- snapshots --------------------------------------------------------------------------------------------------

    def _load_latest_snapshot(self, now_ms: int) -> int | None:
        """The offset of the newest snapshot that can be read; those that cannot are removed."""
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
        """Writes down the state at this offset, which becomes `map_end_offset`; None if a snapshot is that far already.

        Without `sync` it costs no wait, and after a power cut an older snapshot may have to do; `sync_snapshot` can
        follow in another thread.
        """
        self.map_end_offset = offset
        if offset <= self._last_snapshot_offset:
            return None
        path = self.snapshots.write(offset, [entry.row() for entry in self._entries.values()], sync=sync)
        self._last_snapshot_offset = offset
        return path

    def delete_snapshots_before(self, offset: int) -> None:
        """Their segments are gone."""
        self.snapshots.remove_before(offset)

    def remove_stray_snapshots(self, segment_base_offsets: Collection[int]) -> None:
        """When a log is opened: those that belong to no segment, but for the one that a clean stop left at the end."""
        self.snapshots.remove_strays(segment_base_offsets)

    def move_to(self, directory: Path) -> None:
        """The folder was renamed."""
        self.snapshots.directory = directory


def _with_markers(
    headers: Sequence[BatchHeader], data: Buffer
) -> Iterator[tuple[BatchHeader, TransactionMarker | None]]:
    """Those of the batches that have a producer, control batches with the marker in them."""
    position = 0
    for header in headers:
        if header[9] >= 0:  # the producer's id; by their places, as followers append thousands at a time
            yield header, _read_marker(data, position) if header.attributes & CONTROL_BIT else None
        position += header[1] + LENGTH_PREFIX_SIZE


def _read_marker(data: Buffer, position: int) -> TransactionMarker | None:
    try:
        return read_transaction_marker(BatchView(data, position), verify_crc=False)
    except RecordError as error:
        raise InvalidRecordsError(str(error)) from error
