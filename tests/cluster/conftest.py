"""One cluster of three brokers for all tests here. They leave it with all brokers running."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing.broker import Setting
from ottla.testing.cluster import Cluster
from support.cluster.traffic import new_topic


@pytest.fixture(scope="session")
def shared() -> Iterator[Cluster]:
    settings: dict[str, Setting] = {
        "offsets.topic.num.partitions": 3,
        "transaction.state.log.num.partitions": 3,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    }
    with Cluster(3, settings=settings) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    shared.start()
    return shared


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """One partition with three replicas, all in sync."""
    return new_topic(cluster)
