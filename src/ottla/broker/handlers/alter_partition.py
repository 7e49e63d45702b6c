"""AlterPartition (56): a leader proposes other in-sync replicas to the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.control.listener import cluster_controller
from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(AlterPartitionRequest)
async def alter_partition(
    broker: Broker, request: AlterPartitionRequest, context: RequestContext
) -> AlterPartitionResponse:
    return await cluster_controller(broker, "AlterPartition", context).alter_partition(request, context.version)
