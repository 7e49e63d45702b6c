"""What ZooKeeper says of a cluster, for code that blocks: a session in a thread of its own.

Every call is bounded. Its session has no ephemeral nodes, so it does not matter to the cluster when it ends.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ottla.zookeeper import paths
from ottla.zookeeper.client.tree import ZooKeeperTree
from ottla.zookeeper.znodes import ControllerRegistration, PartitionLeader

_T = TypeVar("_T")
_ASK_TIMEOUT_S: Final = 10.0
_SESSION_TIMEOUT_MS: Final = 10_000


class TreeView:
    """Use `close` at the end. Connects when it is first asked. Any thread may ask."""

    def __init__(self, connect: str) -> None:
        self._connect = connect
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tree-view", daemon=True)
        self._thread.start()
        self._tree: ZooKeeperTree | None = None
        self._opening = asyncio.Lock()

    def ask(self, question: Callable[[ZooKeeperTree], Awaitable[_T]], timeout_s: float = _ASK_TIMEOUT_S) -> _T:
        """What `question` returns; it runs on the session's loop. Raises `TimeoutError` if ZooKeeper is not there."""
        return asyncio.run_coroutine_threadsafe(self._ask(question, timeout_s), self._loop).result()

    async def _ask(self, question: Callable[[ZooKeeperTree], Awaitable[_T]], timeout_s: float) -> _T:
        async with asyncio.timeout(timeout_s):
            async with self._opening:
                if self._tree is None:
                    self._tree = await ZooKeeperTree.open(self._connect, _SESSION_TIMEOUT_MS, timeout_s)
            return await question(self._tree)

    def partition(self, topic: str, partition: int) -> PartitionLeader | None:
        """The partition's state; None if it has none yet."""
        path = paths.partition_state(topic, partition)
        node = self.ask(lambda tree: tree.get(path))
        return None if node is None else PartitionLeader.decode(path, node.data)

    def controller(self) -> int | None:
        """The id of the broker that is the controller; None if there is none."""
        node = self.ask(lambda tree: tree.get(paths.CONTROLLER))
        return None if node is None else ControllerRegistration.decode(paths.CONTROLLER, node.data).broker_id

    def brokers(self) -> set[int]:
        """The brokers that are registered."""
        return {int(name) for name in self.ask(lambda tree: tree.children(paths.BROKER_IDS))}

    def close(self) -> None:
        async def end() -> None:
            if self._tree is not None:
                await asyncio.wait_for(self._tree.close(), _ASK_TIMEOUT_S)

        try:
            asyncio.run_coroutine_threadsafe(end(), self._loop).result()
        except TimeoutError:
            pass  # ZooKeeper is not there: the session expires by itself
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
