"""Shared by the tests beside Apache Kafka."""

from __future__ import annotations

import os

import pytest

from compat.once import Once


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    own = tmp_path_factory.getbasetemp()
    return Once(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own)
