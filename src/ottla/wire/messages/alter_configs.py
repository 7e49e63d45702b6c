"""AlterConfigs (33): replace the whole configuration of a resource; what is not named falls back to its default.

IncrementalAlterConfigs (KIP-339) changes single keys and is what newer clients use.
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, int8, int16, int32, string


class AlterConfigsEntry(Struct):
    name: str = string(key=True)
    value: str | None = string(nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = int8(key=True)
    resource_name: str = string(key=True)
    configs: list[AlterConfigsEntry] = array(AlterConfigsEntry)


class AlterConfigsRequest(Request, api_key=33, versions="0-2", flexible="2+"):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(Response, api_key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
