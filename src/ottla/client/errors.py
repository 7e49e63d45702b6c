"""What a client raises. All of it is an `OttlaError`: a `ClientError`, or a `BrokerConnectionError` where a broker
could not be asked or did not answer."""

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
    "ForkedError",
    "LogTruncatedError",
    "MemberFencedError",
    "MissingPackageError",
    "NoBrokerError",
    "NoOffsetError",
    "OffsetOutOfRangeError",
    "OttlaError",
    "PartlySentError",
    "RebalanceInProgressError",
    "RecordTooLargeError",
    "RefusedError",
    "RequestTimeoutError",
    "SerializationError",
    "UnknownPartitionError",
    "UnknownTopicError",
    "UnsupportedApiError",
    "WakeupError",
    "WrongLoopError",
    "raise_if_refused",
]


class ClientError(OttlaError):
    """Something that was asked of the cluster and is not done."""


# How a client is set up and used.


class ConfigError(config.ConfigError, ClientError):
    """A key that a client does not have, or a value that the key cannot have. Also a `ValueError`."""


class ArgumentError(ClientError, ValueError):
    """A method was called with a value that it cannot use."""


class ArgumentTypeError(ClientError, TypeError):
    """A method was called with something of the wrong type; the message names the parameter."""


class WrongLoopError(ClientError, RuntimeError):
    """A client was used in an event loop, or a thread, in which it cannot work."""


class CallTimeoutError(ClientError, TimeoutError):
    """A call was not done within the time that it was given."""


class ClosedError(ClientError):
    """A client that was used after it was closed."""


class ForkedError(ClientError):
    """A client that was made before `os.fork` and is used in the child, where its thread and connections are not."""


class MissingPackageError(ClientError, ImportError):
    """Something was asked for that needs a package which only an extra of Ottla brings."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(f"{what} needs {package}: install it with `pip install 'ottla[{extra}]'`")


class CompiledCodeError(ClientError, RuntimeError):
    """The compiled code that Arrow columns need cannot be loaded."""

    def __init__(self, what: str, reason: object) -> None:
        hint = "if numba has nowhere to keep its cache, set NUMBA_CACHE_DIR to a directory that this user can write to"
        super().__init__(f"{what} needs compiled code, which could not be loaded ({reason}); {hint}")


# What brokers say.


class NoBrokerError(BrokerUnreachableError):
    """None of the brokers can be reached: the message tells of each what happened."""


class AuthenticationError(ClientError):
    """A broker does not believe that we are who we say, or wants to know and we do not say."""


class RefusedError(ClientError):
    """A broker answered with an error: its code, what it was about, and the broker's or our own words."""

    def __init__(self, code: int, subject: str, message: str | None = None) -> None:
        self.code = ErrorCode.of(code)
        self.subject = subject
        self.message = message or self.code.description
        super().__init__(f"{subject}: {self.message.rstrip('.')} ({self.code.name})")

    @property
    def retriable(self) -> bool:
        return self.code.retriable


class UnknownTopicError(ClientError):
    """No broker knows the topic."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(f"topic {topic!r} does not exist")


class UnknownPartitionError(ClientError):
    """The topic is there, and does not have that many partitions."""


# Producing.


class SerializationError(ClientError):
    """A key or value that its serializer does not take, or bytes that the deserializer cannot read."""

    def __init__(self, topic: str, part: str, reason: str) -> None:
        self.topic = topic
        self.part = part
        """Which of the record's two: "key" or "value"."""
        self.reason = reason
        self.index: int | None = None
        """Which of the records that were deserialized together."""
        super().__init__(f"the {part} of a record of topic {topic!r}: {reason}")


class RecordTooLargeError(ClientError):
    """A record above what the producer (max.request.size) or the broker (message.max.bytes) takes."""


class PartlySentError(ClientError):
    """`send_batch` failed when some rows were on their way already; the cause says what failed."""

    def __init__(self, sent: TableDelivery, reason: Exception) -> None:
        self.sent = sent
        """The rows that were sent: without a partition of their own, the first ones."""
        super().__init__(f"{reason}; {len(sent)} rows before that were sent, wait for `error.sent.result()`")


class BufferFullError(ClientError, TimeoutError):
    """No room came free in the producer's buffer (buffer.memory) within max.block.ms."""


class DeliveryTimeoutError(ClientError, TimeoutError):
    """A record was not acknowledged within delivery.timeout.ms: whether a broker has it is not known."""


# Consuming.


class OffsetOutOfRangeError(ClientError):
    """A consumer asked for an offset that the partition does not have."""


class WakeupError(ClientError):
    """A poll was ended by `wakeup`. The consumer goes on with the next."""


class TopicRecreatedError(OffsetOutOfRangeError):
    """A topic was deleted and created again while it was read, and auto.offset.reset is none."""


class NoOffsetError(ClientError):
    """A partition has no committed offset to begin with, and auto.offset.reset is none."""


class CorruptRecordError(ClientError):
    """A partition holds bytes that are no records, or not those that were written. `seek` past them to go on."""


class LogTruncatedError(ClientError):
    """A partition lost records that were read already, and auto.offset.reset is none."""


class CommitFailedError(ClientError):
    """Offsets could not be committed, because the partitions are another member's by now."""


class RebalanceInProgressError(CommitFailedError):
    """Offsets were not committed, because the group hands out its partitions anew: poll, then commit what is still
    assigned."""


class MemberFencedError(ClientError):
    """Another member took this one's place in the group, with the same group.instance.id."""


def raise_if_refused(code: int, subject: str, message: str | None = None) -> None:
    if code:
        raise RefusedError(code, subject, message)
