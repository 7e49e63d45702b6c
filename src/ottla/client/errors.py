"""The exceptions of the client. All are `OttlaError`s: a `ClientError`, or a `BrokerConnectionError` if a broker could
not be reached or did not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base import config
from ottla.base.error_codes import ErrorCode
from ottla.base.errors import OttlaError
from ottla.net.client_connection import (
    BrokerConnectionError,
    BrokerUnreachableError,
    ConnectionLostError,
    RequestTimeoutError,
    UnsupportedApiError,
)

if TYPE_CHECKING:
    from ottla.client.produce.table_delivery import TableDelivery

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "AuthenticationError",
    "BrokerConnectionError",
    "BrokerUnreachableError",
    "BufferFullError",
    "CallTimeoutError",
    "ClientError",
    "ClosedError",
    "CommitFailedError",
    "CompiledCodeError",
    "ConfigError",
    "ConnectionLostError",
    "CorruptRecordError",
    "DeliveryTimeoutError",
    "FencedError",
    "ForkedError",
    "LogTruncatedError",
    "MemberFencedError",
    "MissingPackageError",
    "NoBrokerError",
    "NoOffsetError",
    "OffsetOutOfRangeError",
    "OttlaError",
    "PartlySentError",
    "RebalanceFailedError",
    "RebalanceInProgressError",
    "RecordTooLargeError",
    "RefusedError",
    "RequestTimeoutError",
    "SerializationError",
    "TableLoadingError",
    "TableTooLargeError",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionError",
    "TransactionFatalError",
    "TransactionStateError",
    "UnknownPartitionError",
    "UnknownTopicError",
    "UnsupportedApiError",
    "WakeupError",
    "WrongLoopError",
    "raise_if_refused",
]


class ClientError(OttlaError):
    """The base class of errors about a request or a call."""


# How a client is set up and used.


class ConfigError(config.ConfigError, ClientError):
    """An unknown config, or an invalid value. Also a `ValueError`."""


class ArgumentError(ClientError, ValueError):
    """An argument has an invalid value."""


class ArgumentTypeError(ClientError, TypeError):
    """An argument has the wrong type; the message names the parameter."""


class WrongLoopError(ClientError, RuntimeError):
    """A client was used in an event loop or a thread where it cannot work."""


class CallTimeoutError(ClientError, TimeoutError):
    """A call did not finish within its timeout."""


class ClosedError(ClientError):
    """A client was used after it was closed."""


class ForkedError(ClientError):
    """A client that was created before `os.fork` was used in the child, which has neither its thread nor its
    connections."""


class MissingPackageError(ClientError, ImportError):
    """A feature needs a package that only an extra of Ottla installs."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(f"{what} needs {package}: install it with `pip install 'ottla[{extra}]'`")


class CompiledCodeError(ClientError, RuntimeError):
    """The compiled code for Arrow columns cannot be loaded."""

    def __init__(self, what: str, reason: object) -> None:
        hint = "if numba has no writable cache directory, set NUMBA_CACHE_DIR to one"
        super().__init__(f"{what} needs compiled code, which could not be loaded ({reason}); {hint}")


# What brokers say.


class NoBrokerError(BrokerUnreachableError):
    """No broker can be reached; the message lists the reason for each address."""


class AuthenticationError(ClientError):
    """Authentication with a broker failed."""


class RefusedError(ClientError):
    """A broker answered with an error: its code, the subject, and the message."""

    def __init__(self, code: int, subject: str, message: str | None = None) -> None:
        self.code = ErrorCode.of(code)
        self.subject = subject
        self.message = message or self.code.description
        super().__init__(f"{subject}: {self.message.rstrip('.')} ({self.code.name})")

    @property
    def retriable(self) -> bool:
        return self.code.retriable


class UnknownTopicError(ClientError):
    """The topic does not exist."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(f"topic {topic!r} does not exist")


class UnknownPartitionError(ClientError):
    """The topic exists, but not this partition."""


# Producing.


class SerializationError(ClientError):
    """A serializer does not accept a key or value, or a deserializer cannot read the bytes."""

    def __init__(self, topic: str, part: str, reason: str) -> None:
        self.topic = topic
        self.part = part
        """The part of the record: "key" or "value"."""
        self.reason = reason
        self.index: int | None = None
        """The index of the record among those deserialized together."""
        super().__init__(f"the {part} of a record of topic {topic!r}: {reason}")


class RecordTooLargeError(ClientError):
    """A record is larger than the producer (max.request.size) or the broker (message.max.bytes) allows."""


class PartlySentError(ClientError):
    """`send_batch` failed after some rows were sent; `__cause__` is the error."""

    def __init__(self, sent: TableDelivery, reason: Exception) -> None:
        self.sent = sent
        """The delivery of the rows that were sent: the first ones, unless the table has a partition column."""
        super().__init__(f"{reason}; {len(sent)} rows were sent before, wait for them with `error.sent.result()`")


class BufferFullError(ClientError, TimeoutError):
    """The producer's buffer (buffer.memory) stayed full for max.block.ms."""


class DeliveryTimeoutError(ClientError, TimeoutError):
    """A record was not acknowledged within delivery.timeout.ms; it is not known whether a broker has it."""


# Transactions.


class TransactionError(ClientError):
    """The base class of errors about transactions."""


class TransactionStateError(TransactionError, RuntimeError):
    """A call that is not allowed now, such as `send` without `begin_transaction`. Nothing was changed."""


class TransactionAbortableError(TransactionError):
    """The transaction cannot be committed: abort it. Then the same producer can begin another one, with the same
    records. `__cause__` is the reason, if there is more to say."""


class TransactionAbortedError(TransactionError):
    """The record was not sent, because its transaction was aborted or failed before."""


class TransactionFatalError(TransactionError):
    """The producer cannot be used for transactions any more: close it and create another one."""


class FencedError(TransactionFatalError):
    """Another producer with the same transactional.id was initialised, or the transaction took longer than
    transaction.timeout.ms and the coordinator aborted it."""


# Consuming.


class OffsetOutOfRangeError(ClientError):
    """The offset does not exist in the partition."""


class WakeupError(ClientError):
    """A poll was interrupted by `wakeup`. The consumer can be used further."""


class TopicRecreatedError(OffsetOutOfRangeError):
    """A topic was deleted and created again while it was being read, and auto.offset.reset is none."""


class NoOffsetError(ClientError):
    """A partition has no committed offset to start at, and auto.offset.reset is none."""


class CorruptRecordError(ClientError):
    """A partition contains corrupt data. `seek` past it to continue."""


class LogTruncatedError(ClientError):
    """The log was truncated before the consumer's position, and auto.offset.reset is none."""


class CommitFailedError(ClientError):
    """Offsets could not be committed, because the partitions are now assigned to another member."""


class RebalanceInProgressError(CommitFailedError):
    """Offsets were not committed, because the group is rebalancing: poll, then commit what is still assigned."""


class RebalanceFailedError(ClientError):
    """A consumer with group.protocol=zookeeper could not get its partitions, usually because others still own them; the
    next poll tries again."""


class MemberFencedError(ClientError):
    """Another consumer with the same group.instance.id joined the group."""


# Table views.


class TableLoadingError(ClientError):
    """A `TableView` was read before it had the whole topic for the first time."""


class TableTooLargeError(ClientError):
    """A `TableView` needs more memory than its `max_bytes`."""


def raise_if_refused(code: int, subject: str, message: str | None = None) -> None:
    if code:
        raise RefusedError(code, subject, message)
