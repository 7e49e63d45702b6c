"""Fixtures for pytest, known wherever Ottla is installed: `ottla_broker`, a broker of the session's own, and
`ottla_broker_settings`, which a project overrides to configure it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.testing.broker import Broker


@pytest.fixture(scope="session")
def ottla_broker_settings() -> dict[str, str]:
    """Settings of `ottla_broker`, by Kafka's names."""
    return {}


@pytest.fixture(scope="session")
def ottla_broker(ottla_broker_settings: dict[str, str]) -> Iterator[Broker]:
    """A running broker; with pytest-xdist, one for each worker."""
    from ottla.testing.broker import Broker  # only where it is used: the plugin is loaded by every run of pytest

    with Broker(ottla_broker_settings) as broker:
        yield broker
