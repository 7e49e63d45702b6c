"""A broker for groups: quick to begin a rebalance, and to give up members that are silent."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from support.clients.confluent_client import ConfluentClient
from support.clients.peers import Peer, running_peer
from support.groups.consumers import MakeTopic, Membership, Partition
from support.groups.flavours import FLAVOURS, Flavour
from support.groups.settings import SESSION_MS, SETTINGS
from support.waiting import wait_until


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with running_peer(tmp_path_factory.mktemp("groups"), SETTINGS) as peer:
        yield peer


@pytest.fixture(params=FLAVOURS, ids=str)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    chosen: Flavour = request.param
    return chosen


@pytest.fixture
def group_id() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def membership(broker: Peer, flavour: Flavour, group_id: str, topic: str) -> Membership:
    """In a group of its own, subscribed to the test's topic."""
    return Membership(broker.bootstrap, group_id, flavour, [topic], session_ms=SESSION_MS)


@pytest.fixture
def make_topic(broker: Peer) -> MakeTopic:

    def make(name: str, partitions: int) -> list[Partition]:
        with ConfluentClient(broker.bootstrap).admin() as admin:
            admin.create_topic(name, partitions)
            wait_until(lambda: name in admin.topics(), "the new topic is not listed")
        return [(name, index) for index in range(partitions)]

    return make
