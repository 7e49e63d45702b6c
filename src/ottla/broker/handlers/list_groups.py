"""ListGroups (16): the groups that this broker coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(ListGroupsRequest)
async def list_groups(broker: Broker, request: ListGroupsRequest, _context: RequestContext) -> ListGroupsResponse:
    return await broker.groups.classic.list_groups(request)
