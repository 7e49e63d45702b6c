"""What a replica refuses."""

from __future__ import annotations

from ottla.base.error_codes import ErrorCode


class ReplicationError(Exception):
    """Something this replica cannot do, or may not; `code` is what a client is told."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code

    @property
    def tells_log_start(self) -> bool:
        """See `LogError`: whether the log was there, and could have been written to."""
        return self.code is ErrorCode.NOT_ENOUGH_REPLICAS
