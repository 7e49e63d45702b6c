"""What was found damaged in the files of a partition's log, told once for each place and counted for metrics.

Damage is told three ways: a line in the log with file and byte, the error that the reader gets, and the count. What
could be repaired is a warning and counts apart. A reader that comes back to the same place is answered the error again
and logs nothing.

Any thread may use it.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

_logger = logging.getLogger(__name__)

_PLACES_MAX: Final = 1000
"""Places remembered for a log: one with more is told of enough."""


class Damages:
    """Of one partition."""

    __slots__ = ("_places", "repair_count")

    def __init__(self) -> None:
        self._places: set[tuple[str, int]] = set()
        self.repair_count = 0
        """Files that were repaired: indexes rebuilt, tails cut off, checkpoints done without."""

    @property
    def count(self) -> int:
        """Places found damaged and not repaired."""
        return len(self._places)

    def tell(self, path: Path, position: int, reason: str) -> bool:
        """Whether it is news."""
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
        """Says what was done."""
        self.repair_count += 1
        _logger.warning("%s: %s", path, what)
