"""StopReplica (5): stops replicas on this broker, and deletes them. Only brokers send this."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.control.listener import controlled
from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(StopReplicaRequest)
async def stop_replica(broker: Broker, request: StopReplicaRequest, context: RequestContext) -> StopReplicaResponse:
    return await controlled(broker, "StopReplica", context).stop_replica(request, context.version)
