"""Errors of a log. Each has the error code that a client gets.

Errors about a client's records say what is wrong with them; errors about files name the file and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from ottla.base.error_codes import ErrorCode


class LogError(Exception):
    """Something that the log refuses or cannot do."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR
    tells_log_start: ClassVar[bool] = True
    """Whether a producer that gets this error also gets the log start offset, as in Kafka."""


class LogOffsetOutOfRangeError(LogError):
    """The requested offset does not exist, or no longer exists."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class InvalidReadSizeError(LogError):
    """A negative number of bytes was requested. Kafka, too, uses its code for unexpected errors here."""


class CorruptRecordsError(LogError):
    """Corrupt bytes, received or on the disk: a CRC, a length, a magic. Clients send them again. `position` is the
    position in a log file, if there is one."""

    code = ErrorCode.CORRUPT_MESSAGE
    tells_log_start = False

    def __init__(self, reason: str, *, position: int | None = None) -> None:
        super().__init__(reason)
        self.position = position


class RecordFault(NamedTuple):
    """What is wrong with one record of a batch (KIP-467)."""

    record_index: int
    reason: str


class InvalidRecordsError(LogError):
    """Records that are not allowed here, or that do not match their batch although its CRC is right: sending them again
    cannot help. `faults` lists the records, if only some are affected."""

    code = ErrorCode.INVALID_RECORD

    def __init__(self, reason: str, *, faults: Sequence[RecordFault] = ()) -> None:
        super().__init__(reason)
        self.faults = faults


class NotOneBatchError(InvalidRecordsError):
    """Anything but one complete batch of the current format: refused before the log is involved."""

    tells_log_start = False


class LargeBatchError(LogError):
    """A batch that takes too long to validate in this thread: use `validation.prepare` in another."""


class LogRecordTooLargeError(LogError):
    """A batch that exceeds `max.message.bytes`."""

    code = ErrorCode.MESSAGE_TOO_LARGE
    tells_log_start = False


class RecordListTooLargeError(LogError):
    """Batches that do not fit into a segment."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE
    tells_log_start = False


class InvalidTimestampError(InvalidRecordsError):
    """Timestamps that differ from the current time by more than the topic allows."""

    code = ErrorCode.INVALID_TIMESTAMP


class OutOfOrderSequenceError(LogError):
    """A producer's sequence number leaves a gap."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class ReusedSequenceError(LogError):
    """New records with the sequence numbers of an earlier transaction. Clients abort their transaction, and take a new
    epoch."""

    code = ErrorCode.UNKNOWN_PRODUCER_ID


class InvalidProducerEpochError(LogError):
    """A producer was replaced by a newer instance."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTransactionStateError(LogError):
    """Records do not match the state of their transaction."""

    code = ErrorCode.INVALID_TXN_STATE


class CoordinatorFencedError(LogError):
    """A marker from a transaction coordinator that was replaced by a newer one."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class UnexpectedOffsetError(LogError):
    """A follower's records do not continue its log."""

    def __init__(self, reason: str, *, first_offset: int, last_offset: int) -> None:
        super().__init__(reason)
        self.first_offset = first_offset
        self.last_offset = last_offset


class FileError(LogError):
    """A file with invalid content."""

    code = ErrorCode.KAFKA_STORAGE_ERROR
    tells_log_start = False

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class CorruptIndexError(FileError):
    """An index that contradicts itself or its segment; it can be rebuilt."""


class CorruptSnapshotError(FileError):
    """A producer snapshot that cannot be read; an older one, or the log, can replace it."""


class CorruptCheckpointError(FileError):
    """A checkpoint file that cannot be read. `problem` is the reason, without what to do about it."""

    def __init__(self, path: Path, problem: str, remedy: str) -> None:
        super().__init__(path, f"{problem}; {remedy}")
        self.problem = problem


class DirectoryLockedError(FileError):
    """Another process uses the log directory."""


class LogDirectoryError(FileError):
    """A log directory failed; its replicas are offline until it is repaired."""
