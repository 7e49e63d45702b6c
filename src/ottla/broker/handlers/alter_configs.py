"""AlterConfigs: replaces all configs of a topic, broker or group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.error_codes import ErrorCode
from ottla.broker.configs.resources import ChangeByKeys, outcomes
from ottla.broker.handlers import handles
from ottla.broker.requests.api import BrokerError, RequestContext
from ottla.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(AlterConfigsRequest)
async def alter_configs(broker: Broker, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    def plan(resource: AlterConfigsResource) -> ChangeByKeys:
        settings = {entry.name: entry.value for entry in resource.configs if entry.value is not None}
        if len(settings) < len(resource.configs):
            raise BrokerError(ErrorCode.INVALID_REQUEST, "A value is null: omit keys that should not be set.")
        return lambda *_: settings

    altered = await outcomes(broker, request.resources, plan, validate_only=request.validate_only)
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=reason,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, (code, reason) in zip(request.resources, altered, strict=True)
        ]
    )
