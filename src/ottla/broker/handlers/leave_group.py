"""LeaveGroup (13): removes members from a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(LeaveGroupRequest)
async def leave_group(broker: Broker, request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    return await broker.groups.classic.leave_group(request, context)
