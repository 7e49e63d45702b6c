"""A range of offsets of one partition, read by a task."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """From `start` (inclusive) to `until` (exclusive)."""

    topic: str
    partition: int
    start: int
    until: int

    def __len__(self) -> int:
        return max(0, self.until - self.start)


class RangePartition(InputPartition):
    """A range as it is sent from the driver to a task."""

    def __init__(self, span: OffsetRange) -> None:
        super().__init__(span)
        self.span = span
