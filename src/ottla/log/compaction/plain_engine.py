"""The engine without compiled code: see `ottla.log.compaction.engine`. It works record by record, many times slower
than `fast_engine`, with the same result byte for byte.

It needs the GIL all the time, and so does the broker's loop: so it sleeps briefly every few milliseconds.

`rewriter` says what remains of a batch, apart from the last offset of each key; both engines follow that.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from ottla.base.disk import File
from ottla.log.compaction import file_batches
from ottla.log.compaction.engine import CopyTotals, LastRecords
from ottla.log.compaction.file_batches import ENDED, NOT_THIS_MAGIC, UNSOUND, refuse_records
from ottla.log.compaction.transactions import TransactionTracker
from ottla.log.errors import CorruptRecordsError
from ottla.log.segment import Segment
from ottla.records.batch import HEADER, BatchHeader, BatchView
from ottla.records.compression import compress, decompress
from ottla.records.control import read_transaction_marker
from ottla.records.errors import RecordError
from ottla.records.layout import (
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LENGTH_AT,
    LENGTH_PREFIX_SIZE,
    MAGIC_AT,
    MAGIC_V2,
    MAX_INT64,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    ByteBuffer,
    Compression,
)
from ottla.records.varint import read_varint, read_varlong, size_of_varint, write_varint, write_varlong

ENTRY_BYTES: Final = 192
"""A dict entry with a key of 16 bytes and a large int, and what the dict needs while it grows."""
_DIGEST_BYTES: Final = 16
_LENGTH: Final = struct.Struct(">i")

_WORK_S: Final = 0.002
_REST_S: Final = 0.0005
"""Long enough for the loop to get the GIL."""


class PlainChunk:
    """Consecutive batches."""

    __slots__ = ("batches", "path", "size")

    def __init__(self, path: Path, batches: list[BatchView], size: int) -> None:
        self.path = path
        self.batches = batches
        self.size = size


def read_chunks(file: File, size: int, chunk_bytes: int) -> Iterator[PlainChunk]:
    """All batches of a file of that size."""
    return file_batches.read_chunks(file, size, chunk_bytes, _scan)


def _scan(path: Path, data: bytes) -> tuple[PlainChunk, int]:
    batches: list[BatchView] = []
    position, stopped = 0, ENDED
    while len(data) - position > MAGIC_AT:
        whole = _LENGTH.unpack_from(data, position + LENGTH_AT)[0] + LENGTH_PREFIX_SIZE
        if data[position + MAGIC_AT] != MAGIC_V2:
            stopped = NOT_THIS_MAGIC
            break
        if whole < HEADER_SIZE:
            stopped = UNSOUND
            break
        if whole > len(data) - position:
            break
        view = BatchView(data, position)
        try:
            view.validate()
        except RecordError:
            stopped = UNSOUND
            break
        batches.append(view)
        position += whole
    return PlainChunk(path, batches, position), stopped


# --- records --------------------------------------------------------------------------------------------------------


class _Seen(NamedTuple):
    """The parts of a record that compaction uses."""

    begin: int
    end: int
    """Its position in the decompressed records."""
    offset: int
    timestamp_ms: int
    key: bytes | None
    has_value: bool


def _payload(path: Path, view: BatchView, header: BatchHeader) -> ByteBuffer:
    """The records of a batch, decompressed."""
    payload = view.payload
    if not len(payload) or not header.attributes & COMPRESSION_MASK:
        return payload
    try:
        return decompress(header.compression, payload)
    except RecordError:
        refuse_records(path, view)


def _take_apart(path: Path, view: BatchView, header: BatchHeader, payload: ByteBuffer) -> list[_Seen]:
    """Parses the records. What follows a record's value is not checked: invalid headers of a producer are kept."""
    found = []
    at, end, previous = 0, len(payload), -1
    try:
        for _ in range(header.record_count):
            record, offset_delta = _read_record(payload, at, end, header)
            if not previous < offset_delta <= header.last_offset_delta:
                refuse_records(path, view)
            if not -MAX_INT64 - 1 <= record.timestamp_ms <= MAX_INT64:
                refuse_records(path, view)
            previous, at = offset_delta, record.end
            found.append(record)
    except RecordError:
        refuse_records(path, view)
    if at != end:
        refuse_records(path, view)
    return found


def _read_record(payload: ByteBuffer, begin: int, end: int, header: BatchHeader) -> tuple[_Seen, int]:
    """A record and its offset delta; raises `RecordError` if it is invalid."""
    size, at = read_varint(payload, begin)
    if not 0 <= size <= end - at:
        raise RecordError("a record goes beyond its batch")
    record_end = at + size
    timestamp_delta, at = read_varlong(payload, at + 1)
    offset_delta, at = read_varint(payload, at)
    key_size, at = read_varint(payload, at)
    key_at = at
    at += max(key_size, 0)
    value_size, at = read_varint(payload, at)
    at += max(value_size, 0)
    if at >= record_end or key_size < -1 or value_size < -1:
        raise RecordError("a key or value goes beyond its record")
    key = None if key_size < 0 else bytes(payload[key_at : key_at + key_size])
    timestamp_ms = header.base_timestamp_ms + timestamp_delta
    return _Seen(begin, record_end, header.base_offset + offset_delta, timestamp_ms, key, value_size >= 0), offset_delta


