"""How long a producer asks for a topic that no broker knows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.client.config import ProducerConfig
from ottla.client.errors import BrokerUnreachableError, RefusedError, UnknownTopicError
from ottla.client.produce.core import ProducerCore


class ScriptedCluster:
    """Each attempt takes a second, and ends as the script says; the last one again and again."""

    def __init__(self, script: list[Any]) -> None:
        self.now_s = 0.0
        self._script = script

    async def refresh(self, topics: list[str], *, create_topics: bool) -> list[Any]:
        assert (topics, create_topics) == (["orders"], True)
        self.now_s += 1.0
        outcome = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if isinstance(outcome, Exception):
            raise outcome
        found: list[Any] = outcome
        return found

    async def retry(self, attempt: Callable[[], Awaitable[Any]], *, timeout_s: float) -> Any:
        while True:
            try:
                return await attempt()
            except (RefusedError, BrokerUnreachableError):
                if self.now_s > timeout_s:
                    raise


def learn(script: list[Any], monkeypatch: pytest.MonkeyPatch) -> ScriptedCluster:
    cluster = ScriptedCluster(script)

    async def work() -> None:
        core = ProducerCore(
            ProducerConfig.parse({"bootstrap.servers": "127.0.0.1:1"}, {}), lambda: None, may_block=True
        )
        monkeypatch.setattr(core, "_cluster", cluster)
        monkeypatch.setattr("ottla.client.produce.core.time.monotonic", lambda: cluster.now_s)
        with pytest.raises(UnknownTopicError):
            await core.learn("orders")

    asyncio.run(work())
    return cluster


def test_a_topic_is_asked_for_again_for_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert learn([[]], monkeypatch).now_s == 6.0


def test_the_time_without_a_broker_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first broker that answers may have just started, and not know any topic yet."""
    away = [BrokerUnreachableError("nothing listens there") for _ in range(20)]
    assert learn([*away, []], monkeypatch).now_s == 26.0
