"""Errors of coordinators."""

from __future__ import annotations

from ottla.base.error_codes import ErrorCode


class CoordinatorError(Exception):
    """A refused request: Kafka's error code and a message."""

    def __init__(self, code: ErrorCode, reason: str | None = None) -> None:
        super().__init__(reason or code.description)
        self.code = code


_TOLD_AS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def told_as(code: ErrorCode) -> ErrorCode:
    """The error code for clients: they know nothing of the coordinator's own partition, and must not see its errors."""
    return _TOLD_AS.get(code, code)