def _is_committed(path: Path, view: BatchView) -> bool | None:
    """The result in the marker of a control batch; None if it contains no marker."""
    try:
        marker = read_transaction_marker(view, verify_crc=False)
    except RecordError as error:
        raise CorruptRecordsError(f"{path}: {error}") from error
    return None if marker is None else marker.committed


# --- the map of keys ------------------------------------------------------------------------------------------------


class PlainMap:
    """The last offset of each key. Long keys are replaced by 128 bits of their hash, so that entries are bounded."""

    __slots__ = ("_limit", "_slots", "offsets", "until_offset")

    def __init__(self, max_bytes: int, load_factor: float, first_offset: int) -> None:
        self._slots = max_bytes // ENTRY_BYTES
        self._limit = min(int(self._slots * load_factor), self._slots - 1)
        if self._limit < 1:
            raise ValueError(
                f"{max_bytes} bytes are too small at a load factor of {load_factor}: increase "
                "log.cleaner.dedupe.buffer.size"
            )
        self.offsets: dict[bytes, int] = {}
        self.until_offset = first_offset
        """Up to which offset records are entered."""

    @property
    def key_count(self) -> int:
        return len(self.offsets)

    @property
    def utilization(self) -> float:
        return len(self.offsets) / self._slots

    def pass_over(self, until_offset: int) -> None:
        """There are no records before that offset."""
        self.until_offset = max(self.until_offset, until_offset)

    def add(self, key: bytes, offset: int) -> bool:
        """Returns whether there was room."""
        name = _name(key)
        if name not in self.offsets and len(self.offsets) >= self._limit:
            return False
        self.offsets[name] = offset
        return True

    def last_offset(self, key: bytes) -> int:
        """-1 for an unknown key."""
        return self.offsets.get(_name(key), -1)


def _name(key: bytes) -> bytes:
    """Short keys stand for themselves; they never have the length of a hash."""
    return key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()


def new_map(max_bytes: int, load_factor: float, first_offset: int) -> PlainMap:
    return PlainMap(max_bytes, load_factor, first_offset)


def map_chunk(chunk: PlainChunk, offsets: PlainMap, transactions: TransactionTracker, first_offset: int) -> bool:
    """Enters the keys of all records from an offset on, except aborted ones. Returns whether all were entered."""
    rests = _Rests()
    for view in chunk.batches:
        rests.rest_if_due()
        header = view.header
        is_dropped = header.last_offset < first_offset
        if header.is_control:
            committed = _is_committed(chunk.path, view)
            transactions.is_needless_marker(header.producer_id, header.last_offset, committed)
            is_dropped = True
        elif header.is_transactional and transactions.is_aborted(header.producer_id, header.last_offset):
            is_dropped = True
        if not is_dropped:
            for record in _take_apart(chunk.path, view, header, _payload(chunk.path, view, header)):
                if record.key is None or record.offset < first_offset:
                    continue
                if not offsets.add(record.key, record.offset):
                    offsets.pass_over(record.offset)
                    return False
        offsets.pass_over(header.next_offset)
    return True


# --- what remains ---------------------------------------------------------------------------------------------------


