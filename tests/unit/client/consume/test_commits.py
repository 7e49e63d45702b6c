"""Commits in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ottla.base.ids import TopicPartition
from ottla.client.consume.commits import BackgroundCommits, Offsets
from ottla.client.errors import ClientError
from ottla.client.offsets import OffsetAndMetadata
from unit.client.test_cluster import run

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def at(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset)


class Group:
    """Commits when it is let."""

    def __init__(self) -> None:
        self.commits: list[Offsets] = []
        self.failures: list[ClientError] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def commit(self, offsets: Offsets) -> None:
        self.commits.append(offsets)
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)


def call(callback: Callable[[], object]) -> None:
    callback()


def test_only_the_newest_offsets_are_sent() -> None:
    async def scenario() -> None:
        group = Group()
        group.gate.clear()
        told: list[int] = []
        commits = BackgroundCommits(group.commit, call)
        for offset in range(100):
            if commits.ask({A: at(offset)}, lambda offsets, _: told.append(offsets[A].offset)):
                commits.begin()
            if offset == 10:
                await asyncio.sleep(0)  # the first is on its way from here on
        group.gate.set()
        await commits.finish([A])
        assert group.commits == [{A: at(10)}, {A: at(99)}]
        assert told == list(range(100))
        assert commits.is_idle

    run(scenario)


def test_callbacks_are_told_what_went_wrong() -> None:
    async def scenario() -> None:
        group = Group()
        failure = ClientError("no")
        group.failures = [failure]
        told: list[Exception | None] = []
        commits = BackgroundCommits(group.commit, call)
        commits.ask({A: at(1)}, lambda _, error: told.append(error))
        await commits.finish([])
        assert told == [failure]

    run(scenario)


def test_what_failed_is_committed_at_the_end_if_it_is_still_ours() -> None:
    async def scenario() -> None:
        group = Group()
        group.failures = [ClientError("not now")]
        commits = BackgroundCommits(group.commit, call)
        commits.ask({A: at(1), B: at(2)}, None)
        await commits.finish([B])
        assert group.commits == [{A: at(1), B: at(2)}, {B: at(2)}]
        group.failures = [ClientError("not now"), ClientError("nor later")]
        commits.ask({A: at(3)}, None)
        with pytest.raises(ClientError, match="nor later"):
            await commits.finish([A])

    run(scenario)
