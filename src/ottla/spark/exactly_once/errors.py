"""Why the exactly-once sink refuses to write or to commit. Every message says what to do."""

from __future__ import annotations

from ottla.base.errors import OttlaError


class ExactlyOnceError(OttlaError):
    """The sink cannot write these rows exactly once."""


class SupersededError(ExactlyOnceError):
    """Another run of the same query has taken over."""


class StaleBatchError(ExactlyOnceError):
    """The batch is older than what was written: the checkpoint was restored."""


class RepeatedSinkError(ExactlyOnceError):
    """Two writes of one batch use the same name."""


class LostTransactionsError(ExactlyOnceError):
    """Transactions of a committed batch were aborted before they were completed."""


class CommitTopicError(ExactlyOnceError):
    """The commit topic is not usable."""
