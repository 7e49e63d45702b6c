"""Damage found in the files of a partition's log, reported once per place and counted for metrics.

Damage is reported in three ways: a log line with file and position, the error that the reader gets, and the count. A
repair is logged as a warning and counted separately. A reader that comes back to the same place gets the error again,
but nothing is logged.

Thread-safe.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

_logger = logging.getLogger(__name__)

_PLACES_MAX: Final = 1000
"""The number of places remembered per log: more would not add information."""


class Damages:
    """The damage of one partition."""

    __slots__ = ("_places", "repair_count")

    def __init__(self) -> None:
        self._places: set[tuple[str, int]] = set()
        self.repair_count = 0
        """The number of repairs: rebuilt indexes, removed tails, ignored checkpoints."""

    @property
    def count(self) -> int:
        """The number of damaged places that were not repaired."""
        return len(self._places)

    def tell(self, path: Path, position: int, reason: str) -> bool:
        """Reports damage; returns whether it is new."""
        place = (path.name, position)
        if place in self._places or len(self._places) >= _PLACES_MAX:
            return False
        self._places.add(place)
        _logger.error(
            "%s is damaged at byte %d: %s. Readers of these records get CORRUPT_MESSAGE; restore the file from a copy, "
            "or delete the records up to there",
            path,
            position,
            reason,
        )
        return True

    def repaired(self, path: Path, what: str) -> None:
        """Logs and counts a repair."""
        self.repair_count += 1
        _logger.warning("%s: %s", path, what)
