"""One channel per broker: control requests in order, one in flight, each tried again until it is answered or the broker
is gone. Brokers reject what is out of date by controller epoch, broker epoch and leader epoch, so trying again is
harmless.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ottla.controller.core.effects import AnyControlRequest, ControlRequest
from ottla.controller.driver.event_queue import is_cancelled
from ottla.controller.seams import ControlLinks, LiveBroker
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from ottla.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from ottla.wire.messages.update_metadata import UpdateMetadataResponse
from ottla.wire.peer import Peer, PeerError

_logger = logging.getLogger(__name__)

_RETRY_S: Final = 0.1

AnyControlResponse = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse
OnAnswer = Callable[[LiveBroker, AnyControlRequest, AnyControlResponse], None]


class BrokerChannel:
    """Belongs to one event loop and one registration of a broker: a restarted broker gets a new channel."""

    def __init__(self, broker: LiveBroker, peer: Peer, on_answer: OnAnswer, timeout_s: float) -> None:
        self.broker = broker
        self._peer = peer
        self._on_answer = on_answer
        self._timeout_s = timeout_s
        self._waiting: deque[AnyControlRequest | asyncio.Future[None]] = deque()
        self._is_wanted = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def __len__(self) -> int:
        return len(self._waiting)

    def send(self, request: AnyControlRequest) -> None:
        self._waiting.append(request)
        self._is_wanted.set()

    def settled(self) -> asyncio.Future[None]:
        """Done when everything sent so far is answered, or the channel is closed."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._task.done():
            done.set_result(None)
        else:
            self._waiting.append(done)
            self._is_wanted.set()
        return done

    def close(self) -> None:
        self._task.cancel()
        self._peer.close()
        for each in self._waiting:
            if isinstance(each, asyncio.Future) and not each.done():
                each.set_result(None)
        self._waiting.clear()

    async def _run(self) -> None:
        while True:
            await self._is_wanted.wait()
            while self._waiting:
                first = self._waiting[0]
                if isinstance(first, asyncio.Future):
                    if not first.done():
                        first.set_result(None)
                else:
                    response = await self._answered(first)
                    if response is not None:
                        self._tell(first, response)
                self._waiting.popleft()
            self._is_wanted.clear()

    def _tell(self, request: AnyControlRequest, response: AnyControlResponse) -> None:
        """Never raises: the broker must get the requests after this one."""
        try:
            self._on_answer(self.broker, request, response)
        except Exception:
            _logger.exception("an answer of broker %d could not be processed", self.broker.broker_id)

    async def _answered(self, request: AnyControlRequest) -> AnyControlResponse | None:
        is_told = False
        while True:
            try:
                return await self._send(request)
            except PeerError as error:
                if not is_told:
                    _logger.info("broker %d does not answer: %s", self.broker.broker_id, error)
                    is_told = True
            except asyncio.CancelledError:
                if is_cancelled():  # by `close`
                    raise
                _logger.warning("a control request to broker %d was cancelled; trying again", self.broker.broker_id)
            except Exception:
                _logger.exception("a control request to broker %d failed", self.broker.broker_id)
                return None
            await asyncio.sleep(_RETRY_S)

    async def _send(self, request: AnyControlRequest) -> AnyControlResponse:
        if isinstance(request, LeaderAndIsrRequest):
            return await self._peer.send(request, LeaderAndIsrResponse, timeout_s=self._timeout_s)
        if isinstance(request, StopReplicaRequest):
            return await self._peer.send(request, StopReplicaResponse, timeout_s=self._timeout_s)
        return await self._peer.send(request, UpdateMetadataResponse, timeout_s=self._timeout_s)


class Channels:
    """The channels of one active controller."""

    def __init__(
        self,
        links: ControlLinks,
        on_answer: OnAnswer,
        on_silent: Callable[[LiveBroker], None],
        on_heard: Callable[[LiveBroker], None],
        timeout_s: float,
    ) -> None:
        self._links = links
        self._on_answer = on_answer
        self._on_silent = on_silent
        self._on_heard = on_heard
        self._timeout_s = timeout_s
        self._channels: dict[int, BrokerChannel] = {}

    def add(self, broker: LiveBroker) -> None:
        """Opens a channel; one for an earlier registration is closed, and its requests are dropped."""
        self.remove(broker.broker_id)
        peer = self._links.open(broker, lambda: self._on_silent(broker), lambda: self._on_heard(broker))
        self._channels[broker.broker_id] = BrokerChannel(broker, peer, self._on_answer, self._timeout_s)

    def remove(self, broker_id: int) -> None:
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.close()

    def send(self, request: ControlRequest) -> None:
        channel = self._channels.get(request.broker_id)
        if channel is not None:
            channel.send(request.body)

    @property
    def queue_size(self) -> int:
        return sum(map(len, self._channels.values()))

    async def settled(self, broker_id: int, timeout_s: float) -> None:
        """Waits until the broker has answered everything sent so far, but not longer than that."""
        channel = self._channels.get(broker_id)
        if channel is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(channel.settled(), timeout_s)

    def close(self) -> None:
        for broker_id in list(self._channels):
            self.remove(broker_id)
