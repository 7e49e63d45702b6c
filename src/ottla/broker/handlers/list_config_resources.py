"""ListConfigResources: the names of all resources with configs. In version 0 these are only subscriptions to client
metrics, of which there are none yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.base.config_descriptions import ResourceType
from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListedConfigResource,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_KNOWN: Final = frozenset(ResourceType)


@handles(ListConfigResourcesRequest)
def list_config_resources(
    broker: Broker, request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    if context.version == 0:
        return ListConfigResourcesResponse()
    wanted = set(request.resource_types) or _KNOWN
    if not wanted <= _KNOWN:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found = []
    if ResourceType.TOPIC in wanted:
        found += [(name, ResourceType.TOPIC) for name in sorted(broker.metadata.topics)]
    for resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        if resource_type in wanted:
            found += [(str(broker_id), resource_type) for broker_id in sorted(broker.metadata.brokers)]
    if ResourceType.GROUP in wanted:
        found += [(group_id, ResourceType.GROUP) for group_id in sorted(broker.configs.groups)]
    return ListConfigResourcesResponse(
        config_resources=[
            ListedConfigResource(resource_name=name, resource_type=resource_type) for name, resource_type in found
        ]
    )
