"""ListConfigResources (74): the names of everything that has a configuration, by type.

v0 knew only resources for client metrics, and was called ListClientMetricsResources; types since v1 (KIP-1142).
"""

from __future__ import annotations

from ottla.wire.schema import INT8, Request, Response, Struct, array, int8, int16, int32, string


class ListConfigResourcesRequest(Request, api_key=74, versions="0-1", flexible="0+"):
    """No type asks for all of them."""

    resource_types: list[int] = array(INT8, "1+")


class ListedConfigResource(Struct):
    resource_name: str = string()
    # 16: client metrics
    resource_type: int = int8("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Response, api_key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ListedConfigResource] = array(ListedConfigResource)
