"""Validates the records of a producer's batch before they are appended: decompresses, walks and checks them.

`ottla.records.record_walk` says what Kafka checks of every record. All faulty records of a batch are listed (KIP-467),
up to a limit, because a batch of a few kilobytes can have millions of them.

If the caller asks for it (`bounded`), a batch that takes too long for the loop raises `LargeBatchError`, before much
was done: then the caller validates the batch in a thread. The time depends on the size of the decompressed records, and
on their number if Python has to look at each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NoReturn

from ottla.base.disk import Buffer
from ottla.log.config import LogConfig
from ottla.log.errors import InvalidRecordsError, InvalidTimestampError, LargeBatchError, RecordFault
from ottla.records import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    BatchHeader,
    Compression,
    RecordError,
    TimestampType,
    decompress,
)
from ottla.records.errors import DecompressionLimitError
from ottla.records.layout import HEADER_SIZE, MINIMUM_RECORD_SIZE, NO_TIMESTAMP, TIMESTAMP_TYPE_BIT
from ottla.records.record_facts import RecordFacts
from ottla.records.record_walk import LOAD_AT_RECORDS, iter_marks, walk, walker

FAULTS_MAX: Final = 10_000
"""The maximum number of faulty records that are listed per batch."""
LOOP_RECORDS_MAX: Final = 10_000
"""The maximum number of records that Python walks at once: a few milliseconds."""
_LOOP_BYTES_MIN: Final = 2**20
_LOOP_BYTES_MAX: Final = 8 * 2**20
_LOOP_RATIO: Final = 32
"""The limit for decompressing at once: 1 MiB plus 32 times the compressed size, at most 8 MiB. Ordinary data stays
below it; small requests that expand to a lot do not hold up other clients."""
_SHOWN: Final = 3
"""The number of faults quoted in the message for the whole batch."""


def decompressed(codec: int, records: Buffer, *, bounded: bool) -> Buffer:
    """Decompresses records. Raises `RecordError`, or `LargeBatchError` if there is too much."""
    if not codec:
        return records
    if not bounded:
        return decompress(Compression(codec), records, max_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES)
    allowed = min(_LOOP_BYTES_MIN + _LOOP_RATIO * len(records), _LOOP_BYTES_MAX)
    try:
        return decompress(Compression(codec), records, max_bytes=allowed)
    except DecompressionLimitError as error:
        raise LargeBatchError(str(error)) from error


def is_large(count: int) -> bool:
    """Whether so many records take too long to walk, while no kernel is loaded."""
    return count > LOOP_RECORDS_MAX and walker.kernel is None


def keeps_rules(facts: RecordFacts, config: LogConfig, now_ms: int) -> bool:
    """Whether records with these facts may be appended."""
    newest_ms, oldest_ms, keyless = facts
    if keyless and config.compacts:
        return False
    if config.timestamp_type:  # the broker's clock overwrites them
        return True
    return newest_ms - now_ms <= config.timestamp_after_max_ms and now_ms - oldest_ms <= config.timestamp_before_max_ms


def validate_records(
    data: Buffer, position: int, header: BatchHeader, *, config: LogConfig, now_ms: int, bounded: bool
) -> tuple[Buffer, int]:
    """The decompressed records of the batch at that position, and their newest timestamp. Raises the error that the
    producer gets, or `LargeBatchError`."""
    packed = memoryview(data)[position + HEADER_SIZE : position + header.size_in_bytes]
    count = header.record_count
    try:
        records = decompressed(header.compression, packed, bounded=bounded)
    except RecordError as error:
        raise InvalidRecordsError(str(error)) from error
    if count * MINIMUM_RECORD_SIZE > len(records):  # before any work is done for that many
        raise InvalidRecordsError(f"its header says {count} records, which do not fit into {len(records)} bytes")
    if bounded and is_large(count):
        raise LargeBatchError(f"{count} records")
    if count >= LOAD_AT_RECORDS:  # in a thread: Python would block the loop for seconds, on and off
        walker.wait()
    facts = walk(records, 0, count, header.base_timestamp_ms)
    if facts is None or not keeps_rules(facts, config, now_ms) or _pretends_to_be_stamped(header, config):
        if bounded and count > LOOP_RECORDS_MAX:  # Python finds the error message
            raise LargeBatchError(f"{count} records with faults")
        _refuse(records, header, config, now_ms, is_sound=facts is not None)
    return records, facts[0]


def _pretends_to_be_stamped(header: BatchHeader, config: LogConfig) -> bool:
    """Whether the producer claims that the broker set the timestamps, where that cannot be ignored. Kafka treats it as
    an error, and the timestamps as the producer's own, if the topic keeps those."""
    is_own_time_kept = config.timestamp_type is TimestampType.CREATE_TIME and header.max_timestamp_ms != NO_TIMESTAMP
    return bool(header.attributes & TIMESTAMP_TYPE_BIT) and not is_own_time_kept


def _refuse(records: Buffer, header: BatchHeader, config: LogConfig, now_ms: int, *, is_sound: bool) -> NoReturn:
    """Raises the error for faulty records; for well-formed ones, only if they break the topic's rules."""
    faults: list[RecordFault] = []
    untimely = 0
    try:
        for fault, is_untimely in _faults(records, header, config, now_ms):
            if len(faults) < FAULTS_MAX:
                faults.append(fault)
                untimely += is_untimely
            elif is_sound:
                break
    except RecordError as error:
        raise InvalidRecordsError(str(error)) from error
    if not faults:
        raise RuntimeError(f"the walks over records contradict each other about a batch: {header}")
    count = len(faults)
    number = f"{count} or more" if count == FAULTS_MAX else str(count)
    quoted = "; ".join(fault.reason for fault in faults[:_SHOWN])
    more = f"; and {count - _SHOWN} more" if count > _SHOWN else ""
    reason = f"{number} of {header.record_count} records are refused: {quoted}{more}"
    raise (InvalidTimestampError if untimely else InvalidRecordsError)(reason, faults=faults)


def _faults(records: Buffer, header: BatchHeader, config: LogConfig, now_ms: int) -> Iterator[tuple[RecordFault, bool]]:
    """Yields each faulty record, and whether its timestamp is at fault. A missing key comes first, as in Kafka."""
    after_max_ms, before_max_ms = config.timestamp_after_max_ms, config.timestamp_before_max_ms
    checks_time = config.timestamp_type is TimestampType.CREATE_TIME
    is_stamped = _pretends_to_be_stamped(header, config)
    for index, (timestamp_ms, has_key) in enumerate(iter_marks(records, header.record_count, header.base_timestamp_ms)):
        if config.compacts and not has_key:
            yield RecordFault(index, f"record {index} has no key, but the topic is compacted"), False
        elif is_stamped:
            yield RecordFault(index, f"record {index} has the timestamp type LogAppendTime; send CreateTime"), True
        elif checks_time and timestamp_ms != NO_TIMESTAMP:
            age_ms = now_ms - timestamp_ms
            if age_ms > before_max_ms:
                reason = f"is {age_ms} ms in the past; message.timestamp.before.max.ms allows {before_max_ms}"
            elif -age_ms > after_max_ms:
                reason = f"is {-age_ms} ms in the future; message.timestamp.after.max.ms allows {after_max_ms}"
            else:
                continue
            yield RecordFault(index, f"timestamp {timestamp_ms} of record {index} {reason}"), True
