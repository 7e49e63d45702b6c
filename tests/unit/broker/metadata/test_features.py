"""Features of a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.metadata.features import ClusterFeatures, LiveRegistration
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from support.brokers import Client, with_client

NEW = {"transaction.version": (1, 2)}


def test_a_feature_is_in_force_while_every_live_broker_supports_it() -> None:
    features = ClusterFeatures()
    assert (features.finalized, features.epoch) == ({"transaction.version": 2}, 0)
    features.brokers_changed({1: LiveRegistration(40, NEW), 2: LiveRegistration(70, NEW)})
    assert (features.finalized, features.epoch) == ({"transaction.version": 2}, 70)
    features.brokers_changed({1: LiveRegistration(40, NEW), 3: LiveRegistration(90, {})})
    assert (features.finalized, features.epoch) == ({}, 90)
    features.brokers_changed({})
    assert features.finalized == {}


@pytest.mark.parametrize("version", range(5))
def test_clients_see_features(tmp_path: Path, version: int) -> None:
    async def work(client: Client) -> None:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        answer = await client.ask(request, ApiVersionsResponse, version)
        finalized = [(each.name, each.min_version_level, each.max_version_level) for each in answer.finalized_features]
        supported = [(each.name, each.min_version, each.max_version) for each in answer.supported_features]
        assert finalized == ([("transaction.version", 2, 2)] if version >= 3 else [])
        assert answer.finalized_features_epoch == (0 if version >= 3 else -1)
        # Older clients fail on a lowest version of 0.
        assert supported == ([("transaction.version", 0, 2)] if version >= 4 else [])

    with_client(tmp_path, work)
