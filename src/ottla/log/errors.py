"""What can go wrong with a log. Each carries the error code that a client is told.

Those about a client's records say what is wrong with them; those about files name the file and what to do.
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
    """Whether a producer that gets this error is told where the log starts, as in Kafka."""


class LogOffsetOutOfRangeError(LogError):
    """Asked for an offset that the log does not have, or no longer has."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class InvalidReadSizeError(LogError):
    """Asked for a negative number of bytes. Kafka answers this with its code for unexpected errors, too."""


class CorruptRecordsError(LogError):
    """Bytes that are broken, on their way or on the disk: a CRC, a length, a magic. Clients send them again. `position`
    is where in a log file, if it is one."""

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
    """Records that are not allowed here, or are not what their batch says under a CRC that is right: sending them again
    cannot help. `faults` tells which records, where it is about some of them."""

    code = ErrorCode.INVALID_RECORD

    def __init__(self, reason: str, *, faults: Sequence[RecordFault] = ()) -> None:
        super().__init__(reason)
        self.faults = faults


class NotOneBatchError(InvalidRecordsError):
    """Anything but one whole batch of the current format: it is refused before the log is looked at."""

    tells_log_start = False


class LargeBatchError(LogError):
    """A batch that takes too long to validate where it is: `validation.prepare` does it in a thread."""


class LogRecordTooLargeError(LogError):
    """A batch beyond `max.message.bytes`."""

    code = ErrorCode.MESSAGE_TOO_LARGE
    tells_log_start = False


class RecordListTooLargeError(LogError):
    """Batches that do not fit a segment."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE
    tells_log_start = False


class InvalidTimestampError(InvalidRecordsError):
    """Timestamps further from now than the topic allows."""

    code = ErrorCode.INVALID_TIMESTAMP


class OutOfOrderSequenceError(LogError):
    """A producer's sequence number that leaves a gap."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpochError(LogError):
    """A producer that a newer incarnation has replaced."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTransactionStateError(LogError):
    """Records that do not fit the state of their transaction."""

    code = ErrorCode.INVALID_TXN_STATE


class CoordinatorFencedError(LogError):
    """A marker from a transaction coordinator that a newer one has replaced."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class UnexpectedOffsetError(LogError):
    """A follower's records that do not continue its log."""

    def __init__(self, reason: str, *, first_offset: int, last_offset: int) -> None:
        super().__init__(reason)
        self.first_offset = first_offset
        self.last_offset = last_offset


class FileError(LogError):
    """A file whose content is not what it must be."""

    code = ErrorCode.KAFKA_STORAGE_ERROR
    tells_log_start = False

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class CorruptIndexError(FileError):
    """An index that contradicts itself or its segment; it can be rebuilt."""


class CorruptSnapshotError(FileError):
    """A snapshot of producers that cannot be read; an older one, or the log, can stand in."""


class CorruptCheckpointError(FileError):
    """A checkpoint file that cannot be read. `problem` says why, without what to do about it."""

    def __init__(self, path: Path, problem: str, remedy: str) -> None:
        super().__init__(path, f"{problem}; {remedy}")
        self.problem = problem


class DirectoryLockedError(FileError):
    """A log directory that another process uses."""


class LogDirectoryError(FileError):
    """A log directory that failed; its replicas are offline until it is repaired."""
