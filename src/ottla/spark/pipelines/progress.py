"""The progress of a query: sums up what Spark reports after each batch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

_NO_WATERMARK: Final = 0.0
"""Spark reports the epoch, 1970, if there is no watermark."""


@dataclass(slots=True)
class QueryProgress:
    """A query since it was started here."""

    name: str
    batch: int | None = None
    """The number of the last finished batch, over all runs."""
    batches: int = 0
    """The number of batches finished in this run."""
    rows: int = 0
    rows_written: int | None = None
    """None if the sink does not report it."""
    batch_seconds: float = 0.0
    watermark: datetime | None = None
    lag: int | None = None
    """The number of records not yet read, of sources that report it."""
    state_rows: int | None = None
    """The number of rows in its state; None if it has none."""
    late_rows: int = 0
    """The number of rows that were dropped because they came after the watermark."""
    offsets: dict[str, dict[int, int]] = field(default_factory=dict)
    """Its position: the next offset of each partition of its topics."""
    _seen: str = ""

    def take(self, reports: Iterable[Mapping[str, Any]]) -> bool:
        """Adds new reports of Spark, which are in order; returns whether a batch was finished since."""
        is_new = False
        for report in reports:
            if report["timestamp"] <= self._seen:
                continue
            self._seen = report["timestamp"]
            is_new |= self._take(report)
        return is_new

    def _take(self, report: Mapping[str, Any]) -> bool:
        self._take_sources(report.get("sources", ()))
        watermark = report.get("eventTime", {}).get("watermark")
        if watermark is not None:
            moment = datetime.fromisoformat(watermark).astimezone(UTC)
            self.watermark = moment if moment.timestamp() > _NO_WATERMARK else None
        operators = report.get("stateOperators", ())
        if operators:
            self.state_rows = sum(one.get("numRowsTotal", 0) for one in operators)
            self.late_rows += sum(one.get("numRowsDroppedByWatermark", 0) for one in operators)
        if "addBatch" not in report.get("durationMs", {}):
            return False  # a trigger that found nothing to do
        self.batch = report["batchId"]
        self.batches += 1
        self.rows += report["numInputRows"]
        self.batch_seconds = report["durationMs"].get("triggerExecution", 0) / 1000
        written = report.get("sink", {}).get("numOutputRows", -1)
        if written >= 0:
            self.rows_written = (self.rows_written or 0) + written
        return True

    def _take_sources(self, sources: Iterable[Mapping[str, Any]]) -> None:
        lags: list[int] = []
        for source in sources:
            end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
            for topic, partitions in (end or {}).items():
                self.offsets.setdefault(topic, {}).update(partitions)
            if end is not None and latest is not None:
                lags.append(_behind(end, latest))
        if lags:
            self.lag = sum(lags)


def reports_of(query: Any) -> list[Mapping[str, Any]]:
    """Spark's reports about a `StreamingQuery`, oldest first."""
    return [json.loads(progress.json) for progress in query.recentProgress]


def _offsets(told: Any) -> dict[str, dict[int, int]] | None:
    """Offsets by topic and partition, or None for a source that uses something else."""
    if isinstance(told, str):
        try:
            told = json.loads(told)
        except ValueError:
            return None
    if not isinstance(told, dict) or not all(isinstance(partitions, dict) for partitions in told.values()):
        return None
    try:
        return {
            topic: {int(p): int(offset) for p, offset in partitions.items()}
            for topic, partitions in told.items()
            if partitions  # skip the entries for topic ids
        }
    except (TypeError, ValueError):
        return None


def _behind(end: Mapping[str, Mapping[int, int]], latest: Mapping[str, Mapping[int, int]]) -> int:
    return sum(
        max(0, offset - end.get(topic, {}).get(partition, 0))
        for topic, partitions in latest.items()
        for partition, offset in partitions.items()
    )
