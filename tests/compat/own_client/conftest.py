"""A broker, ours and Kafka's, on which our client meets others."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pytest

from compat.once import Once
from compat.own_client.java import Programs
from support.clients.peers import Peer, running_peer
from support.groups.settings import SETTINGS

TWO_PHASE = {"transaction.two.phase.commit.enable": "true", "unstable.api.versions.enable": "true"}
"""With these, Kafka 4.3.1 serves what it has of KIP-939."""


@pytest.fixture(scope="session", params=["ottla", "kafka-4.3.1"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTTLA_TEST_PEER", request.param)
        settings = SETTINGS if request.param == "ottla" else SETTINGS | TWO_PHASE
        with running_peer(tmp_path_factory.mktemp("broker"), settings) as peer:
            yield peer


@pytest.fixture(scope="session")
def programs(once: Once) -> Programs:
    return Programs(once)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses, and that says where it comes from."""
    origin = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)
    return f"{origin[:80]}-{uuid.uuid4().hex[:8]}"
