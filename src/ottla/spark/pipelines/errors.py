"""Errors for authors of pipelines."""

from __future__ import annotations

from ottla.base.errors import OttlaError


class PipelineError(OttlaError):
    """A pipeline cannot be run; the message is a sentence or two."""


class QueryFailedError(PipelineError):
    """A query failed: a short cause, and the full message of Spark."""

    def __init__(self, message: str, trace: str) -> None:
        super().__init__(message)
        self.trace = trace
