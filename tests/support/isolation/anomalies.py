"""Names of what may not happen, and findings."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Anomaly(Enum):
    ABORTED_READ = "aborted read (G1a)"
    DIRTY_READ = "read before the commit was asked for"
    INVENTED = "a value that nobody wrote"
    TORN = "torn transaction"
    LOST = "lost committed write"
    DUPLICATE = "duplicate"
    MOVED = "a value at another offset than the producer was told"
    DISAGREEMENT = "two values at one offset"
    REORDERED = "writes of a producer in another order"
    BACKWARDS = "a consumer went back"
    SKIPPED = "a record that a poll skipped"
    HOLE = "an offset with neither record nor marker"
    CYCLE = "circular information flow (G1c)"
    OFFSET_REGRESSED = "a committed offset that went back"
    PROCESSED_TWICE = "an input that was processed twice"
    NOT_PROCESSED = "an input that was not processed"
    OFFSET_INCONSISTENT = "committed offset and outputs that do not match"
    DECISION_BROKEN = "a prepared transaction that did not end as decided"
    LATEST_LOST = "a key of a compacted partition without its last committed value"


class Finding(NamedTuple):
    anomaly: Anomaly
    what: str

    def __str__(self) -> str:
        return f"{self.anomaly.value}: {self.what}"
