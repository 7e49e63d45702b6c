from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.base.coordination import ConnectionLossError, CoordinationError, Watch, Znode
from ottla.broker.transactions.producer_ids import BLOCK_SIZE, ProducerIdError, ProducerIds
from ottla.testing.manual_clock import ManualClock
from ottla.zookeeper.local_tree import LocalTree
from ottla.zookeeper.node_json import ZnodeError
from support.waiting import until

NODE = "/latest_producer_id_block"


@asynccontextmanager
async def tree_in(folder: Path) -> AsyncIterator[LocalTree]:
    tree = await LocalTree.open(folder / "tree.db", ManualClock())
    try:
        yield tree
    finally:
        await tree.close()


async def take(ids: ProducerIds, count: int) -> list[int]:
    return [await ids.next_id() for _ in range(count)]


def test_ids_rise_over_the_ends_of_blocks(tmp_path: Path) -> None:
    async def run() -> None:
        async with tree_in(tmp_path) as tree:
            ids = ProducerIds(tree, 4)
            assert await take(ids, 2 * BLOCK_SIZE + 5) == list(range(2 * BLOCK_SIZE + 5))
            node = await tree.get(NODE)
            assert node is not None
            assert node.data == b'{"version":1,"broker":4,"block_start":"2000","block_end":"2999"}'
            await ids.close()

    asyncio.run(run())


def test_a_prepared_broker_has_ids_when_the_tree_is_gone(tmp_path: Path) -> None:
    async def run() -> None:
        async with tree_in(tmp_path) as tree:
            ids = ProducerIds(tree, 4)
            ids.prepare()
            await until(lambda: ids._spare is not None)
        assert await take(ids, 5) == [0, 1, 2, 3, 4]
        await ids.close()

    asyncio.run(run())


def test_two_brokers_never_share_a_block(tmp_path: Path) -> None:
    async def run() -> None:
        async with tree_in(tmp_path) as tree:
            brokers = [ProducerIds(tree, 1), ProducerIds(tree, 2)]
            taken = await asyncio.gather(*(take(ids, 3 * BLOCK_SIZE) for ids in brokers for _ in range(2)))
            every = [producer_id for some in taken for producer_id in some]
            assert len(set(every)) == len(every) == 12 * BLOCK_SIZE
            for ids in brokers:
                await ids.close()

    asyncio.run(run())


def test_after_a_crash_the_rest_of_the_block_is_left_alone(tmp_path: Path) -> None:
    async def life() -> list[int]:
        async with tree_in(tmp_path) as tree:
            ids = ProducerIds(tree, 1)
            return await take(ids, 3)  # and then it is gone without a word

    assert asyncio.run(life()) == [0, 1, 2]
    assert asyncio.run(life()) == [1000, 1001, 1002]


class LossyTree:
    """Loses the answers to some writes, which are done or not."""

    def __init__(self, tree: LocalTree, is_done: bool, losses: int) -> None:
        self.tree = tree
        self.is_done = is_done
        self.losses = losses

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tree, name)

    async def set(self, path: str, data: bytes, version: int) -> int:
        if not self.losses:
            return await self.tree.set(path, data, version)
        self.losses -= 1
        if self.is_done:
            await self.tree.set(path, data, version)
        raise ConnectionLossError(path, "lost by the test")


@pytest.mark.parametrize("is_done", [True, False])
def test_a_block_whose_write_has_no_answer_is_never_handed_out_twice(tmp_path: Path, is_done: bool) -> None:
    async def run() -> None:
        async with tree_in(tmp_path) as tree:
            await tree.create(NODE)
            lossy: Any = LossyTree(tree, is_done, losses=2)
            first, second = ProducerIds(lossy, 1), ProducerIds(tree, 2)
            taken = [*await take(first, BLOCK_SIZE), *await take(second, BLOCK_SIZE), *await take(first, BLOCK_SIZE)]
            assert len(set(taken)) == 3 * BLOCK_SIZE
            assert taken[0] == (2 * BLOCK_SIZE if is_done else 0)
            assert lossy.losses == 0
            await first.close()
            await second.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("data", "expected"), [(b"", 0), (b'{"broker":7,"block_start":"5000","block_end":"5999"}', 6000)]
)
def test_producer_ids_continue_after_those_of_kafka(tmp_path: Path, data: bytes, expected: int) -> None:
    async def run() -> None:
        async with tree_in(tmp_path) as tree:
            await tree.create(NODE, data)
            assert await ProducerIds(tree, 1).next_id() == expected

    asyncio.run(run())


