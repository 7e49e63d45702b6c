"""Errors of the controller."""

from __future__ import annotations

from ottla.base.error_codes import ErrorCode


class ControllerError(Exception):
    """A change that cannot be made: Kafka's error code and a message."""

    def __init__(self, code: ErrorCode, reason: str | None = None) -> None:
        self.code = code
        self.reason = reason or code.description
        super().__init__(self.reason)
