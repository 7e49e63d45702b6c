"""A log to be compacted, and the plain words for what compaction does to it: dicts and loops, one record at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla.base.disk import Disk
from ottla.base.ids import TopicPartition
from ottla.log.append_origin import AppendOrigin
from ottla.log.compaction import Cleaner, CleanerOptions, fast_engine, plain_engine
from ottla.log.compaction.engine import Engine
from ottla.log.config import LogConfig
from ottla.log.loader import LoadOptions, load
from ottla.log.local_disk import LocalDisk
from ottla.log.partition_log import PartitionLog
from ottla.records import Compression, Record, TimestampType
from ottla.records.batch import BatchHeader, iter_batches
from ottla.records.control import encode_transaction_marker, read_transaction_marker
from ottla.records.plain import BatchOptions, decode_batch, encode_batch
from ottla.testing.manual_clock import ManualClock

PARTITION = TopicPartition("compacted", 0)
RETENTION_MS = 1000
Pair = tuple[bytes | None, bytes | None]
ENGINES: dict[str, Engine] = {"fast": fast_engine, "plain": plain_engine}


@dataclass(frozen=True)
class SeenBatch:
    """A batch of the log, taken apart."""

    header: BatchHeader
    records: tuple[Record, ...]
    committed: bool | None
    """Of a marker."""

    @property
    def facts(self) -> tuple[object, ...]:
        """All that is not how it is encoded."""
        header = self.header
        return (
            header.base_offset,
            header.last_offset,
            header.leader_epoch,
            header.attributes,
            header.delete_horizon_ms,
            header.max_timestamp_ms,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            self.records,
        )


@dataclass
class WrittenLog:
    """A partition's log with producers that number their records as real ones do."""

    disk: Disk
    clock: ManualClock
    log: PartitionLog
    cleaner: Cleaner
    options: CleanerOptions
    engine: str = "fast"
    sequences: dict[int, int] = field(default_factory=dict)

    @classmethod
    def make(
        cls,
        directory: Path,
        *,
        disk: Disk | None = None,
        clock: ManualClock | None = None,
        options: CleanerOptions | None = None,
        engine: str = "fast",
        **config: Any,
    ) -> WrittenLog:
        clock = clock or ManualClock()
        disk = disk or LocalDisk()
        settings = {"compacts": True, "deletes": False, "delete_retention_ms": RETENTION_MS, **config}
        log = load(disk, clock, directory / str(PARTITION), PARTITION, LogConfig(**settings), LoadOptions())
        options = options or CleanerOptions()
        written = cls(disk, clock, log, Cleaner(disk, clock, options), options, engine)
        written.cleaner = written.fresh_cleaner()
        return written

    def append(
        self,
        *pairs: Pair,
        producer_id: int = -1,
        transactional: bool = False,
        compression: Compression = Compression.NONE,
        timestamps_ms: Sequence[int] | None = None,
    ) -> int:
        """One batch; its base offset."""
        now_ms = self.clock.now_ms()
        times = timestamps_ms or [now_ms + index for index in range(len(pairs))]
        records = [Record(0, time_ms, *pair) for time_ms, pair in zip(times, pairs, strict=True)]
        sequence = -1
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + len(pairs)
        options = BatchOptions(
            compression=compression,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )
        info = self.log.append_as_leader(encode_batch(records, options), 0)
        self.log.set_high_watermark(self.log.next_offset)
        return info.first_offset

    def end_transaction(self, producer_id: int, *, committed: bool, epoch: int = 0) -> None:
        marker = encode_transaction_marker(
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=committed,
            coordinator_epoch=0,
            timestamp_ms=self.clock.now_ms(),
        )
        self.log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
        self.log.set_high_watermark(self.log.next_offset)

    def compact(self, *, roll: bool = True) -> int | None:
        """A pass, whatever its ratio; the offset it came to, or None if there was nothing to do."""
        if roll:
            self.log.roll()
        compaction = self.cleaner.choose([self.log])
        if compaction is None:
            return None
        self.cleaner.run(compaction)
        return compaction.end_offset

    def fresh_cleaner(self) -> Cleaner:
        """As after a restart."""
        return Cleaner(self.disk, self.clock, self.options, engine=engine_of(self.engine))

    def reopen(self) -> None:
        """Closes the log in order, and opens it."""
        log = self.log
        log.flush()
        log.close()
        options = LoadOptions(clean=True, recovery_point=log.next_offset, log_start_offset=log.log_start_offset)
        self.log = load(self.disk, self.clock, log.directory, log.partition, log.config, options)
        self.log.set_high_watermark(self.log.next_offset)
        self.cleaner = self.fresh_cleaner()

    def batches(self) -> list[SeenBatch]:
        """Everything in the files, every CRC and record checked."""
        return [seen for segment in self.log.segments for seen in take_apart(self.disk.read(segment.path))]

    def pairs(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """Offset, key and value of all data."""
        return [(r.offset, r.key, r.value) for b in self.batches() if not b.header.is_control for r in b.records]


def engine_of(name: str) -> Callable[[], Engine]:
    return lambda: ENGINES[name]


def take_apart(data: bytes) -> list[SeenBatch]:
    seen = []
    for view in iter_batches(data):
        header = view.header
        marker = read_transaction_marker(view) if header.is_control else None
        seen.append(SeenBatch(header, tuple(decode_batch(view)), None if marker is None else marker.committed))
    return seen


def latest_values(batches: Sequence[SeenBatch], aborted: set[int]) -> dict[bytes | None, bytes]:
    """What a reader of committed records ends up with; `aborted` are base offsets."""
    values: dict[bytes | None, bytes] = {}
    for batch in batches:
        if batch.header.is_control or batch.header.base_offset in aborted:
            continue
        for record in batch.records:
            if record.value is None:
                values.pop(record.key, None)
            else:
                values[record.key] = record.value
    return values


def find_aborted(batches: Sequence[SeenBatch]) -> set[int]:
    """Base offsets of the batches whose transaction was aborted."""
    aborted: set[int] = set()
    open_batches: dict[int, list[int]] = {}
    for batch in batches:
        header = batch.header
        if header.is_control:
            ended = open_batches.pop(header.producer_id, [])
            if batch.committed is False:
                aborted.update(ended)
        elif header.is_transactional:
            open_batches.setdefault(header.producer_id, []).append(header.base_offset)
    return aborted


def find_mapped(
    batches: Sequence[SeenBatch], first_offset: int, until_offset: int, limit: int
) -> tuple[dict[bytes | None, int], int]:
    """The last offset of each key, and how far the map came before it was full."""
    aborted = find_aborted(batches)
    offsets: dict[bytes | None, int] = {}
    for batch in batches:
        if batch.header.is_control or batch.header.base_offset in aborted:
            continue
        for record in batch.records:
            if not first_offset <= record.offset < until_offset:
                continue
            if record.key not in offsets and len(offsets) == limit:
                return offsets, record.offset
            offsets[record.key] = record.offset
    return offsets, until_offset


def compacted(
    batches: Sequence[SeenBatch],
    *,
    offsets: dict[bytes | None, int],
    mapped_until: int,
    cleaned_until: int,
    last_offsets: set[int],
    marker_only: dict[int, int],
    now_ms: int,
) -> list[tuple[object, ...]]:
    """The facts of the batches that one pass shall leave, the untouched ones from `cleaned_until` on as well."""
    aborted = find_aborted(batches)
    horizon_ms = now_ms + RETENTION_MS
    seen_of: dict[int, bool] = {}
    left = []
    for batch in batches:
        header, records = batch.header, batch.records
        if header.base_offset >= cleaned_until:
            left.append(batch.facts)
            continue
        set_horizon = False
        if header.is_control:
            empty = records and not seen_of.pop(header.producer_id, False)
            if empty and header.delete_horizon_ms is not None and header.delete_horizon_ms <= now_ms:
                records = ()
            set_horizon = bool(empty)
            retained = marker_only.get(header.producer_id) == header.producer_epoch
        else:
            retained = header.producer_id >= 0 and header.last_offset in last_offsets
            if header.is_transactional:
                seen_of[header.producer_id] = True
            if header.base_offset in aborted:
                records = ()
            else:
                horizon = header.delete_horizon_ms
                records = tuple(
                    r
                    for r in records
                    if r.offset >= mapped_until
                    or (
                        offsets.get(r.key, -1) <= r.offset
                        and (r.value is not None or horizon is None or now_ms < horizon)
                    )
                )
                set_horizon = header.last_offset < mapped_until and any(r.value is None for r in records)
        if not records and not retained:
            continue
        left.append(_rewritten(header, batch.records, records, horizon_ms if set_horizon else None))
    return left


def _rewritten(
    header: BatchHeader, before: tuple[Record, ...], records: tuple[Record, ...], horizon_ms: int | None
) -> tuple[object, ...]:
    attributes, horizon, newest_ms = header.attributes, header.delete_horizon_ms, header.max_timestamp_ms
    if not records:
        attributes, horizon = attributes & ~0x47, None
    else:
        if horizon is None and horizon_ms is not None:
            attributes, horizon = attributes | 0x40, horizon_ms
        if header.timestamp_type is TimestampType.CREATE_TIME and records != before:
            newest_ms = max(record.timestamp_ms for record in records)
    return (
        header.base_offset,
        header.last_offset,
        header.leader_epoch,
        attributes,
        horizon,
        newest_ms,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        records,
    )
