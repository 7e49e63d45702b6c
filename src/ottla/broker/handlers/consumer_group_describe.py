"""ConsumerGroupDescribe (69), all versions: state and members of groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.broker.requests.authorized_operations import GROUP_OPERATIONS
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(ConsumerGroupDescribeRequest)
async def consumer_group_describe(
    broker: Broker, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    response = await broker.groups.consumer.describe(request)
    if request.include_authorized_operations:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return response
