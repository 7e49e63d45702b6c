"""Records that a query was to read and that are gone."""

from __future__ import annotations

import logging

from ottla.base.errors import OttlaError

_logger = logging.getLogger(__name__)


class DataLossError(OttlaError):
    """Told to who has not said that it may happen."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}. To skip lost records instead of failing, set failOnDataLoss to false")


def lose(what: str, *, fail: bool) -> None:
    """Tells of it: by an error, or in the log where the query goes on without."""
    if fail:
        raise DataLossError(what)
    _logger.warning("%s; skipped, because failOnDataLoss is false", what)
