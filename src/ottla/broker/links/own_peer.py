"""The link of a broker to itself: calls instead of frames.

What the controller sends to its own broker, and what a broker sends to the controller in its own process, does not
need a socket. It passes the same queues and checks as a request from elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from ottla.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from ottla.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla.wire.peer import AnyResponse, PeerError
from ottla.wire.schema import Request, Response

_logger = logging.getLogger(__name__)


class OwnBroker(Protocol):
    """What this broker answers itself: as a broker to the controller, and as the controller to brokers."""

    async def leader_and_isr(self, request: LeaderAndIsrRequest, version: int) -> LeaderAndIsrResponse: ...

    async def stop_replica(self, request: StopReplicaRequest, version: int) -> StopReplicaResponse: ...

    async def update_metadata(self, request: UpdateMetadataRequest, version: int) -> UpdateMetadataResponse: ...

    async def alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse: ...

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse: ...

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse: ...


class OwnPeer:
    """See the module; implements `ottla.wire.peer.Peer`. A request whose caller no longer waits is still carried out,
    as it would be at the other end of a socket."""

    def __init__(self, own: OwnBroker) -> None:
        self._own = own
        self._running: set[asyncio.Task[Response]] = set()
        self._closed = asyncio.Event()

    async def send(
        self,
        request: Request,
        response: type[AnyResponse],
        *,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> AnyResponse:
        if self._closed.is_set():
            raise PeerError("the link to this broker itself is closed")
        running = asyncio.create_task(self._handle(request, version), name=f"own {type(request).__name__}")
        self._running.add(running)
        running.add_done_callback(self._done)
        closing = asyncio.create_task(self._closed.wait())
        try:
            done, _ = await asyncio.wait({running, closing}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            closing.cancel()
        if running not in done:
            reason = "was closed" if done else f"did not answer within {timeout_s:g} s"
            raise PeerError(f"the link to this broker itself {reason}")
        if running.cancelled():
            raise PeerError(f"{type(request).__name__} to this broker itself was cancelled")
        error = running.exception()
        if error is not None:
            raise PeerError(f"this broker itself could not handle {type(request).__name__}: {error!r}") from error
        answer = running.result()
        if not isinstance(answer, response):
            raise TypeError(f"{type(request).__name__} was answered by {type(answer).__name__}")
        return answer

    async def version_of(self, request: type[Request]) -> int:
        return request.versions.high

    def close(self) -> None:
        self._closed.set()

    def _handle(self, request: Request, version: int | None) -> Coroutine[Any, Any, Response]:
        own = self._own
        if version is None:
            version = type(request).versions.high
        match request:
            case LeaderAndIsrRequest():
                return own.leader_and_isr(request, version)
            case StopReplicaRequest():
                return own.stop_replica(request, version)
            case UpdateMetadataRequest():
                return own.update_metadata(request, version)
            case AlterPartitionRequest():
                return own.alter_partition(request, version)
            case ControlledShutdownRequest():
                return own.controlled_shutdown(request)
            case AllocateProducerIdsRequest():
                return own.allocate_producer_ids(request)
            case _:
                raise TypeError(f"a broker does not send {type(request).__name__} to itself")

    def _done(self, running: asyncio.Task[Response]) -> None:
        self._running.discard(running)
        if not running.cancelled() and (error := running.exception()) is not None:
            _logger.error("a request to this broker itself failed", exc_info=error)
