"""DeleteGroups (42): removes empty groups together with the offsets they committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(DeleteGroupsRequest)
async def delete_groups(broker: Broker, request: DeleteGroupsRequest, _context: RequestContext) -> DeleteGroupsResponse:
    return await broker.groups.classic.delete_groups(request)
