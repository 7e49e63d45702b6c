"""DeleteGroups (42): remove empty groups together with their committed offsets (KIP-229)."""

from __future__ import annotations

from ottla.wire.schema import STRING, Request, Response, Struct, array, int16, int32, string


class DeleteGroupsRequest(Request, api_key=42, versions="0-2", flexible="2+"):
    groups_names: list[str] = array(STRING)


class DeleteGroupsResult(Struct):
    group_id: str = string(key=True)
    error_code: int = int16()


class DeleteGroupsResponse(Response, api_key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32()
    results: list[DeleteGroupsResult] = array(DeleteGroupsResult)
