"""A task that asks one leader, through one connection, for the partitions of one `FetcherCore`.

If the connection can exchange frames, rounds that are all alike take the fast path (`fast_rounds`), and the task sleeps
meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import Final

from ottla.base.clock import Clock
from ottla.replication.fetching.fast_rounds import FastRounds
from ottla.replication.fetching.fetcher_core import FetcherCore
from ottla.replication.fetching.settings import FetchSettings
from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from ottla.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from ottla.wire.peer import FramePeer, Peer, PeerError
from ottla.wire.schema import Request, Response

_logger = logging.getLogger(__name__)

_TURN_S: Final = 0.003
"""How long appends may keep the event loop from other work."""


class FetchLoop:
    """See the module. Owned by the event loop. `on_round` is called after each answer and each failure."""

    def __init__(
        self,
        core: FetcherCore,
        peer: Peer,
        settings: FetchSettings,
        clock: Clock,
        loop: AbstractEventLoop,
        on_round: Callable[[], None] = lambda: None,
    ) -> None:
        self.core = core
        self.is_waiting = False
        """Whether a fetch is at the leader, who may wait for news."""
        self._peer = peer
        self._fast = FastRounds(core, peer, settings, clock, loop, on_round) if isinstance(peer, FramePeer) else None
        self._settings = settings
        self._clock = clock
        self._loop = loop
        self._on_round = on_round
        self._woken = asyncio.Event()
        self._is_lost = False
        self._is_closed = False
        core.on_change = self.wake
        self.task = loop.create_task(self._run(), name=f"fetch from broker {core.leader_id}")

    def wake(self) -> None:
        """There may be something to ask."""
        self._woken.set()

    def close(self) -> asyncio.Task[None]:
        """Nothing will be appended any more. The connection is closed. Returns the task, which ends soon."""
        self._is_closed = True
        self.task.cancel()
        if self._fast is not None:
            self._fast.close()
        self._peer.close()
        return self.task

    async def _run(self) -> None:
        core, now = self.core, self._clock.monotonic_s
        while not self._is_closed:  # a peer that is closed while it connects may answer a cancellation with PeerError
            self._woken.clear()
            now_s = now()
            if now_s < core.retry_at_s or not core.partitions:
                await self._sleep(core.retry_at_s - now_s if core.partitions else None)
                continue
            try:
                served = await self._peer.version_of(FetchRequest)
                now_s = now()
                request = core.next_request(now_s, served)
                if request is None:
                    wake_s = core.wake_s(now_s)
                    await self._sleep(None if wake_s == float("inf") else wake_s - now_s)
                    continue
                response = await self._ask(request, served)
                if response is not None:
                    await self._take(request, response)
                if self._is_lost:
                    self._is_lost = False
                    _logger.info("fetching from leader %d again", core.leader_id)
            except (PeerError, TimeoutError) as error:
                if not self._is_closed:
                    self._lost(error)
            except Exception:
                _logger.exception("fetching from leader %d failed; trying again", core.leader_id)
                core.lost(now())
            self._on_round()

    async def _sleep(self, seconds: float | None) -> None:
        """Until then, or until something may have changed."""
        timer = None if seconds is None else self._loop.call_later(max(seconds, 0.0), self._woken.set)
        try:
            await self._woken.wait()
        finally:
            if timer is not None:
                timer.cancel()

    async def _ask(self, request: Request, served: int) -> Response | None:
        """None if the answer was taken already."""
        timeout_s = self._settings.socket_timeout_ms / 1000
        if isinstance(request, FetchRequest):
            self.is_waiting = True
            try:
                version = self.core.fetch_version(served)
                if self._fast is not None:
                    return await self._fast.ask(request, version)
                return await self._peer.send(request, FetchResponse, version=version, timeout_s=timeout_s)
            finally:
                self.is_waiting = False
        if isinstance(request, ListOffsetsRequest):
            return await self._peer.send(request, ListOffsetsResponse, timeout_s=timeout_s)
        return await self._peer.send(request, OffsetForLeaderEpochResponse, timeout_s=timeout_s)

    async def _take(self, request: Request, response: Response) -> None:
        loop_time = self._loop.time
        turn_end_s = loop_time() + _TURN_S
        for _ in self.core.answered(request, response, self._clock.monotonic_s()):
            if loop_time() >= turn_end_s:
                await asyncio.sleep(0)
                turn_end_s = loop_time() + _TURN_S

    def _lost(self, error: Exception) -> None:
        self.core.lost(self._clock.monotonic_s())
        if not self._is_lost:
            self._is_lost = True
            _logger.warning("cannot fetch from leader %d: %s; trying again", self.core.leader_id, error)
