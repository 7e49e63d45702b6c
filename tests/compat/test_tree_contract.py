"""An Apache ZooKeeper, reached by our client, keeps the promises of our tree, and our server counts as it does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

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
from ottla.zookeeper.client.tree import ZooKeeperTree
from ottla.zookeeper.protocol.jute import JuteReader
from ottla.zookeeper.protocol.messages import DataResponse, OpCode, ReplyHeader, Stat, WatchedPathRequest
from support.kafka_process import zookeeper
from support.trees.contract import PROMISES, SESSION_PROMISES
from support.trees.servers import connected, embedded_server

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
        async with connected(address, f"/{name}") as tree:
            await PROMISES[name](tree)

    asyncio.run(asyncio.wait_for(run(), timeout=60))


@pytest.mark.parametrize("name", SESSION_PROMISES)
def test_contract_of_sessions(address: str, name: str) -> None:
    async def run() -> None:
        async with connected(address, f"/{name}") as tree, connected(address, f"/{name}") as other:
            await SESSION_PROMISES[name](tree, other)

    asyncio.run(asyncio.wait_for(run(), timeout=60))


# --- any writes, side by side ---------------------------------------------------------------------------------------


async def _do(tree: Coordination, random: Random) -> str | int | tuple[str, str]:
    """One write, drawn by chance, and what came of it."""
    try:
        match random.randrange(5):
            case 0:
                return await tree.create(_path(random), _data(random))
            case 1:
                is_ephemeral = random.random() < 0.3
                return await tree.create(f"{_path(random)}-", _data(random), sequential=True, ephemeral=is_ephemeral)
            case 2:
                return await tree.set(_path(random), _data(random) or b"", _version(random))
            case 3:
                await tree.delete(_path(random), _version(random))
            case _:
                await tree.transact([_operation(random) for _ in range(random.randint(1, 4))])
    except CoordinationError as error:
        return (type(error).__name__, error.path)
    return "done"


def _path(random: Random) -> str:
    return "/" + "/".join(random.choice(["a", "b", "b0"]) for _ in range(random.randint(1, 3)))


def _data(random: Random) -> bytes | None:
    return random.randbytes(random.randrange(4)) or None


def _version(random: Random) -> int:
    return random.choice([ANY_VERSION, ANY_VERSION, 0, 1])


def _operation(random: Random) -> Operation:
    match random.randrange(5):
        case 0:
            return Create(_path(random), _data(random), ephemeral=random.random() < 0.2)
        case 1:
            return Create(_path(random), sequential=True)
        case 2:
            return SetData(_path(random), _data(random) or b"", _version(random))
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
        async with (
            embedded_server(tmp_path) as server,
            connected(server.address, f"/seed-{seed}") as ours,
            connected(address, f"/seed-{seed}") as theirs,
        ):
            refusals = 0
            for step in range(STEPS):
                of_ours = await _do(ours, Random(f"{seed} {step}"))
                of_theirs = await _do(theirs, Random(f"{seed} {step}"))
                assert of_ours == of_theirs, f"step {step}"
                refusals += isinstance(of_ours, tuple)
            assert 0 < refusals < STEPS
            await _compare(ours, theirs)

    asyncio.run(asyncio.wait_for(run(), timeout=120))


async def _compare(ours: ZooKeeperTree, theirs: ZooKeeperTree) -> None:
    """Data and all numbers of the stat; ids of writes and sessions only in their order, times not at all."""
    paths = await _paths(ours)
    assert await _paths(theirs) == paths
    nodes: tuple[list[object], list[object]] = ([], [])
    ids: tuple[list[int], list[int]] = ([], [])
    for side, tree in enumerate((ours, theirs)):
        for path in paths:
            data, stat = await _stat(tree, path)
            mine = "" if not stat.owner else "mine" if stat.owner == tree.session_id else "another's"
            counts = (stat.version, stat.child_version, stat.acl_version, stat.data_size, stat.child_count)
            nodes[side].append((path, data, mine, counts))
            if path != "/":  # which is older than the tree's own writes
                ids[side].extend((stat.created_zxid, stat.modified_zxid, stat.children_zxid))
    assert nodes[0] == nodes[1]
    assert _ranks(ids[0]) == _ranks(ids[1])


async def _stat(tree: ZooKeeperTree, path: str) -> tuple[bytes | None, Stat]:
    """All that a server tells, of which `Node` has a part."""
    servers = tree.session.servers

    def read(_: ReplyHeader, reader: JuteReader) -> DataResponse:
        return DataResponse.read(reader)

    request = WatchedPathRequest(servers.absolute(path), False)
    response = await tree.session.ask(OpCode.GET_DATA, request, path, read)
    return response.data, response.stat


def _ranks(ids: list[int]) -> list[int]:
    """Sessions have ids too, so only the order can be compared."""
    order = {each: rank for rank, each in enumerate(sorted(set(ids)))}
    return [order[each] for each in ids]
