"""AllocateProducerIds (67): a broker asks the controller for a block of producer ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.control.listener import cluster_controller
from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(AllocateProducerIdsRequest)
async def allocate_producer_ids(
    broker: Broker, request: AllocateProducerIdsRequest, context: RequestContext
) -> AllocateProducerIdsResponse:
    return await cluster_controller(broker, "AllocateProducerIds", context).allocate_producer_ids(request)
