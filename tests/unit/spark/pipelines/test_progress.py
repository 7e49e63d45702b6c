"""Spark's reports added up."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ottla.spark.pipelines.progress import QueryProgress


def report(second: int, **changes: Any) -> dict[str, Any]:
    return {
        "timestamp": f"2026-11-16T05:00:{second:02}.000Z",
        "batchId": second,
        "numInputRows": 10,
        "durationMs": {"addBatch": 100, "triggerExecution": 1500},
        "stateOperators": [],
        "sources": [],
        "sink": {"numOutputRows": 4},
        **changes,
    }


def source(end: Any, latest: Any) -> dict[str, Any]:
    return {"startOffset": None, "endOffset": end, "latestOffset": latest}


def test_batches_are_counted_once() -> None:
    progress = QueryProgress("q")
    assert progress.take([report(1), report(2)])
    assert not progress.take([report(1), report(2)])
    assert progress.take([report(2), report(3)])
    assert (progress.batch, progress.batches, progress.rows, progress.rows_written) == (3, 3, 30, 12)
    assert progress.batch_seconds == 1.5


def test_a_trigger_without_a_batch_is_no_batch() -> None:
    progress = QueryProgress("q")
    assert progress.take([report(1)])
    assert not progress.take([report(9, numInputRows=0, durationMs={"latestOffset": 3, "triggerExecution": 3})])
    assert (progress.batch, progress.batches) == (1, 1)


def test_a_sink_that_does_not_tell() -> None:
    progress = QueryProgress("q")
    progress.take([report(1, sink={"numOutputRows": -1})])
    assert progress.rows_written is None


def test_lag_and_place_are_those_of_the_last_report() -> None:
    progress = QueryProgress("q")
    first = source({"orders": {"0": 5, "1": 7}}, {"orders": {"0": 10, "1": 7}})
    other = source({"payments": {"0": 1}}, {"payments": {"0": 3, "1": 4}})
    progress.take([report(1, sources=[first, other])])
    assert progress.lag == 5 + 2 + 4
    assert progress.offsets == {"orders": {0: 5, 1: 7}, "payments": {0: 1}}
    progress.take([report(2, sources=[source('{"orders":{"0":10,"1":7}}', '{"orders":{"0":10,"1":7}}')])])
    assert progress.lag == 0
    assert progress.offsets["orders"] == {0: 10, 1: 7}


def test_sources_that_count_otherwise() -> None:
    progress = QueryProgress("q")
    progress.take([report(1, sources=[source(7, 9), source({"logOffset": 3}, None), source("x", {"a": {"b": []}})])])
    assert progress.lag is None
    assert progress.offsets == {}


def test_state_and_what_came_too_late() -> None:
    progress = QueryProgress("q")
    operators = [
        {"numRowsTotal": 5, "numRowsDroppedByWatermark": 2},
        {"numRowsTotal": 1, "numRowsDroppedByWatermark": 0},
    ]
    progress.take([report(2, stateOperators=operators), report(3, stateOperators=operators)])
    assert (progress.state_rows, progress.late_rows) == (6, 4)


def test_a_watermark() -> None:
    progress = QueryProgress("q")
    progress.take([report(1, eventTime={"watermark": "1970-01-01T00:00:00.000Z"})])
    assert progress.watermark is None
    progress.take([report(2, eventTime={"watermark": "2026-11-16T05:39:02.777Z"})])
    assert progress.watermark == datetime(2026, 11, 16, 5, 39, 2, 777_000, UTC)


def test_ids_of_topics_are_no_offsets() -> None:
    progress = QueryProgress("q")
    end = {"@id:a:x": {}, "a": {"0": 3}}
    progress.take([report(1, sources=[source(end, {"a": {"0": 5}})])])
    assert progress.offsets == {"a": {0: 3}}
    assert progress.lag == 2
