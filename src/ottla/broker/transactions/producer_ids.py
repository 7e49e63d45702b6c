"""Ids for idempotent producers: each is used once in the life of a cluster.

A broker allocates whole blocks of ids by advancing the end in `/latest_producer_id_block`. The write is durable before
the first id of the block is used, and checks the version of the node: so neither a crash nor another broker can make an
id appear twice. The rest of a block is lost when its broker stops: there are 2**63 ids.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ottla.base.coordination import BadVersionError, ConnectionLossError, Coordination, NodeExistsError
from ottla.zookeeper.paths import PRODUCER_ID_BLOCK
from ottla.zookeeper.znodes import ProducerIdBlock

_logger = logging.getLogger(__name__)

BLOCK_SIZE: Final = 1000
_REFILL_AT: Final = 100
_MAX_ID: Final = 2**63 - 1


class ProducerIdError(Exception):
    """No ids are left after the last block."""


class ProducerIds:
    """Used from one event loop. The next block is allocated before the current one is used up, so that requests rarely
    wait."""

    def __init__(self, coordination: Coordination, broker_id: int) -> None:
        self._coordination = coordination
        self._broker_id = broker_id
        self._next_id = 0
        self._end_id = 0
        self._spare: range | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def next_id(self) -> int:
        """A new id. If a block cannot be allocated, raises the error of the coordination tree, a `ZnodeError` for an
        invalid node, or a `ProducerIdError`."""
        while self._next_id == self._end_id:
            if self._spare is None:
                # Shared by all waiting requests, so the cancellation of one must not cancel it.
                await asyncio.shield(self._fetch())
            else:
                self._next_id, self._end_id, self._spare = self._spare.start, self._spare.stop, None
        producer_id = self._next_id
        self._next_id += 1
        if self._end_id - self._next_id <= _REFILL_AT and self._spare is None:
            self._fetch()
        return producer_id

    def prepare(self) -> None:
        """Allocates the first block now, so that producers can begin although ZooKeeper is gone when they do."""
        if self._next_id == self._end_id and self._spare is None:
            self._fetch()

    async def close(self) -> None:
        """Cancels an allocation in progress."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])

    def _fetch(self) -> asyncio.Task[None]:
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._take_block(), name="producer-id-block")
            self._fetching.add_done_callback(self._fetched)
        return self._fetching

    def _fetched(self, task: asyncio.Task[None]) -> None:
        self._fetching = None
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.warning("could not allocate a block of producer ids; the next request will retry: %s", error)

    async def _take_block(self) -> None:
        while True:
            node = await self._coordination.get(PRODUCER_ID_BLOCK)
            first = 0
            if node is not None and node.data:  # Kafka creates the node without data
                first = ProducerIdBlock.decode(PRODUCER_ID_BLOCK, node.data).last + 1
            last = first + BLOCK_SIZE - 1
            if first < 0 or last > _MAX_ID:
                raise ProducerIdError(f"{PRODUCER_ID_BLOCK}: no ids are left after a block that ends at {first - 1}")
            data = ProducerIdBlock(self._broker_id, first, last).encode()
            try:
                if node is None:
                    await self._coordination.create(PRODUCER_ID_BLOCK, data)
                else:
                    await self._coordination.set(PRODUCER_ID_BLOCK, data, node.version)
            except (BadVersionError, NodeExistsError):
                continue  # another broker took that block
            except ConnectionLossError:
                continue  # this broker may have taken it and not know: it takes another one
            self._spare = range(first, last + 1)
            return
