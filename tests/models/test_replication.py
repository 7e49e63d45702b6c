"""Replication against its promises, by seed. More of them: `python -m models.replication 1000` (in tests/)."""

from __future__ import annotations

import pytest

from models.replication import Counters, ReplicationModel


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_nothing_committed_is_lost_or_changed(seed: int) -> None:
    ReplicationModel(seed).run(500)


def test_the_model_does_what_it_is_for() -> None:
    runs = [ReplicationModel(seed).run(500) for seed in range(100, 120)]
    for name in Counters.__dataclass_fields__:
        assert sum(getattr(run, name) for run in runs) > 2, name
