"""LeaderAndIsr (4): the controller's decision which replicas this broker leads and follows. Only brokers send this."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.control.listener import controlled
from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(LeaderAndIsrRequest)
async def leader_and_isr(broker: Broker, request: LeaderAndIsrRequest, context: RequestContext) -> LeaderAndIsrResponse:
    return await controlled(broker, "LeaderAndIsr", context).leader_and_isr(request, context.version)
