"""Records that a query should have read but that no longer exist."""

from __future__ import annotations

import logging

from ottla.base.errors import OttlaError

_logger = logging.getLogger(__name__)


class DataLossError(OttlaError):
    """Raised unless failOnDataLoss=false."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}. To skip lost records instead of failing, set failOnDataLoss to false")


def lose(what: str, *, fail: bool) -> None:
    """Raises an error, or logs a warning if the query continues without the records."""
    if fail:
        raise DataLossError(what)
    _logger.warning("%s; skipped, because failOnDataLoss is false", what)
