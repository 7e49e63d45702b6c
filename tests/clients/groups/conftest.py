"""A broker for groups: quick to begin a rebalance, and to give up members that are silent."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from clients.confluent_client import ConfluentClient
from clients.dialect import wait_until
from clients.groups.consumers import MakeTopic, Membership, Partition
from clients.groups.flavours import FLAVOURS, Flavour
from clients.peers import Peer, running_peer

SESSION_MS = 4_000
"""After this long of silence a member counts as dead."""

SETTINGS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "200",
}


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
