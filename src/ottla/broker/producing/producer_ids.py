"""Ids for idempotent producers: each is handed out once in the life of a cluster.

A broker takes whole blocks of them, by moving the end that is written in `/latest_producer_id_block`. The move is
durable before the first id of the block is given away, and asks for the version of the node that it read: so no crash
and no other broker makes an id come twice. What is left of a block when its broker stops is lost: there are 2**63.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ottla.base.coordination import BadVersionError, Coordination, NodeExistsError
from ottla.zookeeper.paths import PRODUCER_ID_BLOCK
from ottla.zookeeper.znodes import ProducerIdBlock

_logger = logging.getLogger(__name__)

BLOCK_SIZE: Final = 1000
_REFILL_AT: Final = 100
_MAX_ID: Final = 2**63 - 1


class ProducerIdError(Exception):
    """There are no ids behind the last block."""


class ProducerIds:
    """Used from one event loop. The next block is fetched while the last ids of the present one are given out, so
    that hardly anybody waits."""

    def __init__(self, coordination: Coordination, broker_id: int) -> None:
        self._coordination = coordination
        self._broker_id = broker_id
        self._next_id = 0
        self._end_id = 0
        self._spare: range | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def next_id(self) -> int:
        """One that nobody has. Where a block is needed and cannot be had, it raises what stands in the way: of the
        coordination, a `ZnodeError` for a node that holds something else, or a `ProducerIdError`."""
        while self._next_id == self._end_id:
            if self._spare is None:
                # Shared by all who wait, so one of them that is cancelled must not cancel it.
                await asyncio.shield(self._fetch())
            else:
                self._next_id, self._end_id, self._spare = self._spare.start, self._spare.stop, None
        producer_id = self._next_id
        self._next_id += 1
        if self._end_id - self._next_id <= _REFILL_AT and self._spare is None:
            self._fetch()
        return producer_id

    async def close(self) -> None:
        """Ends a fetch that is under way."""
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
            _logger.warning("no block of producer ids could be taken, the next request tries again: %s", error)

    async def _take_block(self) -> None:
        while True:
            node = await self._coordination.get(PRODUCER_ID_BLOCK)
            first = 0
            if node is not None and node.data:  # Kafka makes the node without data
                first = ProducerIdBlock.decode(PRODUCER_ID_BLOCK, node.data).last + 1
            last = first + BLOCK_SIZE - 1
            if first < 0 or last > _MAX_ID:
                raise ProducerIdError(f"{PRODUCER_ID_BLOCK}: no ids are left behind a block that ends at {first - 1}")
            data = ProducerIdBlock(self._broker_id, first, last).encode()
            try:
                if node is None:
                    await self._coordination.create(PRODUCER_ID_BLOCK, data)
                else:
                    await self._coordination.set(PRODUCER_ID_BLOCK, data, node.version)
            except (BadVersionError, NodeExistsError):
                continue  # another broker took that block
            self._spare = range(first, last + 1)
            return
