"""A broker for tests of groups, shared by their modules: Apache Kafka takes long to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.clients.peers import Peer, running_peer
from support.groups.settings import SETTINGS

CONSUMER_SESSION_MS = 3000
"""After this long without a heartbeat, a member of the consumer protocol is removed."""


@pytest.fixture(scope="session")
def group_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """It rebalances at once, and creates no topic unasked. A test may restart it, and must leave it running."""
    settings = {**SETTINGS, "group.consumer.session.timeout.ms": str(CONSUMER_SESSION_MS)}
    with running_peer(tmp_path_factory.mktemp("groups"), settings) as peer:
        yield peer
