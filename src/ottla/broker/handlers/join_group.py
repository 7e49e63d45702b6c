"""JoinGroup (11): adds a member to a group, and waits for the other members."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(JoinGroupRequest)
def join_group(
    broker: Broker, request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse | Coroutine[Any, Any, JoinGroupResponse]:
    return broker.groups.classic.join_group(request, context)
