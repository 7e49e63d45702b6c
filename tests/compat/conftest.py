"""Shared by the tests beside Apache Kafka."""

from __future__ import annotations

import os

import pytest

from compat.once import Once

_LONGEST = "own_client/test_suites.py"


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the order
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes minutes begins first, so that no worker is left with it in the end."""
    items.sort(key=lambda item: not item.path.as_posix().endswith(_LONGEST))


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    own = tmp_path_factory.getbasetemp()
    return Once(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own)
