"""Fixtures for pytest, available wherever Ottla is installed.

- `ottla_broker`: a running broker, one for the whole session (with pytest-xdist, one for each worker). Tests share it,
  so give each its own topics and groups.
- `ottla_broker_settings`: what that broker is configured with, by Kafka's names. Override it in `conftest.py`, with
  `scope="session"`.
- `new_ottla_broker`: a broker for one test alone, with the same settings.
- `ottla_cluster`: a running cluster of three brokers for the whole session (with pytest-xdist, one for each worker).
- `ottla_cluster_settings`: what the brokers of clusters are configured with, by Kafka's names.
- `new_ottla_cluster`: a cluster of three brokers for one test alone, which may kill, pause and cut off its members.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.testing.broker import Broker, Setting
    from ottla.testing.cluster import Cluster


@pytest.fixture(scope="session")
def ottla_broker_settings() -> dict[str, Setting]:
    """Settings of `ottla_broker`, by Kafka's names."""
    return {}


@pytest.fixture(scope="session")
def ottla_broker(ottla_broker_settings: dict[str, Setting]) -> Iterator[Broker]:
    """A running broker for the whole session; with pytest-xdist, one for each worker."""
    from ottla.testing.broker import Broker  # imported only if used: every run of pytest loads the plugin

    with Broker(ottla_broker_settings) as broker:
        yield broker


@pytest.fixture
def new_ottla_broker(ottla_broker_settings: dict[str, Setting]) -> Iterator[Broker]:
    """A running broker for this test alone, which may stop, kill or fill it."""
    from ottla.testing.broker import Broker

    with Broker(ottla_broker_settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def ottla_cluster_settings() -> dict[str, Setting]:
    """Settings of all brokers of `ottla_cluster` and `new_ottla_cluster`, by Kafka's names."""
    return {}


@pytest.fixture(scope="session")
def ottla_cluster(ottla_cluster_settings: dict[str, Setting]) -> Iterator[Cluster]:
    """A running cluster of three brokers for the whole session; with pytest-xdist, one for each worker."""
    from ottla.testing.cluster import Cluster

    with Cluster(3, settings=ottla_cluster_settings) as cluster:
        yield cluster


@pytest.fixture
def new_ottla_cluster(ottla_cluster_settings: dict[str, Setting]) -> Iterator[Cluster]:
    """A running cluster of three brokers for this test alone."""
    from ottla.testing.cluster import Cluster

    with Cluster(3, settings=ottla_cluster_settings, network=sys.platform.startswith("linux")) as cluster:
        yield cluster
