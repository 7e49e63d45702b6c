"""ControlledShutdown (7): a broker that is about to stop asks the controller to move its leaderships away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.control.listener import cluster_controller
from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(ControlledShutdownRequest, versions="1-3")  # the header of v0 has no client id; no broker sends it any more
async def controlled_shutdown(
    broker: Broker, request: ControlledShutdownRequest, context: RequestContext
) -> ControlledShutdownResponse:
    return await cluster_controller(broker, "ControlledShutdown", context).controlled_shutdown(request)
