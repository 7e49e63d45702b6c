"""SyncGroup (14): returns a member's assignment, and takes all assignments from the leader."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(SyncGroupRequest)
def sync_group(
    broker: Broker, request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Coroutine[Any, Any, SyncGroupResponse]:
    return broker.groups.classic.sync_group(request, context)
