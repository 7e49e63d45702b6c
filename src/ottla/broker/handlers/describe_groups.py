"""DescribeGroups (15): state and members of groups of the classic protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.broker.requests.authorized_operations import GROUP_OPERATIONS
from ottla.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(DescribeGroupsRequest)
async def describe_groups(
    broker: Broker, request: DescribeGroupsRequest, context: RequestContext
) -> DescribeGroupsResponse:
    response = await broker.groups.classic.describe_groups(request, context)
    if request.include_authorized_operations:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return response
