"""Reads the files of a log (segments, indexes, snapshots, checkpoints) into lines of facts.

Files are only read. An inconsistency is reported as a `problem` among the lines, and reading continues if possible; an
error that makes the rest of a file unreadable is a problem too, and the last line of that file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ottla.base.ids import format_uuid
from ottla.log import names
from ottla.log.checkpoints import LeaderEpochCheckpoint, MetaProperties, OffsetCheckpoint
from ottla.log.errors import FileError
from ottla.log.local_disk import LocalDisk
from ottla.log.offset_index import OffsetIndex
from ottla.log.partition_metadata import PartitionMetadata
from ottla.log.producer_snapshot import decode_snapshot
from ottla.log.segment_scan import check_crc, header_at
from ottla.log.time_index import TimeIndex
from ottla.log.transaction_index import TransactionIndex
from ottla.records import (
    BatchView,
    MessageView,
    Record,
    RecordError,
    decode_batch,
    read_control_key,
    read_coordinator_epoch,
)
from ottla.records.batch import BatchHeader
from ottla.records.layout import MAGIC_V2, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP

PROBLEM: Final = "problem"


@dataclass(frozen=True, slots=True)
class Line:
    """One fact from a file: its kind, and its values in display order."""

    kind: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """How much detail to read."""

    records: bool = False
    values: bool = False


class UnknownFileError(Exception):
    """A file that does not belong to a log."""


def files_in(path: Path) -> list[Path]:
    """The file itself, or all files in a directory that can be dumped."""
    if not path.exists():
        raise FileNotFoundError(2, "no such file or directory", str(path))
    if not path.is_dir():
        return [path]
    files = sorted(one for one in path.iterdir() if one.is_file() and _reader_for(one) is not None)
    if not files:
        raise UnknownFileError(f"{path} contains no log files")
    return files


def dump_file(path: Path, options: DumpOptions) -> Iterator[Line]:
    """The contents of the file. Raises `UnknownFileError` for a file that does not belong to a log."""
    reader = _reader_for(path)
    if reader is None:
        known = "segments (.log), .index, .timeindex, .txnindex, .snapshot, checkpoints, partition.metadata"
        raise UnknownFileError(f"{str(path)!r} is not a log file; expected {known} or meta.properties")
    if not path.is_file():
        raise FileNotFoundError(2, "no such file", str(path))
    try:
        yield from reader(path, options)
    except (FileError, RecordError) as error:
        yield Line(PROBLEM, {"reason": error.reason, **_where(error)})


def _where(error: FileError | RecordError) -> dict[str, Any]:
    return {"position": error.position} if isinstance(error, RecordError) and error.position is not None else {}


_Reader = Callable[[Path, DumpOptions], Iterator[Line]]


def _reader_for(path: Path) -> _Reader | None:
    segment_file = names.parse_segment_file(path.name)
    if segment_file is not None:
        return _SEGMENT_READERS.get(segment_file.suffix)
    return _READERS.get(path.name)


# Segments.


def _segment(path: Path, options: DumpOptions) -> Iterator[Line]:
    disk = LocalDisk()
    data = disk.map(path)
    position = count = 0
    next_offset = _base_offset(path)
    while position < len(data):
        header = header_at(data, position, len(data) - position, position)
        batch = data[position : position + header.size_in_bytes]
        yield Line("batch", _batch_facts(header, position))
        if header.base_offset < next_offset and header.magic == MAGIC_V2:
            reason = f"offset {header.base_offset} is out of order: expected {next_offset} or later"
            yield Line(PROBLEM, {"reason": reason, "position": position})
        try:
            check_crc(header, batch, position)
            if options.records:
                yield from _records(header, data, position, options)
        except RecordError as error:
            yield Line(PROBLEM, {"reason": error.reason, **_where(error)})
        next_offset = header.next_offset
        position += header.size_in_bytes
        count += 1
    yield Line("end", {"batches": count, "bytes": position, "next_offset": next_offset})


def _batch_facts(header: BatchHeader, position: int) -> dict[str, Any]:
    # For an old message that wraps others, only the last offset is known without decompressing it.
    is_wrapper = header.record_count < 0
    facts: dict[str, Any] = {
        "first_offset": None if is_wrapper else header.base_offset,
        "last_offset": header.last_offset,
        "records": None if is_wrapper else header.record_count,
        "position": position,
        "bytes": header.size_in_bytes,
        "compression": header.compression.name.lower(),
        "time": _time_text(header.max_timestamp_ms),
        "time_of": header.timestamp_type.name.lower(),
        "leader_epoch": header.leader_epoch,
        "crc": f"{header.crc:#010x}",
        "magic": header.magic,
    }
    if header.producer_id != NO_PRODUCER_ID:
        facts |= {"producer": header.producer_id, "producer_epoch": header.producer_epoch}
    if header.base_sequence != NO_SEQUENCE:
        facts |= {"first_sequence": header.base_sequence, "last_sequence": header.last_sequence}
    facts |= {"transactional": True} if header.is_transactional else {}
    facts |= {"control": True} if header.is_control else {}
    if header.delete_horizon_ms is not None:
        facts["delete_horizon"] = _time_text(header.delete_horizon_ms)
    return facts


def _records(header: BatchHeader, data: memoryview, position: int, options: DumpOptions) -> Iterator[Line]:
    if header.magic != MAGIC_V2:
        records = MessageView(data, position).records()
    else:
        records = decode_batch(BatchView(data, position), verify_crc=False)
    for record in records:
        yield Line("record", _control_facts(record) if header.is_control else _record_facts(record, options))


def _record_facts(record: Record, options: DumpOptions) -> dict[str, Any]:
    facts: dict[str, Any] = {"offset": record.offset, "time": _time_text(record.timestamp_ms)}
    if options.values:
        headers = {name: _text(value) for name, value in record.headers}
        facts |= {"key": _text(record.key), "value": _text(record.value), "headers": headers}
    else:
        facts |= {"key_bytes": _length(record.key), "value_bytes": _length(record.value)}
        facts["headers"] = len(record.headers)
    return facts


def _control_facts(record: Record) -> dict[str, Any]:
    key = read_control_key(record.key)
    facts: dict[str, Any] = {"offset": record.offset, "time": _time_text(record.timestamp_ms)}
    facts["marker"] = key.known_type.name.lower() if key.known_type is not None else key.type
    if facts["marker"] in ("commit", "abort"):
        facts["coordinator_epoch"] = read_coordinator_epoch(record.value)
    return facts


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _length(data: bytes | None) -> int | None:
    return None if data is None else len(data)


def _time_text(timestamp_ms: int) -> str | None:
    if timestamp_ms == NO_TIMESTAMP:
        return None
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)  # outside the range of datetime


def _base_offset(path: Path) -> int:
    segment_file = names.parse_segment_file(path.name)
    return 0 if segment_file is None else segment_file.base_offset


# Indexes.


def _entries(path: Path, index: OffsetIndex | TimeIndex) -> Iterator[tuple[int, ...]]:
    data = LocalDisk().map(path)
    if len(data) % index.ENTRY.size:
        reason = f"its size of {len(data)} bytes is not a multiple of {index.ENTRY.size}"
        raise FileError(path, reason)
    return struct.Struct(index.ENTRY.format).iter_unpack(data[: index.entry_count * index.ENTRY.size])


def _offset_index(path: Path, _: DumpOptions) -> Iterator[Line]:
    base_offset = _base_offset(path)
    log = path.with_name(path.name.replace(names.OFFSET_INDEX, names.LOG))
    data = LocalDisk().map(log) if log.is_file() else None
    previous = (-1, -1)
    for relative, position in _entries(path, OffsetIndex(LocalDisk(), path, base_offset, 2**31)):
        offset = base_offset + relative
        yield Line("entry", {"offset": offset, "position": position})
        if offset <= previous[0] or position <= previous[1]:
            yield Line(PROBLEM, {"reason": f"entry ({offset}, {position}) does not come after entry {previous}"})
        elif data is not None and (reason := _misplaced(data, offset, position)):
            yield Line(PROBLEM, {"reason": reason})
        previous = offset, position


def _misplaced(data: memoryview, offset: int, position: int) -> str | None:
    """What is wrong with an index entry: the position must be that of the batch with this last offset."""
    if position >= len(data):
        return f"position {position} is beyond the end of the log at {len(data)}"
    try:
        header = header_at(data, position, len(data) - position, position)
    except RecordError as error:
        return f"no batch starts at position {position}: {error.reason}"
    if header.last_offset != offset:
        return f"the batch at position {position} ends at offset {header.last_offset}, not {offset}"
    return None


def _time_index(path: Path, _: DumpOptions) -> Iterator[Line]:
    base_offset = _base_offset(path)
    previous_ms, previous_offset = NO_TIMESTAMP, base_offset
    for timestamp_ms, relative in _entries(path, TimeIndex(LocalDisk(), path, base_offset, 2**31)):
        offset = base_offset + relative
        yield Line("entry", {"time": _time_text(timestamp_ms), "timestamp": timestamp_ms, "offset": offset})
        if timestamp_ms < previous_ms or offset < previous_offset:
            reason = f"timestamp {timestamp_ms} at offset {offset} follows {previous_ms} at {previous_offset}"
            yield Line(PROBLEM, {"reason": reason})
        previous_ms, previous_offset = timestamp_ms, offset


def _transaction_index(path: Path, _: DumpOptions) -> Iterator[Line]:
    index = TransactionIndex(LocalDisk(), path, _base_offset(path))
    for transaction in index.all():
        yield Line(
            "aborted",
            {
                "producer": transaction.producer_id,
                "first_offset": transaction.first_offset,
                "last_offset": transaction.last_offset,
                "last_stable_offset": transaction.last_stable_offset,
            },
        )
    index.check()


# Snapshots and checkpoints.


def _snapshot(path: Path, _: DumpOptions) -> Iterator[Line]:
    for row in decode_snapshot(path, path.read_bytes()):
        yield Line("producer", row._asdict())


def _offset_checkpoint(path: Path, _: DumpOptions) -> Iterator[Line]:
    for (topic, partition), offset in OffsetCheckpoint(LocalDisk(), path).read().items():
        yield Line("partition", {"topic": topic, "partition": partition, "offset": offset})


def _leader_epochs(path: Path, _: DumpOptions) -> Iterator[Line]:
    for entry in LeaderEpochCheckpoint(LocalDisk(), path).read():
        yield Line("epoch", {"epoch": entry.epoch, "start_offset": entry.start_offset})


def _partition_metadata(path: Path, _: DumpOptions) -> Iterator[Line]:
    metadata = PartitionMetadata.load(LocalDisk(), path.parent)
    if metadata.topic_id is not None:
        yield Line("topic", {"id": format_uuid(metadata.topic_id), "version": metadata.version})


def _meta_properties(path: Path, _: DumpOptions) -> Iterator[Line]:
    found = MetaProperties.read(LocalDisk(), path)
    if found is not None:
        directory_id = None if found.directory_id is None else format_uuid(found.directory_id)
        yield Line(
            "directory",
            {
                "broker": found.broker_id,
                "cluster": found.cluster_id,
                "directory": directory_id,
                "version": found.version,
            },
        )


_SEGMENT_READERS: Final[dict[str, _Reader]] = {
    names.LOG: _segment,
    names.OFFSET_INDEX: _offset_index,
    names.TIME_INDEX: _time_index,
    names.TRANSACTION_INDEX: _transaction_index,
    names.PRODUCER_SNAPSHOT: _snapshot,
}
_READERS: Final[dict[str, _Reader]] = {
    names.LEADER_EPOCHS: _leader_epochs,
    names.PARTITION_METADATA: _partition_metadata,
    names.META_PROPERTIES: _meta_properties,
    names.RECOVERY_POINTS: _offset_checkpoint,
    names.HIGH_WATERMARKS: _offset_checkpoint,
    names.LOG_START_OFFSETS: _offset_checkpoint,
    names.CLEANER_OFFSETS: _offset_checkpoint,
}
