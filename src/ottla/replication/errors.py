"""Errors of replicas."""

from __future__ import annotations

from ottla.base.error_codes import ErrorCode


class ReplicationError(Exception):
    """An operation that this replica cannot or must not do; `code` is the error code for the client."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code

    @property
    def tells_log_start(self) -> bool:
        """See `LogError`: True if the log was available for writing."""
        return self.code is ErrorCode.NOT_ENOUGH_REPLICAS
