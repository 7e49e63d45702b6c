"""The embedded server, reached by our client over a socket, keeps the promises of a tree."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from support.trees.contract import PROMISES, SESSION_PROMISES
from support.trees.servers import connected, embedded_server


@pytest.mark.parametrize("name", PROMISES)
def test_contract(tmp_path: Path, name: str) -> None:
    async def run() -> None:
        async with embedded_server(tmp_path) as server, connected(server.address) as tree:
            await PROMISES[name](tree)

    asyncio.run(asyncio.wait_for(run(), timeout=60))


@pytest.mark.parametrize("name", PROMISES)
def test_contract_below_a_chroot(tmp_path: Path, name: str) -> None:
    async def run() -> None:
        async with embedded_server(tmp_path) as server, connected(server.address, "/kafka/east") as tree:
            await PROMISES[name](tree)
            async with connected(server.address) as whole:
                assert await whole.children("/") == ["kafka"]

    asyncio.run(asyncio.wait_for(run(), timeout=60))


@pytest.mark.parametrize("name", SESSION_PROMISES)
def test_contract_of_sessions(tmp_path: Path, name: str) -> None:
    async def run() -> None:
        async with (
            embedded_server(tmp_path) as server,
            connected(server.address) as tree,
            connected(server.address) as other,
        ):
            await SESSION_PROMISES[name](tree, other)

    asyncio.run(asyncio.wait_for(run(), timeout=60))
