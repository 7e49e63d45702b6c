from __future__ import annotations

import pytest

from ottla.broker.observability.request_stats import ApiStats, RequestStats


def test_an_api_is_counted_in_one_place() -> None:
    stats = RequestStats()
    assert stats.api(3) is stats.api(3)
    assert stats.api(3) is not stats.api(4)
    assert list(stats.apis) == [3, 4]


def test_requests_are_summed() -> None:
    api = ApiStats()
    api.observe(100, 10, 0.25)
    api.observe(200, 0, 0.5)
    assert (api.requests, api.request_bytes, api.response_bytes, api.seconds) == (2, 300, 10, 0.75)


@pytest.mark.parametrize(
    ("microseconds", "bucket"), [(0, 0), (0.9, 0), (1, 1), (2, 2), (3, 2), (1023, 10), (1025, 11), (2**62, 63)]
)
def test_a_time_lies_below_the_bound_of_its_bucket_and_not_below_the_one_before(
    microseconds: float, bucket: int
) -> None:
    api = ApiStats()
    api.observe(0, 0, microseconds / 1_000_000)
    assert [index for index, count in enumerate(api.buckets) if count] == [bucket]


def test_errors_by_code() -> None:
    api = ApiStats()
    for code in (3, 6, 3):
        api.count_error(code)
    assert api.errors == {3: 2, 6: 1}


def test_connections() -> None:
    connections = RequestStats().connections
    connections.opened += 3
    connections.closed += 1
    for reason in ("max.connections", "max.connections.per.ip", "max.connections"):
        connections.count_refused(reason)
    assert connections.open_now == 2
    assert connections.refused == {"max.connections": 2, "max.connections.per.ip": 1}
