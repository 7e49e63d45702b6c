"""What a coordinator refuses."""

from __future__ import annotations

from ottla.base.error_codes import ErrorCode


class CoordinatorError(Exception):
    """A request that is refused: Kafka's code, and a sentence for people."""

    def __init__(self, code: ErrorCode, reason: str | None = None) -> None:
        super().__init__(reason or code.description)
        self.code = code
