"""Looks at the ZooKeeper of a local cluster: which brokers are registered, and which one is the controller."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from ottla.base.coordination import CoordinationError
from ottla.cli.local_cluster.launcher import TreeSight
from ottla.zookeeper import paths
from ottla.zookeeper.client.tree import ZooKeeperTree
from ottla.zookeeper.node_json import ZnodeError
from ottla.zookeeper.znodes import ControllerRegistration

_LOOK_EVERY_S: Final = 0.3
_ANSWER_S: Final = 3.0
_SESSION_MS: Final = 10_000


class TreeWatch:
    """`start` and `close` it on the same loop; `sight` is the last answer, None while there is none."""

    def __init__(self, connect: str) -> None:
        self.sight: TreeSight | None = None
        self._connect = connect
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="look at ZooKeeper")

    async def close(self) -> None:
        """Ends the session. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.sight = None

    async def _run(self) -> None:
        """Until it is cancelled. Connects again whenever ZooKeeper is gone."""
        while True:
            with suppress(CoordinationError, OSError, TimeoutError):
                tree = await ZooKeeperTree.open(self._connect, _SESSION_MS, _ANSWER_S)
                try:
                    await self._look_on(tree)
                finally:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(tree.close(), _ANSWER_S)
            self.sight = None
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _look_on(self, tree: ZooKeeperTree) -> None:
        while True:
            async with asyncio.timeout(_ANSWER_S):
                epochs = await _epochs(tree)
                node = await tree.get(paths.CONTROLLER)
            controller = None
            if node is not None:
                with suppress(ZnodeError):
                    controller = ControllerRegistration.decode(paths.CONTROLLER, node.data).broker_id
            self.sight = TreeSight(epochs, controller)
            await asyncio.sleep(_LOOK_EVERY_S)


async def _epochs(tree: ZooKeeperTree) -> dict[int, int]:
    """Of registered brokers, by id."""
    if await tree.get(paths.BROKER_IDS) is None:
        return {}
    numbers = [int(name) for name in await tree.children(paths.BROKER_IDS)]
    nodes = await asyncio.gather(*(tree.get(paths.broker(number)) for number in numbers))
    return {number: node.created_zxid for number, node in zip(numbers, nodes, strict=True) if node is not None}
