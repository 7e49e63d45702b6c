"""Heartbeat (12): a member of a group is alive, and hears whether a rebalance is due."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(HeartbeatRequest)
def heartbeat(
    broker: Broker, request: HeartbeatRequest, context: RequestContext
) -> HeartbeatResponse | Coroutine[Any, Any, HeartbeatResponse]:
    return broker.groups.classic.heartbeat(request, context)
