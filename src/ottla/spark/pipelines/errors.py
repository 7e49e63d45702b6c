"""What is wrong with a pipeline, for whoever wrote it."""

from __future__ import annotations

from ottla.base.errors import OttlaError


class PipelineError(OttlaError):
    """A pipeline that cannot be run, in a sentence or two."""


class QueryFailedError(PipelineError):
    """A query ended with an error: its cause in a few words, and all that Spark said."""

    def __init__(self, message: str, trace: str) -> None:
        super().__init__(message)
        self.trace = trace