@pytest.mark.parametrize("data", [b"x", b"{}", b'{"broker":1,"block_start":"0","block_end":"many"}'])
def test_a_node_that_is_not_understood_is_not_overwritten(tmp_path: Path, data: bytes) -> None:
    async def run() -> None:
        async with tree_in(tmp_path) as tree:
            await tree.create(NODE, data)
            with pytest.raises(ZnodeError, match=NODE):
                await ProducerIds(tree, 1).next_id()
            node = await tree.get(NODE)
            assert node is not None
            assert node.data == data

    asyncio.run(run())


@pytest.mark.parametrize("end", [-5, 2**63 - 2, 2**63 - 1])
def test_ids_that_java_cannot_hold_are_not_given(tmp_path: Path, end: int) -> None:
    async def run() -> None:
        async with tree_in(tmp_path) as tree:
            await tree.create(NODE, b'{"broker":1,"block_start":"0","block_end":"%d"}' % end)
            with pytest.raises(ProducerIdError, match=str(end)):
                await ProducerIds(tree, 1).next_id()

    asyncio.run(run())


class Fragile(LocalTree):
    """Can be told to fail, and to wait before it answers; counts what is asked."""

    is_broken = False
    asked = 0
    gate: asyncio.Event | None = None

    async def until_asked(self) -> None:
        await until(lambda: self.asked)

    async def get(self, path: str, watch: Watch | None = None) -> Znode | None:
        self.asked += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.is_broken:
            raise CoordinationError(path, "not now")
        return await super().get(path, watch)


@asynccontextmanager
async def fragile_in(folder: Path) -> AsyncIterator[Fragile]:
    tree = await Fragile.open(folder / "tree.db", ManualClock())
    assert isinstance(tree, Fragile)
    try:
        yield tree
    finally:
        await tree.close()


def test_the_next_block_is_there_before_the_present_one_ends(tmp_path: Path) -> None:
    async def run() -> None:
        async with fragile_in(tmp_path) as tree:
            ids = ProducerIds(tree, 1)
            await take(ids, BLOCK_SIZE - 100)
            async with asyncio.timeout(10):
                while (node := await LocalTree.get(tree, NODE)) is None or b'"1999"' not in node.data:
                    await asyncio.sleep(0)
            tree.is_broken = True
            assert (await take(ids, 200))[-1] == BLOCK_SIZE + 99

    asyncio.run(run())


def test_a_tree_that_fails_is_asked_again_with_the_next_request(tmp_path: Path) -> None:
    async def run() -> None:
        async with fragile_in(tmp_path) as tree:
            ids = ProducerIds(tree, 1)
            tree.is_broken = True
            results = await asyncio.gather(ids.next_id(), ids.next_id(), return_exceptions=True)
            assert [type(result) for result in results] == [CoordinationError, CoordinationError]
            assert tree.asked == 1
            tree.is_broken = False
            assert await ids.next_id() == 0

    asyncio.run(run())


def test_a_cancelled_caller_takes_no_ids_from_the_others(tmp_path: Path) -> None:
    async def run() -> None:
        async with fragile_in(tmp_path) as tree:
            tree.gate = asyncio.Event()
            ids = ProducerIds(tree, 1)
            impatient, patient = asyncio.create_task(ids.next_id()), asyncio.create_task(ids.next_id())
            await tree.until_asked()
            impatient.cancel()
            await asyncio.wait([impatient])
            tree.gate.set()
            assert await patient == 0
            assert tree.asked == 1

    asyncio.run(run())


def test_closing_ends_a_fetch(tmp_path: Path) -> None:
    async def run() -> None:
        async with fragile_in(tmp_path) as tree:
            tree.gate = asyncio.Event()
            ids = ProducerIds(tree, 1)
            waiting = asyncio.create_task(ids.next_id())
            await tree.until_asked()
            await ids.close()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    asyncio.run(run())
