"""For all tests: how property tests draw their examples, and that a failed test fails alone."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from support.examples import DEFAULT, examples
from support.leftovers import forget_failed_test

# Slow is the machine, beside all that runs at the same time, and not the strategy.
settings.register_profile(
    "suite", max_examples=examples(DEFAULT), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")

_failed: set[str] = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed.add(report.nodeid)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Around all else that is done for a test, so that nothing of it is still held."""
    result = yield
    if item.nodeid in _failed:
        _failed.remove(item.nodeid)
        forget_failed_test()
    return result
