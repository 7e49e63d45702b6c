"""ApiVersions: the APIs and versions that this broker serves, derived from the registered handlers, and features."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from ottla.broker.handlers import handlers, handles
from ottla.broker.metadata.features import SUPPORTED
from ottla.broker.requests.api import RequestContext
from ottla.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeature,
    SupportedFeature,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_LEVEL_0_SINCE: Final = 4
"""Clients of earlier versions fail on a feature whose lowest version is 0."""


@handles(ApiVersionsRequest)
def api_versions(broker: Broker, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    features = broker.features
    return ApiVersionsResponse(
        api_keys=_advertised(in_cluster=broker.config.zookeeper is not None),
        supported_features=[
            SupportedFeature(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in SUPPORTED.items()
            if lowest > 0 or context.version >= _LEVEL_0_SINCE
        ],
        finalized_features_epoch=features.epoch,
        finalized_features=[
            FinalizedFeature(name=name, max_version_level=level, min_version_level=level)
            for name, level in features.finalized.items()
        ],
    )


@cache
def _advertised(*, in_cluster: bool) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=key, min_version=entry.advertised.low, max_version=entry.advertised.high)
        for key, entry in handlers(in_cluster=in_cluster).items()
    ]
