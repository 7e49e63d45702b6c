"""UpdateMetadata (6): the cluster's brokers and partitions, from the controller. Only brokers send this."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.control.listener import controlled
from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(UpdateMetadataRequest)
async def update_metadata(
    broker: Broker, request: UpdateMetadataRequest, context: RequestContext
) -> UpdateMetadataResponse:
    return await controlled(broker, "UpdateMetadata", context).update_metadata(request, context.version)
