"""`ottla cluster`: what it shows of a cluster with many problems. A real cluster is in tests/cluster."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.cli import cluster
from ottla.cli.main import run
from ottla.client.administer import PartitionDescription, TopicDescription


def problem(index: int, kind: str) -> dict[str, Any]:
    return {
        "topic": "orders",
        "partition": index,
        "problem": kind,
        "leader": 1,
        "replicas": [1, 2],
        "in_sync": [1],
        "min_in_sync": 1,
    }


@pytest.mark.parametrize(("count", "has_hint"), [(9, False), (50, True)])
def test_the_overview_shows_the_most_urgent_problems_and_where_the_others_are(
    count: int, has_hint: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = [*(problem(index, "under-replicated") for index in range(count)), problem(count, "offline")]
    found = {
        "cluster_id": "c",
        "controller": 1,
        "brokers": [],
        "topics": 1,
        "partitions": count + 1,
        "problems": problems,
    }
    monkeypatch.setattr("ottla.cli.cluster.with_admin", lambda *_: found)
    for module in ("output", "cluster"):
        monkeypatch.setattr(f"ottla.cli.{module}.is_terminal", lambda: True)
    assert run(["cluster"]) == 0
    printed = capsys.readouterr()
    rows = [line.split() for line in printed.out.splitlines() if line.split()[:1] == ["orders"]]
    assert len(rows) == 10
    assert rows[0][1:3] == [str(count), "offline"]
    assert ("ottla cluster problems" in printed.err) is has_hint


def test_every_problem_has_an_urgency() -> None:
    kinds = ["under-replicated", "at min ISR", "offline", "under min ISR"]
    worst = cluster._worst([problem(0, kind) for kind in kinds])
    assert [one["problem"] for one in worst] == ["offline", "under min ISR", "at min ISR", "under-replicated"]


def test_replicas_that_are_being_added_need_not_be_in_sync_yet() -> None:
    """As Kafka counts: a partition that is being moved is not under-replicated for that."""
    partitions = tuple(
        PartitionDescription(index=index, leader_id=1, leader_epoch=0, replicas=(1, 2, 3), in_sync=(1, 2), offline=())
        for index in range(2)
    )
    topic = TopicDescription("orders", "id", False, partitions)
    found = list(cluster._problems([topic], {"orders": 1}, {("orders", 1): 1}))
    assert [(one["partition"], one["problem"]) for one in found] == [(0, "under-replicated")]
