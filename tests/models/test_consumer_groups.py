"""The consumer protocol holds what it promises, whatever its clients, topics and brokers do."""

from __future__ import annotations

import pytest

from models.consumer_groups import ConsumerGroupModel


@pytest.mark.parametrize("seed", range(24))
def test_the_invariants_of_consumer_groups_hold(seed: int) -> None:
    """The seed is in the test's name: it makes the same walk again."""
    ConsumerGroupModel(seed).run(600)
