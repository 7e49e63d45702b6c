"""Clients that stay open from task to task."""

from __future__ import annotations

import gc
from collections.abc import Mapping

import pytest
from pyspark import TaskContext

from ottla.spark.worker_clients import IDLE_MAX_S, ClientPool


class Client:
    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = settings
        self.is_closed = False

    def close(self, timeout: float = 0) -> None:
        assert timeout > 0
        self.is_closed = True


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


SETTINGS = {"a": "1"}


def test_a_client_comes_back_and_is_lent_again() -> None:
    pool = ClientPool(Client)
    with pool.lent(SETTINGS) as first:
        with pool.lent(dict(SETTINGS)) as second:
            assert first is not second  # nobody else uses it meanwhile
        assert not second.is_closed
        with pool.lent({"a": "2"}) as other:
            assert other not in (first, second)
    with pool.lent(SETTINGS) as again:
        assert again in (first, second)
    pool.close()
    assert first.is_closed
    assert second.is_closed
    assert other.is_closed


def test_one_that_failed_is_closed() -> None:
    pool = ClientPool(Client)
    with pytest.raises(RuntimeError, match="bad"), pool.lent(SETTINGS) as failed:
        raise RuntimeError("bad")
    assert failed.is_closed
    with pool.lent(SETTINGS) as another:
        assert another is not failed


def test_one_that_nobody_wants_for_long_is_closed() -> None:
    clock = Clock()
    pool = ClientPool(Client, clock)
    with pool.lent(SETTINGS) as old:
        pass
    clock.now_s += IDLE_MAX_S
    with pool.lent({"a": "2"}) as young:
        assert not old.is_closed
    clock.now_s += 1
    with pool.lent({"a": "3"}):
        assert old.is_closed
        assert not young.is_closed


def test_in_sparks_workers_the_garbage_collector_is_spared_what_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: done.append("collect"))
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))
    monkeypatch.setattr(gc, "get_freeze_count", lambda: done.count("freeze"))
    pool = ClientPool(Client)
    with pool.lent(SETTINGS):
        pass
    assert done == []  # a process that is the user's own
    monkeypatch.setattr(TaskContext, "_taskContext", TaskContext())
    for _ in range(2):
        with pool.lent(SETTINGS):
            assert len(done) in (0, 2)
    assert done == ["collect", "freeze"]
