"""Ids for idempotent producers: each is handed out once in the life of a cluster.

A broker takes whole blocks of them, by moving the end that is written in `/latest_producer_id_block`. The move is
durable before the first id of the block is given away, and asks for the version of the node that it read: so no crash
and no other broker makes an id come twice. What is left of a block when its broker stops is lost: there are 2**63.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Final

from ottla.base.coordination import BadVersionError, Coordination, NodeExistsError

_logger = logging.getLogger(__name__)

PATH: Final = "/latest_producer_id_block"
BLOCK_SIZE: Final = 1000
_REFILL_AT: Final = 100
_MAX_ID: Final = 2**63 - 1


class ProducerIdError(Exception):
    """The node of the blocks holds something else, or all ids are used up."""


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
        """One that nobody has. Raises what the coordination raises if a block is needed and cannot be had."""
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
            node = await self._coordination.get(PATH)
            start = 0 if node is None or not node.data else _end_of_block(node.data)
            if start > _MAX_ID - BLOCK_SIZE:
                raise ProducerIdError(f"{PATH}: all producer ids are used up, the last block ended before {start}")
            block = {
                "version": 1,
                "broker": self._broker_id,
                "block_start": str(start),
                "block_end": str(start + BLOCK_SIZE - 1),
            }
            data = json.dumps(block, separators=(",", ":")).encode("ascii")
            try:
                if node is None:
                    await self._coordination.create(PATH, data)
                else:
                    await self._coordination.set(PATH, data, node.version)
            except (BadVersionError, NodeExistsError):
                continue  # another broker took that block
            self._spare = range(start, start + BLOCK_SIZE)
            return


def _end_of_block(data: bytes) -> int:
    """Where the next block begins. Never a guess: an id given out twice would make records vanish as duplicates."""
    try:
        end = int(json.loads(data)["block_end"])
        if end < 0:
            raise ValueError(f"block_end {end} is negative")
    except (ValueError, KeyError, TypeError) as error:
        raise ProducerIdError(
            f"{PATH} holds {data[:100]!r}, which is no block of producer ids ({error!r}); restore it, or write a block "
            "that ends above every producer id in use"
        ) from None
    return end + 1
