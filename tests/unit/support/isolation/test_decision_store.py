"""Decisions about prepared transactions: only the process that came last decides."""

from __future__ import annotations

from pathlib import Path

from support.isolation.decision_store import Decision, DecisionStore


def test_decisions_outlive_the_process_that_made_them(tmp_path: Path) -> None:
    file = tmp_path / "decisions"
    first, second = Decision(10, "4:0/a", True), Decision(11, "4:1/a", False)
    store = DecisionStore(file)
    assert store.own(1)
    assert store.decide(1, first)
    assert store.decide(1, second)
    store.done(10)
    after = DecisionStore(file)
    assert after.own(2)
    assert after.unfinished() == [second]
    assert after.all() == {10: True, 11: False}


def test_a_process_that_was_replaced_decides_nothing(tmp_path: Path) -> None:
    store = DecisionStore(tmp_path / "decisions")
    assert store.own(2)
    assert not store.own(1)  # it was paused before it could say that it is there
    assert not store.decide(1, Decision(10, "4:0/a", True))
    assert store.all() == {}
