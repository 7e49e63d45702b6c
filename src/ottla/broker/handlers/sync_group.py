"""SyncGroup (14): returns a member's assignment, and takes all assignments from the leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(SyncGroupRequest)
async def sync_group(broker: Broker, request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    return await broker.groups.classic.sync_group(request, context)