class PlainRewriter:
    """For one pass over a log: segments, and chunks in them, must come in order."""

    def __init__(
        self,
        offsets: PlainMap,
        transactions: TransactionTracker,
        last_records: LastRecords,
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._last_data_offsets = frozenset(last_records.data_offsets)
        self._marker_epochs = last_records.marker_epochs
        self._now_ms = now_ms
        self._horizon_ms = min(now_ms + delete_retention_ms, MAX_INT64)
        self.totals = CopyTotals()

    def copy(self, chunk: PlainChunk, target: Segment) -> int:
        """Appends what remains of a chunk. Returns the number of bytes written."""
        rests = _Rests()
        parts: list[ByteBuffer] = []
        last_offset = newest_ms = newest_offset = -1
        for view in chunk.batches:
            rests.rest_if_due()
            part = self._control(chunk.path, view) if view.is_control else self._data(chunk.path, view)
            if part is None:
                continue
            last_offset = view.last_offset
            max_timestamp_ms = BatchView(part).max_timestamp_ms
            if not parts or max_timestamp_ms > newest_ms:
                newest_ms, newest_offset = max_timestamp_ms, last_offset
            parts.append(part)
        written = b"".join(parts)
        if written:
            target.append(
                written, last_offset=last_offset, max_timestamp_ms=newest_ms, offset_of_max_timestamp=newest_offset
            )
        for transaction in self._transactions.kept_aborted:
            target.transaction_index.append(transaction)
        self._transactions.kept_aborted.clear()
        self.totals.bytes_read += chunk.size
        self.totals.bytes_written += len(written)
        return len(written)

    def _control(self, path: Path, view: BatchView) -> ByteBuffer | None:
        header = view.header
        self.totals.records_read += header.record_count
        committed = _is_committed(path, view)
        is_needless = self._transactions.is_needless_marker(header.producer_id, header.last_offset, committed)
        epoch = self._marker_epochs.get(header.producer_id)
        stays_empty = epoch is not None and epoch == header.producer_epoch
        horizon_ms = header.delete_horizon_ms
        if is_needless and horizon_ms is not None and horizon_ms <= self._now_ms:
            return _emptied(header) if stays_empty else None
        payload = _payload(path, view, header)
        kept = _take_apart(path, view, header, payload)
        return self._written(
            view, header, payload, kept, wants_horizon=is_needless and horizon_ms is None, stays_empty=stays_empty
        )

    def _data(self, path: Path, view: BatchView) -> ByteBuffer | None:
        header = view.header
        self.totals.records_read += header.record_count
        stays_empty = header.producer_id >= 0 and header.last_offset in self._last_data_offsets
        if header.is_transactional and self._transactions.is_aborted(header.producer_id, header.last_offset):
            return _emptied(header) if stays_empty else None
        horizon_ms, mapped_until = header.delete_horizon_ms, self._offsets.until_offset
        keeps_tombstones = horizon_ms is None or self._now_ms < horizon_ms
        may_gain_horizon = horizon_ms is None and header.last_offset < mapped_until
        payload = _payload(path, view, header)
        kept = []
        wants_horizon = False
        for record in _take_apart(path, view, header, payload):
            keeps = record.offset >= mapped_until
            if record.key is None:
                self.totals.keyless_records += 1
            elif not keeps and (keeps_tombstones or record.has_value):
                keeps = record.offset >= self._offsets.last_offset(record.key)
            if keeps:
                kept.append(record)
                wants_horizon = wants_horizon or (may_gain_horizon and not record.has_value)
        return self._written(view, header, payload, kept, wants_horizon=wants_horizon, stays_empty=stays_empty)

    def _written(
        self,
        view: BatchView,
        header: BatchHeader,
        payload: ByteBuffer,
        kept: list[_Seen],
        *,
        wants_horizon: bool,
        stays_empty: bool,
    ) -> ByteBuffer | None:
        """What is left of a batch: its own bytes if it loses nothing and gains no horizon."""
        if not kept:
            return _emptied(header) if stays_empty else None
        self.totals.records_kept += len(kept)
        # Deltas from a horizon must fit 64 bits; no producer's clock is that wrong, but a batch can claim it.
        wants_horizon = wants_horizon and min(record.timestamp_ms for record in kept) >= NO_TIMESTAMP
        if len(kept) == header.record_count and not wants_horizon:
            return memoryview(view.buffer)[view.position : view.position + view.size_in_bytes]
        records = bytearray()
        for record in kept:
            if wants_horizon:
                _write_moved(records, payload, record, header.base_timestamp_ms, self._horizon_ms)
            else:
                records += payload[record.begin : record.end]
        changes = {"record_count": len(kept)}
        if wants_horizon:
            changes |= {
                "attributes": header.attributes | DELETE_HORIZON_BIT,
                "base_timestamp_ms": self._horizon_ms,
            }
        if not header.attributes & TIMESTAMP_TYPE_BIT:
            changes["max_timestamp_ms"] = max(record.timestamp_ms for record in kept)
        codec = header.compression
        return _batch(header._replace(**changes), records if codec is Compression.NONE else compress(codec, records))


def new_rewriter(
    offsets: PlainMap,
    transactions: TransactionTracker,
    last_records: LastRecords,
    *,
    now_ms: int,
    delete_retention_ms: int,
) -> PlainRewriter:
    return PlainRewriter(offsets, transactions, last_records, now_ms=now_ms, delete_retention_ms=delete_retention_ms)


def _emptied(header: BatchHeader) -> bytearray:
    """The batch without records, which keeps a producer's sequence number or epoch."""
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT)
    return _batch(header._replace(attributes=attributes, base_timestamp_ms=NO_TIMESTAMP, record_count=0), b"")


def _batch(header: BatchHeader, records: ByteBuffer) -> bytearray:
    out = bytearray(HEADER_SIZE)
    out += records
    HEADER.pack_into(out, 0, *header._replace(length=len(out) - LENGTH_PREFIX_SIZE))
    BatchView(out).refresh_crc()
    return out


def _write_moved(out: bytearray, payload: ByteBuffer, record: _Seen, base_timestamp_ms: int, horizon_ms: int) -> None:
    """Writes a record with its timestamp relative to another base."""
    _, at = read_varint(payload, record.begin)
    timestamp_delta, rest = read_varlong(payload, at + 1)
    delta = base_timestamp_ms + timestamp_delta - horizon_ms
    write_varint(out, 1 + size_of_varint(delta) + record.end - rest)
    out.append(payload[at])
    write_varlong(out, delta)
    out += payload[rest : record.end]


class _Rests:
    """Lets other threads have the GIL from time to time."""

    __slots__ = ("_since_s",)

    def __init__(self) -> None:
        self._since_s = time.perf_counter()

    def rest_if_due(self) -> None:
        if time.perf_counter() - self._since_s > _WORK_S:
            time.sleep(_REST_S)
            self._since_s = time.perf_counter()
