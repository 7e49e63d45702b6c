"""ApiVersions: the APIs and versions that this broker serves, derived from the registered handlers."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ottla.broker.handlers import handlers, handles
from ottla.broker.requests.api import RequestContext
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(ApiVersionsRequest)
def api_versions(broker: Broker, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    return ApiVersionsResponse(api_keys=_advertised(in_cluster=broker.config.zookeeper is not None))


@cache
def _advertised(*, in_cluster: bool) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=key, min_version=entry.advertised.low, max_version=entry.advertised.high)
        for key, entry in handlers(in_cluster=in_cluster).items()
    ]
