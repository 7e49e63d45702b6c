"""One Spark session and one broker for all tests below here, which run in one worker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.clients.peers import Peer, running_peer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from ottla.spark import session

    running = session("local[2]", sql_shuffle_partitions=2)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with running_peer(tmp_path_factory.mktemp("broker"), {"auto.create.topics.enable": "true"}) as peer:
        yield peer


@pytest.fixture
def topic() -> str:
    """A name that nobody else uses."""
    return f"topic-{uuid.uuid4().hex[:12]}"
