"""An Apache ZooKeeper keeps the promises that we hold our tree to, and ours counts as it does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from operator import methodcaller
from pathlib import Path
from random import Random

import pytest

from compat.kazoo_tree import KazooTree
from ottla.base.clock import SystemClock
from ottla.base.coordination import (
    ANY_VERSION,
    Check,
    Coordination,
    CoordinationError,
    Create,
    Delete,
    Operation,
    SetData,
)
from ottla.zookeeper.local_tree import LocalTree
from support.kafka_process import zookeeper
from support.trees.contract import PROMISES

pytestmark = pytest.mark.compat

SEEDS = range(8)
STEPS = 60


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with zookeeper(tmp_path_factory.mktemp("contract") / "zookeeper") as address:
        yield address


@pytest.mark.parametrize("name", PROMISES)
def test_contract(address: str, name: str) -> None:
    async def run() -> None:
        async with KazooTree.connected(address, f"/{name}") as tree:
            await PROMISES[name](tree)

    asyncio.run(asyncio.wait_for(run(), timeout=60))


# --- any writes, side by side ---------------------------------------------------------------------------------------


async def _do(tree: Coordination, random: Random) -> str | int | tuple[str, str]:
    """One write, drawn by chance, and what came of it."""
    try:
        match random.randrange(5):
            case 0:
                return await tree.create(_path(random), _data(random))
            case 1:
                return await tree.create(f"{_path(random)}-", _data(random), sequential=True)
            case 2:
                return await tree.set(_path(random), _data(random), _version(random))
            case 3:
                await tree.delete(_path(random), _version(random))
            case _:
                await tree.transact([_operation(random) for _ in range(random.randint(1, 4))])
    except CoordinationError as error:
        return (type(error).__name__, error.path)
    return "done"


def _path(random: Random) -> str:
    return "/" + "/".join(random.choice(["a", "b", "b0"]) for _ in range(random.randint(1, 3)))


def _data(random: Random) -> bytes:
    return random.randbytes(random.randrange(4))


def _version(random: Random) -> int:
    return random.choice([ANY_VERSION, ANY_VERSION, 0, 1])


def _operation(random: Random) -> Operation:
    match random.randrange(5):
        case 0:
            return Create(_path(random), _data(random))
        case 1:
            return Create(_path(random), sequential=True)
        case 2:
            return SetData(_path(random), _data(random), _version(random))
        case 3:
            return Delete(_path(random), _version(random))
        case _:
            return Check(_path(random), _version(random))


async def _paths(tree: Coordination, path: str = "/") -> list[str]:
    found = [path]
    for name in await tree.children(path):
        found += await _paths(tree, f"{path.rstrip('/')}/{name}")
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_ours_counts_as_zookeeper_does(address: str, tmp_path: Path, seed: int) -> None:
    async def run() -> None:
        async with KazooTree.connected(address, f"/seed-{seed}") as theirs:
            ours = await LocalTree.open(tmp_path / "tree.db", SystemClock())
            refusals = 0
            for step in range(STEPS):
                of_ours = await _do(ours, Random(f"{seed} {step}"))
                of_theirs = await _do(theirs, Random(f"{seed} {step}"))
                assert of_ours == of_theirs, f"step {step}"
                refusals += isinstance(of_ours, tuple)
            assert 0 < refusals < STEPS
            await _compare(ours, theirs)
            await ours.close()

    asyncio.run(asyncio.wait_for(run(), timeout=120))


async def _compare(ours: LocalTree, theirs: KazooTree) -> None:
    paths = await _paths(ours)
    assert await _paths(theirs) == paths
    our_stats, their_stats = {}, {}
    our_ids, their_ids = [], []
    for path in paths:
        found = await ours._ask(methodcaller("read", path))
        assert found is not None
        our_stats[path] = (found.data, found.version, 2 * found.children_made - found.child_count, found.child_count)
        data, stat = await asyncio.to_thread(theirs.client.get, path)
        their_stats[path] = (data or b"", stat.version, stat.cversion, stat.numChildren)
        if path != "/":  # which is older than the tree's own writes
            our_ids += [found.created_zxid, found.modified_zxid, found.children_zxid]
            their_ids += [stat.czxid, stat.mzxid, stat.pzxid]
    assert our_stats == their_stats
    assert _ranks(our_ids) == _ranks(their_ids)


def _ranks(ids: list[int]) -> list[int]:
    """Sessions have ids too, so only the order can be compared."""
    order = {each: rank for rank, each in enumerate(sorted(set(ids)))}
    return [order[each] for each in ids]
