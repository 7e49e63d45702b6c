"""IncrementalAlterConfigs (44): change single config keys and leave the others of the resource alone (KIP-339)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, int8, int16, int32, string


class IncrementalAlterConfigsEntry(Struct):
    name: str = string(key=True)
    config_operation: int = int8(key=True)  # 0: set, 1: delete, 2: append to a list, 3: subtract from a list
    value: str | None = string(nullable="0+")


class IncrementalAlterConfigsResource(Struct):
    resource_type: int = int8(key=True)
    resource_name: str = string(key=True)
    configs: list[IncrementalAlterConfigsEntry] = array(IncrementalAlterConfigsEntry)


class IncrementalAlterConfigsRequest(Request, api_key=44, versions="0-1", flexible="1+"):
    resources: list[IncrementalAlterConfigsResource] = array(IncrementalAlterConfigsResource)
    validate_only: bool = boolean()


class IncrementalAlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


class IncrementalAlterConfigsResponse(Response, api_key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32()
    responses: list[IncrementalAlterConfigsResourceResponse] = array(IncrementalAlterConfigsResourceResponse)
