"""Records that a query was to read and that are gone."""

from __future__ import annotations

from ottla.base.errors import OttlaError


class DataLossError(OttlaError):
    """Told to who has not said that it may happen."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. If that may be, set the option failOnDataLoss to false, and what is gone is passed over"
        )
