"""Unit tests start neither a broker process nor Spark: such tests belong to `tests/processes` and `tests/spark`."""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

_FORBIDDEN = ("ottla.testing.broker_process", "spark-submit", "java")
_FOLDER = Path(__file__).parent
_running: list[str] = []
"""The unit test that runs."""


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen" and _running:
        command = arguments[1] if isinstance(arguments[1], list | tuple) else [arguments[1]]
        for word in (arguments[0], *command):
            if isinstance(word, str) and Path(word).name in _FORBIDDEN:
                raise RuntimeError(f"{_running[0]} is a unit test and starts {word}. Move it to tests/processes.")


sys.addaudithook(_look)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Watches a unit test with its fixtures. Called for the tests of other folders as well, if they run with these."""
    if not item.path.is_relative_to(_FOLDER):
        return (yield)
    _running.append(item.nodeid)
    try:
        return (yield)
    finally:
        _running.pop()
