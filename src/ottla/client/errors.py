"""What a client raises, beside the `BrokerConnectionError`s of `ottla.net.client_connection`."""

from __future__ import annotations

from ottla.base.error_codes import ErrorCode


class ClientError(Exception):
    """Something that was asked of the cluster and is not done."""


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
        super().__init__(f"there is no topic {topic!r}")


class OffsetOutOfRangeError(ClientError):
    """A consumer asked for an offset that the partition does not have."""


class SerializationError(ClientError):
    """A key or value that its serializer does not take, or bytes that its deserializer cannot read."""

    def __init__(self, topic: str, part: str, reason: str) -> None:
        self.topic = topic
        self.part = part
        """Which of the record's two: "key" or "value"."""
        self.reason = reason
        super().__init__(f"the {part} of a record of topic {topic!r}: {reason}")


class ClosedError(ClientError):
    """A client that was used after it was closed."""


def raise_if_refused(code: int, subject: str, message: str | None = None) -> None:
    if code:
        raise RefusedError(code, subject, message)
