"""LeaveGroup (13): removes members from a group."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(LeaveGroupRequest)
def leave_group(
    broker: Broker, request: LeaveGroupRequest, context: RequestContext
) -> LeaveGroupResponse | Coroutine[Any, Any, LeaveGroupResponse]:
    return broker.groups.classic.leave_group(request, context)
