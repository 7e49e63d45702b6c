"""A group of ZooKeeper consumers in which members come, go, lose sessions and connections: every record is consumed."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Iterator

import pytest

from ottla.client.errors import RebalanceFailedError
from ottla.zookeeper.client.session import end_session
from support.groups.zookeeper_members import WAIT_S, Member, Site, create_topic, run, running_site, send, until

PARTITIONS = 5
STEPS = 25
STORAGES = ("zookeeper", "kafka")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("site")) as site:
        yield site


class Chaos:
    def __init__(self, site: Site, seed: int) -> None:
        self.site = site
        self.chance = random.Random(seed)
        self.group = f"group-{uuid.uuid4().hex[:8]}"
        self.topic = f"topic-{uuid.uuid4().hex[:8]}"
        self.settings = {
            "offsets_storage": self.chance.choice(STORAGES),
            "rebalance_backoff_ms": 50,
            "rebalance_max_retries": 100,
            "auto_commit_interval_ms": 20,
            "max_poll_records": 3,
        }
        self.live: list[Member] = []
        self.all: list[Member] = []
        self.sent: set[bytes] = set()

    async def join(self) -> None:
        member = Member(self.site, self.group, **self.settings)
        self.live.append(member)
        self.all.append(member)
        member.subscribe(self.topic)

    async def leave(self) -> None:
        if len(self.live) > 1:
            await self.live.pop(self.chance.randrange(len(self.live))).close()

    async def expire(self) -> None:
        tree = self.chance.choice(self.live).membership._tree._tree
        if tree is not None and tree.session_id:
            session = tree.session
            await end_session(session.servers, session.token, 10_000, WAIT_S)

    async def disconnect(self) -> None:
        tree = self.chance.choice(self.live).membership._tree._tree
        connection = None if tree is None else tree.session._connection
        if connection is not None:
            connection._writer.transport.abort()

    async def produce(self) -> None:
        values = {index: [uuid.uuid4().bytes for _ in range(4)] for index in range(PARTITIONS)}
        self.sent.update(value for some in values.values() for value in some)
        await send(self.site, self.topic, values)

    async def run(self) -> None:
        await create_topic(self.site, self.topic, PARTITIONS)
        for _ in range(2):
            await self.join()
        deeds = [self.join, self.leave, self.expire, self.disconnect, self.produce, self.produce]
        try:
            for _ in range(STEPS):
                await self.chance.choice(deeds)()
                await asyncio.sleep(self.chance.uniform(0, 0.03))
            await self.produce()
            await until(self._is_even)
            await until(lambda: self.sent <= {value for member in self.all for value in member.values})
            assert [
                one for member in self.all for one in member.failures if isinstance(one, RebalanceFailedError)
            ] == []
        finally:
            for member in self.live:
                await member.close()

    def _is_even(self) -> bool:
        """Each partition has exactly one consumer, and nobody has two more than another."""
        counts = [len(member.indexes) for member in self.live]
        held = sorted(index for member in self.live for index in member.indexes)
        return held == list(range(PARTITIONS)) and max(counts) - min(counts) <= 1


@pytest.mark.parametrize("seed", range(4))
def test_every_record_is_consumed_whatever_happens_to_members(site: Site, seed: int) -> None:
    run(Chaos(site, seed).run)
