"""A broker for what needs no Spark but a cluster."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from ottla.testing.broker import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"log.retention.ms": "-1"}) as running:
        yield running


@pytest.fixture
def topic() -> str:
    """A name that nobody else uses."""
    return f"topic-{uuid.uuid4().hex[:12]}"
