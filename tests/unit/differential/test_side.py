"""Whether a fetch has waited."""

from __future__ import annotations

import pytest

from differential.side import has_waited

REQUEST = {"max_wait_ms": 400, "min_bytes": 100}


def _answered(*sizes: int | None) -> dict[str, object]:
    """Partitions with so many bytes of records, or none."""
    partitions = [{"records": None if size is None else {"bytes": size}} for size in sizes]
    return {"responses": [{"topic": "$-t0", "partitions": partitions}]}


@pytest.mark.parametrize("is_kafka", [False, True])
def test_a_fetch_that_is_answered_soon_has_not_waited(is_kafka: bool) -> None:
    assert not has_waited(REQUEST, _answered(), 300, is_kafka=is_kafka)
    assert has_waited(REQUEST, _answered(), 400, is_kafka=is_kafka)


def test_only_kafka_may_be_slow_with_enough_records() -> None:
    assert not has_waited(REQUEST, _answered(60, None, 40), 400, is_kafka=True)
    assert has_waited(REQUEST, _answered(60, None, 39), 400, is_kafka=True)
    assert has_waited(REQUEST, _answered(60, None, 40), 400, is_kafka=False)
