"""Commits in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from ottla.base.ids import TopicPartition
from ottla.client.consume import commits as commits_module
from ottla.client.consume.commits import BackgroundCommits, Offsets
from ottla.client.errors import ClientError, CommitFailedError, OttlaError
from ottla.client.membership.ledger import AskedCommit, CommitLedger
from ottla.client.membership.metadata import GroupMetadata
from ottla.client.offsets import OffsetAndMetadata
from ottla.client.subscriptions.subscription import Subscription
from unit.client.test_cluster import run

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def at(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset)


class Group:
    """Commits when it is let."""

    def __init__(self, *assigned: TopicPartition) -> None:
        self.subscription = Subscription()
        self.subscription.subscribe(["a", "b"])
        self.subscription.assigned_by_group(assigned)
        self.ledger = CommitLedger(self.subscription, lambda: GroupMetadata("group", 1, "member"))
        self.commits: list[Offsets] = []
        self.failures: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.background = BackgroundCommits(self.ledger, self.commit, call)

    async def commit(self, commits: Mapping[TopicPartition, AskedCommit]) -> None:
        self.commits.append({one: asked.offsets[one] for one, asked in commits.items()})
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        for partition, asked in commits.items():
            self.ledger.succeeded(asked, partition)


def call(callback: Callable[[], object]) -> None:
    callback()


def test_only_the_newest_offsets_are_sent() -> None:
    async def scenario() -> None:
        group = Group(A)
        group.gate.clear()
        told: list[int] = []
        for offset in range(100):
            if group.background.ask({A: at(offset)}, lambda offsets, _: told.append(offsets[A].offset)):
                group.background.begin()
            if offset == 10:
                await asyncio.sleep(0)  # the first is on its way from here on
        group.gate.set()
        await group.background.finish()
        assert group.commits == [{A: at(10)}, {A: at(99)}]
        assert told == list(range(100))
        assert group.background.is_idle

    run(scenario)


@pytest.mark.parametrize("failure", [ClientError("no"), KeyError("unforeseen")], ids=["foreseen", "unforeseen"])
def test_callbacks_get_the_error(failure: Exception) -> None:
    async def scenario() -> None:
        group = Group()
        group.failures = [failure]
        told: list[Exception | None] = []
        group.background.ask({A: at(1)}, lambda _, error: told.append(error))
        await group.background.finish()
        assert told == [failure]

    run(scenario)


def test_failed_commits_are_retried_at_close_for_owned_partitions() -> None:
    async def scenario() -> None:
        group = Group(A, B)
        group.failures = [ClientError("not now")]
        group.gate.clear()
        group.background.ask({A: at(1), B: at(2)}, None)
        group.background.begin()
        await asyncio.sleep(0)
        group.subscription.assigned_by_group([B])
        group.gate.set()
        await group.background.finish()
        assert group.commits == [{A: at(1), B: at(2)}, {B: at(2)}]
        group.failures = [ClientError("not now"), ClientError("nor later")]
        group.background.ask({B: at(3)}, None)
        with pytest.raises(OttlaError, match="nor later"):
            await group.background.finish()

    run(scenario)


def test_failed_commits_are_not_retried_after_a_newer_commit() -> None:
    async def scenario() -> None:
        group = Group(A, B)
        group.failures = [ClientError("not now")]
        group.background.ask({A: at(50), B: at(50)}, None)
        group.background.begin()
        while not group.background.is_idle:
            await asyncio.sleep(0)
        await group.commit({A: group.ledger.ask({A: at(100)})})
        await group.background.finish()
        assert group.commits[1:] == [{A: at(100)}, {B: at(50)}]

    run(scenario)


def test_failed_commits_are_not_sent_with_those_of_other_partitions() -> None:
    async def scenario() -> None:
        group = Group(A, B)
        group.failures = [ClientError("not now")]
        group.background.ask({A: at(50)}, None)
        group.background.begin()
        while not group.background.is_idle:
            await asyncio.sleep(0)
        group.subscription.assigned_by_group([B])
        group.background.ask({B: at(7)}, None)
        await group.background.finish()
        assert group.commits[1:] == [{B: at(7)}]

    run(scenario)


def test_waiting_commits_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits_module, "CALLBACKS_MAX", 10)

    async def scenario() -> None:
        group = Group(A, B)
        group.gate.clear()
        told: list[tuple[int, type[Exception] | None]] = []
        group.background.ask({A: at(0)}, None)
        group.background.begin()
        await asyncio.sleep(0)  # on its way
        for offset in range(1, 1001):
            group.background.ask({A: at(offset)}, None)
            group.background.ask({B: at(offset)}, None)
        assert len(group.background._asked) == 2
        for offset in range(1001, 1016):
            group.background.ask(
                {A: at(offset)}, lambda offsets, error: told.append((offsets[A].offset, type(error) if error else None))
            )
        assert told == [(offset, CommitFailedError) for offset in range(1001, 1006)]
        group.gate.set()
        await group.background.finish()
        assert told[5:] == [(offset, None) for offset in range(1006, 1016)]
        assert group.commits[1:] == [{A: at(1015), B: at(1000)}]

    run(scenario)
